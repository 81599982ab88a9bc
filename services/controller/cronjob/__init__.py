"""CronJobs: jobs that are made by a schedule (X01 to X04). `sync` is where to begin."""
