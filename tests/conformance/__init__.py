"""Recorded cases: cluster state in, decision out.

`python -m tests.conformance PATH…` runs the cases of files and directories; `cases/` holds our
own, in the same form. Cases enter as facts through the production fold and leave as the production
plan.
"""
