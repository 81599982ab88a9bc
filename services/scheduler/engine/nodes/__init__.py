"""Nodes: ledger of amounts, labels, taints, volumes, HyperNodes, pods by topology domain."""
