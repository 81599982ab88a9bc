"""NodeShards: which nodes each of several schedulers is to have (S01 to S03)."""
