"""The bus: what every service needs of NATS JetStream, with the promises of ADR 2.

Read in this order: `port` (what callers see), `nats` (the adapter that puts the parts together),
then `connection` and `replies` (one connection, one owned inbox for every answer), `publisher`,
`feed`, `follower` and `puller` (messages out and in), `streams` (declarations), and on top of the
port alone `lease`, `leader`, `members`, `partitions` and `state`.
"""
