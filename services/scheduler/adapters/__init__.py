"""The scheduler's edges: facts in, plans out."""
