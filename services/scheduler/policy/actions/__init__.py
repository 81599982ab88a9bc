"""One module per action."""
