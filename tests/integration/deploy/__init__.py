"""The roles of k8s/base, on an API server of its own with an audit log.

A package: its fixtures of scope "package" end with its last test, not with the session.
"""
