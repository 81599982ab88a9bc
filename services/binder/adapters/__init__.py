"""The binder's edges: commands in, API server writes and outcomes out."""
