"""Devices of nodes and the pods that use them: GPUs, virtual GPUs, CPUs of NUMA nodes, claims."""
