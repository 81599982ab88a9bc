"""The pure part: what the API server shows against what the stream says, and what to publish."""
