"""Tries k8s/monitoring: its rules on histories, then its rules and panels on a real run."""
