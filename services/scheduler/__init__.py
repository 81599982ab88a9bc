"""Chooses who runs where; never talks to the API server."""
