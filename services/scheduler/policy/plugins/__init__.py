"""One module per plugin."""
