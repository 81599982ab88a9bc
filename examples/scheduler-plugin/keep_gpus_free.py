"""Pods that ask for no GPU go to nodes without one; with `strict: true`, nowhere else."""

import numpy as np

from pumice.plugins import Arguments, Cluster, CodeArray, FloatArray, Hooks, Reason
from pumice.plugins import NodeRows as Rows
from pumice.plugins import TaskClass as Shape


class KeepGpusFree:
    name = "keep-gpus-free"

    def __init__(self, arguments: Arguments) -> None:
        self.strict = bool(arguments.get("strict", False))

    def contribute(self, hooks: Hooks, cluster: Cluster) -> None:
        names = list(cluster.resources)
        if "nvidia.com/gpu" in names:
            gpu = names.index("nvidia.com/gpu")

            def wasted(shape: Shape, rows: Rows) -> CodeArray:
                return np.uint8(shape.request[gpu] == 0) * (rows.allocatable(gpu) > 0)

            def score(shape: Shape, rows: Rows) -> FloatArray:
                return np.where(wasted(shape, rows), np.float64(-100), np.float64(0))

            hooks.node_score(score)
            if self.strict:
                hooks.predicate(wasted, reasons=[Reason("node(s) are kept for pods with GPUs")])
