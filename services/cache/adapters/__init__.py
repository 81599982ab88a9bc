"""The cache's edges: API server in, bus out."""
