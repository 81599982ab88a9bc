"""The cache's I/O: watching the API server, publishing to STATE, standing by."""
