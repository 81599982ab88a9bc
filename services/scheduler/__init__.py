"""Decides which pod runs on which node; never talks to the API server."""
