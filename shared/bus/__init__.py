"""The bus: what every service needs of NATS JetStream, with the promises of ADR 2.

Read in this order: `values` (what callers give and get), `nats` (puts the parts together),
then `connection` and `replies` (one connection, one owned inbox for every answer), `publisher`,
`feed`, `follower` and `puller` (messages out and in), `streams` (declarations), and on top of the
bus `state`. Leases and leader election are in `shared.election`.
"""
