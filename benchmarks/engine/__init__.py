"""Benchmarks of the scheduling engine alone, without bus or API server."""
