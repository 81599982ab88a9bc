"""CEL expressions about devices, evaluated by Google's CEL library in a process with hard limits.

`services.scheduler.adapters.expressions` starts the process and talks to it (ADR 42).
"""
