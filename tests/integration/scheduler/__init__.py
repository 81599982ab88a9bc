"""Schedulers on a control plane of their own.

A package: its fixtures of scope "package" end with its last test, not with the session.
"""
