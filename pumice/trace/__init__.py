"""One job's life as a tree of spans, for `pumice trace`.

`shared.trace` makes the tree, `text` writes it. Both are pure. `objects` reads from the API server
the times that no event has.
"""
