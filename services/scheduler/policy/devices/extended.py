"""Claims for extended resources that DeviceClasses offer, as kube-scheduler makes them (KEP-5004).

A pod may ask for devices of a class by an extended resource: the class's `extendedResourceName`, or
`deviceclass.resource.kubernetes.io/<class>`. On a node whose device plugins do not offer it, the
scheduler makes a ResourceClaim for the pod. Pure functions of pods and classes.
"""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

from shared.api.core import Pod
from shared.api.resource import EXACT_COUNT, DeviceClaim, DeviceClass, DeviceRequest
from shared.api.resource import ExactDeviceRequest as Exactly
from shared.model.quantity import milli

PREFIX: Final = "deviceclass.resource.kubernetes.io/"
"""Begins the resource by which any class can be asked for."""
_MILLI: Final = 1000
_BASE_MAX: Final = 58
"""Letters before the suffix of a generated name (`k8s.io/apiserver/pkg/storage/names`)."""
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
"""Of such a suffix."""
_SUFFIX: Final = 5


class ContainerDevices(NamedTuple):
    """The extended resources that a container asks for."""

    container: str
    position: int
    """Of the container, init containers first."""
    is_short_lived: bool
    """Whether it ends before the others start."""
    amounts: tuple[tuple[str, int, int], ...]
    """(resource, its position among the container's requests by name, amount)."""

    def of(self, resource: str) -> tuple[int, int]:
        """Return position and amount of a resource, (0, 0) if it is not asked for."""
        return next((each[1:] for each in self.amounts if each[0] == resource), (0, 0))


class RequestMapping(NamedTuple):
    """Which request of the claim serves a container's resource."""

    container: str
    resource: str
    request: str


class MadeClaim(NamedTuple):
    """The claim for a pod's extended resources on some nodes."""

    claim: DeviceClaim
    mappings: tuple[RequestMapping, ...]


def devices_of(pod: Pod) -> tuple[ContainerDevices, ...]:
    """Return the extended resources of a pod's containers. Raises `BadQuantity`."""
    found = []
    spec = pod.spec
    for index, each in enumerate((*spec.init_containers, *spec.containers)):
        requests = each.resources.requests
        names = sorted(requests)
        amounts = tuple(
            (name, names.index(name), milli(requests[name]) // _MILLI)
            for name in names
            if is_extended(name) and milli(requests[name]) > 0
        )
        is_init = index < len(spec.init_containers)
        short = is_init and each.restart_policy != "Always"
        if amounts:
            found.append(ContainerDevices(each.name, index, short, amounts))
    return tuple(found)


def is_extended(name: str) -> bool:
    """Tell whether devices may serve a resource."""
    own = "/" in name and "kubernetes.io/" not in name and not name.startswith("requests.")
    return own or name.startswith(PREFIX)


def classes_by_resource(classes: Iterable[DeviceClass]) -> dict[str, str]:
    """Return resource → class; of classes with the same resource the youngest counts."""
    found = {}
    by_name = sorted(classes, key=lambda each: each.metadata.name, reverse=True)
    for each in sorted(by_name, key=lambda each: each.metadata.creation_timestamp or ""):
        if each.spec.extended_resource_name:
            found[each.spec.extended_resource_name] = each.metadata.name
    return found | {f"{PREFIX}{each.metadata.name}": each.metadata.name for each in by_name}


def name_of_claim(pod: str, uid: str) -> str:
    """Return the name of the claim for a pod: like a generated one, and always the same."""
    digest = blake2b(uid.encode(), digest_size=_SUFFIX).digest()
    suffix = "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest)
    return f"{f'{pod}-extended-resources-'[:_BASE_MAX]}{suffix}"


def make_claim(containers: Sequence[ContainerDevices], classes: Mapping[str, str]) -> MadeClaim:
    """Return the claim for all resources of `classes` (resource → class) that containers ask for.

    Containers that end before others start use the devices of those, and share what they need
    beyond.
    """
    requests: dict[str, tuple[str, int]] = {}
    mappings: list[RequestMapping] = []
    for resource, name in sorted(classes.items()):
        own: list[tuple[int, str, int]] = []
        """(container's index, request, devices) of containers that stay."""
        for each in containers:
            at, amount = each.of(resource)
            if amount and not each.is_short_lived:
                request = f"container-{each.position}-request-{at}"
                own.append((each.position, request, amount))
                mappings.append(RequestMapping(each.container, resource, request))
        further: list[tuple[int, str]] = []
        """(devices, request) of those that end, beyond the devices that they reuse."""
        reused: list[RequestMapping] = []
        for each in containers:
            at, amount = each.of(resource)
            if not amount or not each.is_short_lived:
                continue
            for index, request, devices in own:
                if index >= each.position and amount > 0:
                    reused.append(RequestMapping(each.container, resource, request))
                    amount -= devices
            if amount > 0:
                request = f"container-{each.position}-request-{at}"
                further.append((amount, request))
                reused.append(RequestMapping(each.container, resource, request))
        if further:
            most = max(amount for amount, _ in further)
            chosen = next(request for amount, request in further if amount == most)
            shared = {request for _, request in further}
            reused = [
                mapping._replace(request=chosen) if mapping.request in shared else mapping
                for mapping in reused
            ]
            requests[chosen] = (name, most)
        requests |= {request: (name, devices) for _, request, devices in own}
        mappings += reused
    listed = tuple(
        DeviceRequest(
            name=request,
            exactly=Exactly(device_class_name=name, allocation_mode=EXACT_COUNT, count=count),
        )
        for request, (name, count) in sorted(requests.items())
    )
    return MadeClaim(DeviceClaim(requests=listed), tuple(mappings))
