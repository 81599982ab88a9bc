"""Test and demo equipment: an API server and a NATS server in memory.

Both speak the real protocols. Contract suites run against them and the real servers
(`tests/contract/apiserver`, `tests/contract/bus`). No service imports this package.
"""
