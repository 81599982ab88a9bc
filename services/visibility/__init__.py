"""Visibility: explanations, expected starts and what-ifs under the cluster's access rules."""
