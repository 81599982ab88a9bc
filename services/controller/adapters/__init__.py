"""The controller's edges: facts in, API server writes out."""
