"""The one way to the Kubernetes API server: credentials, requests, list/watch.

Read in this order: `errors` (how a refusal is told), `credentials` (asked for anew with
each request), `transport` (one HTTP exchange), `client` (`Kube`: the verbs), `decode` (bytes to
views), `listwatch` (an informer without its cache), `config` (`connect`, which builds it all).
ADR 3 says why it is not kubernetes-asyncio all the way.
"""
