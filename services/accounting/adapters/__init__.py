"""Accounting's I/O: the database, the bus and HTTP."""
