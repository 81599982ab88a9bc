"""The live page: its files, and the small server that brings it to a browser on this machine.

The files are served from here, and the data come from the API server with the credentials of the
user's kubeconfig: so the page shows what this user may see, and no service of the cluster takes
credentials from a browser.
"""
