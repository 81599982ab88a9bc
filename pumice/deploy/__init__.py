"""What putting Pumice on a machine or a cluster needs beyond the services themselves.

The NATS server's users, the secrets that they take, and the steps of the Compose stack. Each module
with a `main` is run as `python -P -m pumice.deploy.<module>` from the same image as the services.
"""
