"""Task classes: pods that are equal in everything that placement reads share one object.

The pods of a gang differ in name and uid only, so that predicates and scores are computed once per
class, not once per pod. Owned by the replica; plugins see a class through `pumice.plugins`.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from pumice.plugins import IntArray
from services.scheduler.engine.dimensions import Dimensions
from shared.api.core import Pod, PodSpec
from shared.api.selectors import NodeAffinity, Toleration
from shared.model.requests import pod_request, resize_is_infeasible, scoring_request

_ENCODER: Final = msgspec.msgpack.Encoder()
NOT_HONOURED: Final = (
    "required pod affinity",
    "required pod anti-affinity",
    "hard topology spread",
)
"""Hard constraints that this version does not implement.

A pod with one of them is not placed, with this text as the reason: placing it against its owner's
word would be worse.
"""
_NO_LABELS: Final[Mapping[str, str]] = {}


class TaskClass:
    """What one kind of task asks for; `pumice.plugins.TaskClass` says what the fields mean."""

    __slots__ = (
        "best_effort",
        "dims",
        "host_ports",
        "id",
        "node_affinity",
        "node_selector",
        "not_honoured",
        "request",
        "scoring_request",
        "tolerations",
    )

    def __init__(self, number: int, pod: Pod, dimensions: Dimensions) -> None:
        """Read what placement needs of a pod. Raises `BadQuantity`."""
        spec = pod.spec
        resource = pod_request(pod)
        affinity = spec.affinity
        self.id: int = number
        self.request: IntArray = dimensions.vector(resource)
        self.dims: tuple[int, ...] = dimensions.present(resource)
        self.best_effort: bool = resource.is_empty()
        self.scoring_request: tuple[int, int] = scoring_request(pod)
        self.node_selector: Mapping[str, str] = spec.node_selector or _NO_LABELS
        self.node_affinity: NodeAffinity | None = affinity.node_affinity if affinity else None
        self.tolerations: tuple[Toleration, ...] = spec.tolerations
        self.host_ports: tuple[tuple[str, str, int], ...] = _host_ports(spec)
        self.not_honoured: tuple[str, ...] = _not_honoured(spec)


class Shapes:
    """Interns task classes by content."""

    def __init__(self, dimensions: Dimensions) -> None:
        self._dimensions = dimensions
        self._by_content: dict[bytes, TaskClass] = {}

    def of(self, pod: Pod) -> TaskClass:
        """Return the class of a pod. Raises `BadQuantity` when it states an impossible amount."""
        content = _ENCODER.encode(_content(pod))
        found = self._by_content.get(content)
        if found is None:
            found = TaskClass(len(self._by_content), pod, self._dimensions)
            self._by_content[content] = found
        return found

    def all(self) -> list[TaskClass]:
        """Return all classes in the order of their numbers."""
        return list(self._by_content.values())


def _content(pod: Pod) -> tuple[Any, ...]:
    spec = pod.spec
    return (
        [(c.resources.requests, c.ports) for c in spec.containers],
        [(c.resources.requests, c.restart_policy) for c in spec.init_containers],
        spec.overhead,
        spec.resources,
        sorted(spec.node_selector.items()),
        spec.affinity,
        spec.tolerations,
        spec.topology_spread_constraints,
        _resizing(pod),
    )


def _resizing(pod: Pod) -> Any:  # noqa: ANN401 - any encodable value serves as part of a key
    statuses = [
        (s.name, s.resources.requests, s.allocated_resources)
        for s in (*pod.status.container_statuses, *pod.status.init_container_statuses)
        if s.resources is not None
    ]
    return (statuses, resize_is_infeasible(pod)) if statuses else None


def _host_ports(spec: PodSpec) -> tuple[tuple[str, str, int], ...]:
    return tuple(
        (port.host_ip or "0.0.0.0", port.protocol, port.host_port)  # noqa: S104 - the wildcard
        for container in spec.containers
        for port in container.ports
        if port.host_port
    )


def _not_honoured(spec: PodSpec) -> tuple[str, ...]:
    """Return which of `NOT_HONOURED` a pod states."""
    affinity = spec.affinity
    beside = affinity.pod_affinity if affinity else None
    apart = affinity.pod_anti_affinity if affinity else None
    stated = (
        beside is not None and beside.required_during_scheduling_ignored_during_execution,
        apart is not None and apart.required_during_scheduling_ignored_during_execution,
        any(c.when_unsatisfiable == "DoNotSchedule" for c in spec.topology_spread_constraints),
    )
    return tuple(text for text, is_stated in zip(NOT_HONOURED, stated, strict=True) if is_stated)
