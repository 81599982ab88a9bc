"""Jobs (PodGroups), queues, and sums over them."""
