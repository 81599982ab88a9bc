"""What no service can use, on an API server of its own.

A package: its fixtures of scope "package" end with its last test, not with the session.
"""
