"""Admission, called by an API server of its own.

A package: its fixtures of scope "package" end with its last test, not with the session.
"""
