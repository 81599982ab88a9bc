"""The cache's hands: watching the API server, publishing to STATE, standing by."""
