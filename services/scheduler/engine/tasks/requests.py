"""Requests of a pod beside amounts: GPU cards, exclusive CPUs, volume claims, device claims.

Read once, when its task class is made. The stores of volumes and devices (`nodes.volumes`,
`engine.devices`) hold what nodes offer and which tasks use it; this module reads pods only.
"""

from typing import Final, NamedTuple

from shared.api.core import Container, Pod, PodSpec
from shared.model.quantity import milli

GPU_INDEX: Final = "volcano.sh/gpu-index"
GPU_MEMORY: Final = "volcano.sh/gpu-memory"
GPU_NUMBER: Final = "volcano.sh/gpu-number"
_CPU: Final = "cpu"
_MILLI: Final = 1000
_MOST_DIGITS: Final = 9


class GpuRequest(NamedTuple):
    """GPU cards that a pod asks for; `memory` of one card goes before whole cards."""

    memory: int = 0
    number: int = 0


def card_ids(text: str) -> tuple[int, ...]:
    """Return the numbers in `0,3`; none when one of them cannot be read."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    readable = all(part.isdecimal() and len(part) <= _MOST_DIGITS for part in parts)
    return tuple(int(part) for part in parts) if readable else ()


def claims_of(spec: PodSpec, namespace: str, pod: str) -> tuple[str, ...]:
    """Return the keys of the claims that a pod mounts."""
    found = []
    for volume in spec.volumes:
        if volume.persistent_volume_claim is not None:
            found.append(f"{namespace}/{volume.persistent_volume_claim.claim_name}")
        elif volume.ephemeral is not None:
            found.append(f"{namespace}/{pod}-{volume.name}")
    return tuple(sorted(set(found)))


def device_claims(pod: Pod) -> tuple[str, ...]:
    """Return the keys of a pod's claims; one that a template is to become has no object's key."""
    made = {
        status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses
    }
    meta = pod.metadata
    found = []
    for claim in pod.spec.resource_claims:
        name = claim.resource_claim_name
        if name is None and claim.name in made:
            name = made[claim.name]
            if name is None:
                continue  # the template asks for nothing
        found.append(f"{meta.namespace}/{name or f'{meta.name}/{claim.name}'}")
    return tuple(sorted(set(found)))


def exclusive_cpus(spec: PodSpec) -> tuple[int, ...]:
    """Return how many CPUs each container gets to itself; none unless the pod is Guaranteed.

    A container with a part of a CPU shares (0).
    """
    containers = (*spec.containers, *spec.init_containers)
    if not containers or not all(_is_guaranteed(container) for container in containers):
        return ()
    amounts = [milli(container.resources.limits[_CPU]) for container in spec.containers]
    return tuple(0 if amount % _MILLI else amount // _MILLI for amount in amounts)


def _is_guaranteed(container: Container) -> bool:
    limits, requests = container.resources.limits, container.resources.requests
    return all(
        name in limits and _is_same(requests.get(name, limits[name]), limits[name])
        for name in (_CPU, "memory")
    )


def _is_same(one: str | float, other: str | float) -> bool:
    return one == other or milli(one) == milli(other)
