"""The only writer of bindings, evictions and scheduling statuses."""
