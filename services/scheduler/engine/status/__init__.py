"""Desired statuses of PodGroups, pods and queues at the end of a cycle."""
