"""The cache: the only process that watches Kubernetes; it says on STATE what it sees.

`kinds` is the table of what is watched; `fold` compares what is with what was said (pure);
`adapters` watch, publish and mark; `app` wires one process. Run by `python -m services.cache`.
"""
