"""Pods that ask for no GPU go to nodes without one; with `strict: true`, nowhere else."""

from pumice.plugins import Arguments, Cluster, CodeArray, FloatArray, Hooks, Reason
from pumice.plugins import NodeRows as Rows
from pumice.plugins import TaskClass as Shape

GPU = "nvidia.com/gpu"


class KeepGpusFree:
    name = "keep-gpus-free"

    def __init__(self, arguments: Arguments) -> None:
        self.strict = bool(arguments.get("strict", False))

    def contribute(self, hooks: Hooks, cluster: Cluster) -> None:
        if GPU not in cluster.resources:
            return
        gpu = cluster.resources.index(GPU)

        def wasted(shape: Shape, rows: Rows) -> CodeArray:
            return ((shape.request[gpu] == 0) & (rows.allocatable(gpu) > 0)).astype("uint8")

        def score(shape: Shape, rows: Rows) -> FloatArray:
            return -100.0 * wasted(shape, rows)

        hooks.node_score(score)
        if self.strict:
            hooks.predicate(wasted, reasons=[Reason("node(s) are kept for pods with GPUs")])
