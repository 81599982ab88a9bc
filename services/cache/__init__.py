"""The only watcher of the API server: publishes facts to the STATE stream."""
