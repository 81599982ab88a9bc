"""Scheduling's vocabulary without its machinery: quantities, resources, requests of pods, statuses.

Owned by the engine, read by every service that has to count resources as scheduling does.
"""
