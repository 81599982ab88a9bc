"""Conditions for a Job to run: defaults and rules, for admission and for the controller.

Pure. Admission applies both before an object is stored; the controller applies both again, because
a webhook may be away (W10 to W26).
"""
