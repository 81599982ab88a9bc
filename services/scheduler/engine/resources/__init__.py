"""Amounts of resources as integer arrays."""
