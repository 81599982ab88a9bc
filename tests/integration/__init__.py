"""Tests on a real API server; a package below this one has a control plane of its own."""
