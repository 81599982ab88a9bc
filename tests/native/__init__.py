"""Tests on the API server of the Kubernetes after the one of the parts."""
