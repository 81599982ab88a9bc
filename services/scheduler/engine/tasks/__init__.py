"""Tasks (pods): records, classes of equal tasks, and what a pod asks for."""
