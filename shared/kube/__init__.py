"""The client of the Kubernetes API server: credentials, requests, list and watch.

A request passes two layers: `client` (`Kube`: the verbs, typed) and `transport` (one HTTP exchange
over `connections`, with `credentials` from `sources`). `decode` turns bytes into views, `errors`
refusals into exceptions; `listwatch` is an informer without its cache; `config` builds a client.
ADR 3 says why only the loaders of credentials are kubernetes-asyncio's.
"""
