"""CronJobs: jobs that are made by a schedule (X01 to X04). Pure; `sync` is where to begin."""
