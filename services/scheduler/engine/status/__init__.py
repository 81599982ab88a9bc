"""What PodGroups, pods and queues should show after a cycle."""
