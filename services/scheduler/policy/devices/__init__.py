"""Devices by claim: which devices of which nodes a claim may get, as pure functions of objects."""
