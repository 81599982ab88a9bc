"""Finished jobs, which are deleted when their time is up."""
