"""Task classes: pods that are equal in everything that placement reads share one object.

The pods of a gang differ in name and uid only, so that predicates and scores are computed once per
class, not once per pod. Owned by the cluster state; plugins see a class through `pumice.plugins`.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from pumice.plugins import POD_MAX, IntArray, PolicyState
from services.scheduler.engine.resources.dimensions import PODS_DIM, Dimensions
from services.scheduler.engine.tasks.affinity_terms import NO_AFFINITY_TERMS, AffinityTerms
from services.scheduler.engine.tasks.task import TaskClass
from shared.api.core import Container, Pod, PodSpec
from shared.model.quantity import milli
from shared.model.requests import pod_request, resize_is_infeasible, scoring_request

_ENCODER: Final = msgspec.msgpack.Encoder()
_ENOUGH: Final = 4096
_NO_LABELS: Final[Mapping[str, str]] = {}
_NO_TRAITS: Final[Mapping[str, str]] = {}
_NO_DEMANDS: Final[Mapping[PolicyState, Any]] = {}


class TaskClasses:
    """Interns task classes by content."""

    def __init__(self, dimensions: Dimensions, states: Sequence[PolicyState]) -> None:
        self._dimensions = dimensions
        self._states = states
        self._by_content: dict[tuple[bytes, AffinityTerms], TaskClass] = {}
        self._given = 0
        """Numbers in use so far; a number is never reused, even after its class is forgotten."""
        self._enough = _ENOUGH

    def _next(self) -> int:
        self._given += 1
        return self._given - 1

    def of(self, pod: Pod, affinity_terms: AffinityTerms = NO_AFFINITY_TERMS) -> TaskClass:
        """Return the class of a pod. Raises `BadQuantity` when it states an impossible amount."""
        demands = [state.demand(pod) for state in self._states]
        content = _ENCODER.encode((_content(pod), demands))
        found = self._by_content.get((content, affinity_terms))
        if found is None:
            found = _read(self._next(), pod, self._dimensions, content, affinity_terms)
            found.demands = {s: each for s, each in zip(self._states, demands, strict=True) if each}
            self._by_content[content, affinity_terms] = found
        return found

    def moved(self, task_class: TaskClass, affinity_terms: AffinityTerms) -> TaskClass:
        """Return the class that differs in its affinity terms only."""
        content = task_class.content
        found = self._by_content.get((content, affinity_terms))
        return found or self._variant(task_class, content, affinity_terms)

    def marked(self, task_class: TaskClass, traits: Mapping[str, str]) -> TaskClass:
        """Return the class that differs in its traits only."""
        content = (
            task_class.stem + _ENCODER.encode(sorted(traits.items())) if traits else task_class.stem
        )
        found = self._by_content.get((content, task_class.affinity_terms))
        if found is None:
            found = self._variant(task_class, content, task_class.affinity_terms)
            found.traits = traits
        return found

    def on_node(self, task_class: TaskClass, largest: IntArray) -> TaskClass:
        """Return the class by which a pod that is on a node counts in its job and queue.

        The author of a pod may name its node, and any amounts. It counts with what the largest node
        has at most, so that a queue is charged no more than one pod that a node can hold (ADR 14).
        """
        if task_class.counted_within is not largest:
            task_class.counted = self._bounded(self.as_requested(task_class), largest)
            task_class.counted_within = largest
        return task_class.counted

    def _bounded(self, requested: TaskClass, largest: IntArray) -> TaskClass:
        request = self._dimensions.fitted(requested.request)
        amounts = np.minimum(request, largest)
        amounts[PODS_DIM] = request[PODS_DIM]
        if np.array_equal(amounts, request) or not largest.any():  # no node is known yet
            return requested
        content = requested.content + amounts.tobytes()
        found = self._by_content.get((content, requested.affinity_terms))
        if found is None:
            found = self._variant(requested, content, requested.affinity_terms)
            found.unbounded = requested
            found.request = amounts
            found.weight = max(int(amounts.max()), *found.scoring_request)
        return found

    def as_requested(self, task_class: TaskClass) -> TaskClass:
        """Return the class with the amounts that its pods state."""
        requested = task_class.unbounded
        if requested is None:
            return task_class
        if requested.affinity_terms is task_class.affinity_terms:
            return requested
        return self.moved(requested, task_class.affinity_terms)

    def _variant(
        self, task_class: TaskClass, content: bytes, affinity_terms: AffinityTerms
    ) -> TaskClass:
        """Return a new class like another, known by this content and these terms."""
        made = copy.copy(task_class)
        made.id = self._next()
        made.content = content
        made.affinity_terms = affinity_terms
        made.counted, made.counted_within = made, None
        self._by_content[content, affinity_terms] = made
        return made

    @property
    def are_many(self) -> bool:
        """Whether there are so many that looking for those out of use pays."""
        return len(self._by_content) > self._enough

    def retain(self, used: Iterable[TaskClass]) -> None:
        """Forget the classes that nothing uses; pods like theirs get new ones."""
        numbers = {task_class.id for task_class in used}
        self._by_content = {k: s for k, s in self._by_content.items() if s.id in numbers}
        self._enough = max(_ENOUGH, 2 * len(self._by_content))

    def all(self) -> list[TaskClass]:
        """Return all classes in the order of their numbers."""
        return list(self._by_content.values())


def _read(
    number: int,
    pod: Pod,
    dimensions: Dimensions,
    content: bytes,
    affinity_terms: AffinityTerms,
) -> TaskClass:
    """Return a class with what placement needs of a pod. Raises `BadQuantity`."""
    spec = pod.spec
    resource = pod_request(pod)
    affinity = spec.affinity
    cpu, memory = scoring_request(pod)
    made = TaskClass()
    made.id = number
    made.request = dimensions.vector(resource, POD_MAX)
    made.beyond = dimensions.beyond(made.request, POD_MAX)
    made.dims = dimensions.present(resource)
    made.best_effort = resource.is_empty()
    made.scoring_request = (max(0, min(cpu, POD_MAX)), max(0, min(memory, POD_MAX)))
    made.weight = max(int(made.request.max()), *made.scoring_request)
    made.unbounded = None
    made.counted, made.counted_within = made, None
    made.node_selector = spec.node_selector or _NO_LABELS
    made.node_affinity = affinity.node_affinity if affinity else None
    made.tolerations = spec.tolerations
    made.demands = _NO_DEMANDS
    made.exclusive = exclusive_cpus(spec)
    made.claims = volume_claims(pod)
    made.device_claims = device_claims(pod)
    made.images = _images(spec)
    made.host_ports = _host_ports(spec)
    made.affinity_terms = affinity_terms
    made.content = made.stem = content
    made.traits = _NO_TRAITS
    return made


def _content(pod: Pod) -> tuple[Any, ...]:
    spec = pod.spec
    return (
        [(c.resources.requests, c.ports) for c in spec.containers],
        [(c.resources.requests, c.restart_policy) for c in spec.init_containers],
        _images(spec),
        volume_claims(pod),
        device_claims(pod),
        exclusive_cpus(spec),
        spec.overhead,
        spec.resources,
        sorted(spec.node_selector.items()),
        spec.affinity.node_affinity if spec.affinity else None,
        spec.tolerations,
        _resizing(pod),
    )


def _resizing(pod: Pod) -> Any:  # noqa: ANN401 - any encodable value serves as part of a key
    statuses = [
        (s.name, s.resources.requests, s.allocated_resources)
        for s in (*pod.status.container_statuses, *pod.status.init_container_statuses)
        if s.resources is not None
    ]
    return (statuses, resize_is_infeasible(pod)) if statuses else None


def _images(spec: PodSpec) -> tuple[str, ...]:
    containers = (*spec.init_containers, *spec.containers)
    return tuple(full_name(container.image) for container in containers)


def _host_ports(spec: PodSpec) -> tuple[tuple[str, str, int], ...]:
    return tuple(
        (port.host_ip or "0.0.0.0", port.protocol, port.host_port)  # noqa: S104 - the wildcard
        for container in spec.containers
        for port in container.ports
        if port.host_port
    )


def full_name(image: str) -> str:
    """Return an image's name as nodes report it: with a tag."""
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"


_CPU: Final = "cpu"
_MILLI: Final = 1000


def volume_claims(pod: Pod) -> tuple[str, ...]:
    """Return the keys of the PersistentVolumeClaims that a pod mounts."""
    meta, found = pod.metadata, []
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            found.append(f"{meta.namespace}/{volume.persistent_volume_claim.claim_name}")
        elif volume.ephemeral is not None:
            found.append(f"{meta.namespace}/{meta.name}-{volume.name}")
    return tuple(sorted(set(found)))


def device_claims(pod: Pod) -> tuple[str, ...]:
    """Return the keys of a pod's ResourceClaims in its order, in which they get their devices.

    One that a template is to become has no object.
    """
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
    return tuple(dict.fromkeys(found))


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
