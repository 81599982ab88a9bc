"""Brings Jobs, PodGroups and Queues to their desired state."""
