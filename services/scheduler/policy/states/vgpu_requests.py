"""Requests of containers for virtual GPUs (DV2), and the annotations that go with them."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from services.scheduler.engine.resources.amounts import POD_MOST
from shared.api.core import PodSpec
from shared.model.quantity import BadQuantity, units

NUMBER: Final = "volcano.sh/vgpu-number"
MEMORY: Final = "volcano.sh/vgpu-memory"
PERCENT: Final = "volcano.sh/vgpu-memory-percentage"
CORES: Final = "volcano.sh/vgpu-cores"
IDS: Final = "volcano.sh/vgpu-ids-new"
SPREAD_POLICY: Final = "volcano.sh/vgpu-podgroup-policy"
MODE: Final = "volcano.sh/vgpu-mode"
USE_UUID: Final = "volcano.sh/vgpu-use-gpuuuid"
NO_UUID: Final = "volcano.sh/vgpu-nouse-gpuuuid"
USE_TYPE: Final = "nvidia.com/use-gputype"
NO_TYPE: Final = "nvidia.com/nouse-gputype"
WISHES: Final = (MODE, USE_UUID, NO_UUID, USE_TYPE, NO_TYPE, SPREAD_POLICY)
"""Annotations of pods that tell which cards they want."""
_WHOLE: Final = 100


class VGpuRequest(NamedTuple):
    """The request of one container."""

    number: int
    memory: int
    """0: by `percent`."""
    percent: int
    cores: int


def requests_of(spec: PodSpec) -> tuple[VGpuRequest, ...]:
    """Return what the containers ask for. Raises `BadQuantity`."""
    found = []
    for container in spec.containers:
        stated = {**container.resources.requests, **container.resources.limits}
        if NUMBER in stated or MEMORY in stated:
            memory = _amount(stated, MEMORY, 0)
            percent = _amount(stated, PERCENT, 0)
            found.append(
                VGpuRequest(
                    number=_amount(stated, NUMBER, 1),
                    memory=memory,
                    percent=percent or _WHOLE,
                    cores=_amount(stated, CORES, 0),
                )
            )
    return tuple(found)


def _amount(stated: Mapping[str, Any], key: str, default: int) -> int:
    if key not in stated:
        return default
    amount = units(stated[key])
    if amount < 0:
        raise BadQuantity(f"{key}: {stated[key]} is below 0")
    return min(amount, POD_MOST)
