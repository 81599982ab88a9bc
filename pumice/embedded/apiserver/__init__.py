"""An API server in one small process, for a first run without Go and for simulation.

A synchronous core (`core.ApiServer`, no sockets, no clock of its own) that knows the kinds, verbs
and rules which Pumice and everyday kubectl use, and a thin aiohttp shell around it (`http`). One
contract suite (`tests/contract/apiserver`) runs on it and on the real kube-apiserver; what differs
is listed in docs/embedded-api-server.md. No figure and no promise about restarts is shown on it.
"""
