"""One scheduling cycle: the session, its journal of changes, evictions and failures."""
