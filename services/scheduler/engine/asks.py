"""What a pod's own object asks for beside amounts: cards, volumes, devices.

Read once when its class is made. What nodes and other pods make of it is kept elsewhere (`gpus`,
`volumes`, `devices`), which know tasks; this module knows pods only.
"""

from typing import Final, NamedTuple

from shared.api.core import Pod, PodSpec

GPU_MEMORY: Final = "volcano.sh/gpu-memory"
GPU_NUMBER: Final = "volcano.sh/gpu-number"


class GpuRequest(NamedTuple):
    """What a pod asks of cards; `memory` of one card goes before whole cards."""

    memory: int = 0
    number: int = 0


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
