"""Values of scheduling: quantities, resources, tasks, jobs, nodes, queues."""
