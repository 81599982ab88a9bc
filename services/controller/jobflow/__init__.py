"""JobFlows: jobs that start when others of the flow have completed (F01 to F04)."""
