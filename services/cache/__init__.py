"""The cache: the only process that watches Kubernetes; it publishes what it sees on STATE.

`kinds` is the table of what is watched; `fold` compares what was observed with what was published
(pure); `adapters` watch, publish and mark; `app` wires one process. Run by
`python -m services.cache`.
"""
