"""Choosing nodes: extension points, candidates per task class, and the choice among them."""
