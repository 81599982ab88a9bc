"""deviceshare (PL18): pods share GPU cards by memory, or take whole cards (DV1).

Virtual GPUs (DV2) and NPUs (DV3) are not implemented; a configuration that asks for them is
refused rather than half obeyed.
"""

from collections.abc import Mapping

import numpy as np

from pumice.plugins import Arguments, CodeArray, Hooks, Reason
from services.scheduler.engine.gpus import annotations_of
from services.scheduler.engine.records import Task
from services.scheduler.engine.rows import Rows
from services.scheduler.engine.session import Session
from services.scheduler.engine.shapes import TaskClass
from services.scheduler.policy.arguments import BadArgument, boolean

_REASONS = (
    Reason("GpuShare no enough gpu memory on node"),
    Reason("GpuNumber no enough gpu number on node"),
)
_NO_MEMORY, _NO_CARDS = 1, 2


class DeviceShare:
    """Cards fit one by one, beyond the sum that the node advertises."""

    name = "deviceshare"

    def __init__(self, arguments: Arguments) -> None:
        """Take which of the two ways is on; both at once are refused, as upstream refuses them."""
        self._sharing = boolean(arguments, "deviceshare.GPUSharingEnable", default=False)
        self._number = boolean(arguments, "deviceshare.GPUNumberEnable", default=False)
        if self._sharing and self._number:
            raise BadArgument(
                "deviceshare: GPUSharingEnable and GPUNumberEnable exclude each other"
            )
        if (
            boolean(arguments, "deviceshare.VGPUEnable", default=False)
            or boolean(arguments, "deviceshare.AscendMindClusterVNPUEnable", default=False)
            or boolean(arguments, "deviceshare.AscendHAMiVNPUEnable", default=False)
        ):
            raise BadArgument("deviceshare: vGPUs and NPUs are not implemented")

    def contribute(self, hooks: Hooks, cluster: Session) -> None:
        """Add the predicate, and what the binding tells the device plugin."""
        if not self._sharing and not self._number:
            return
        nodes = cluster.replica.nodes

        def judge(shape: TaskClass, rows: Rows) -> CodeArray:
            asked = shape.gpus
            if not (asked.memory if self._sharing else asked.number):
                return np.zeros(len(rows), dtype=np.uint8)
            room = nodes.gpus.room(asked, rows.index, nodes.attributes.names)
            full = (room >= 0) & (room <= rows.extra)
            return full.astype(np.uint8) * (_NO_MEMORY if self._sharing else _NO_CARDS)

        def annotations(task: Task) -> Mapping[str, str]:
            cards = nodes.gpus.settle_on(task) if any(task.shape.gpus) else ()
            return annotations_of(cards, cluster.now) if cards else {}

        hooks.predicate(judge, reasons=_REASONS)
        hooks.binding(annotations)
