"""Requests of a pod beside amounts that plugins see: exclusive CPUs, volume claims, device claims.

What nodes offer of them and which tasks use it is for states of policy to know (`policy_state`).
"""

from typing import Final

from shared.api.core import Container, Pod, PodSpec
from shared.model.quantity import milli

_CPU: Final = "cpu"
_MILLI: Final = 1000


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
