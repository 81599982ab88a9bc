"""The frame of a service: settings, supervision, logs, health, time and faults.

Used by the shells (`app.py`, adapters, `shared.bus`, `shared.kube`); pure code never imports it.
"""
