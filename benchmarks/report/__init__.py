"""The report of a benchmark of the whole stack: recorded, drawn, compared with a stored one."""
