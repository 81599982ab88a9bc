"""The one way to the Kubernetes API server: credentials, requests, list/watch.

Read in this order: `errors` (how a refusal is told), `credentials` (asked for anew with
each request), `transport` (one HTTP exchange), `client` (`Kube`: the verbs), `decode` (bytes to
views), `listwatch` (an informer without its cache), `config` (`connect`, which builds it all).
`docs/adr/0003-kubernetes-requests-go-through-our-own-typed-client.md` tells why it is not kubernetes-asyncio all the way.
"""
