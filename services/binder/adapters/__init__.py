"""The binder's seams: the API server on one side, the bus on the other."""
