"""Accounting: records in a database who used what, for how long, and how long jobs waited."""
