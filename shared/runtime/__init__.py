"""What every service needs to run: settings, supervision, logs, health, time and faults.

Used by the shells (`app.py`, adapters, `shared.bus`, `shared.kube`); pure code never imports it.
"""
