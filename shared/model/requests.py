"""Requests of a pod (T04): containers, init containers, sidecars, overhead, pod level, resize.

Pure functions of a pod view. `scoring_request` is the second figure that Kubernetes' scorers use:
containers that ask for no CPU or memory count with a small default there, so that best-effort pods
spread too.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from shared.api.core import Container, ContainerStatus, Pod
from shared.model.resources import CPU, MEMORY, PODS, Resource, parse_list

DEFAULT_CPU_MILLI: Final = 100
DEFAULT_MEMORY_BYTES: Final = 200 * 1024 * 1024
"""Amounts that scorers assume for a container that names no request."""

Listed = Mapping[str, str | int | float]
_NOTHING: Final = Resource()
_ONE_POD: Final = Resource(scalars={PODS: 1})


def pod_request(pod: Pod) -> Resource:
    """Return what the pod occupies on a node, including `pods: 1`.

    max(Σ containers + sidecars, the fullest moment of initialisation) + overhead; requests at pod
    level stand for those of the containers.
    """
    result = _aggregate(pod, lambda container, status: _requests(pod, container, status))
    return _with_pod_features(pod, result.plus(_ONE_POD))


def pod_request_without_init(pod: Pod) -> Resource:
    """Return the request of the regular containers only."""
    statuses = _by_name(pod.status.container_statuses)
    total = _NOTHING
    for container in pod.spec.containers:
        total = total.plus(_requests(pod, container, statuses.get(container.name)))
    return _with_pod_features(pod, total)


def scoring_request(pod: Pod) -> tuple[int, int]:
    """Return (milli-CPU, bytes) for scorers: with defaults for containers without a request."""

    def padded(container: Container, status: ContainerStatus | None) -> Resource:
        requested = _requests(pod, container, status)
        return Resource(
            cpu_milli=requested.cpu_milli
            if CPU in container.resources.requests
            else DEFAULT_CPU_MILLI,
            memory_bytes=requested.memory_bytes
            if MEMORY in container.resources.requests
            else DEFAULT_MEMORY_BYTES,
        )

    result = _with_pod_features(pod, _aggregate(pod, padded))
    return int(result.cpu_milli), int(result.memory_bytes)


def pod_limit(pod: Pod) -> Resource:
    """Return what the pod may use at most; overhead counts only where there is a limit."""
    result = _aggregate(pod, lambda container, _: parse_list(container.resources.limits))
    if pod.spec.resources is not None and pod.spec.resources.limits:
        result = _replaced(result, pod.spec.resources.limits)
    overhead = parse_list(pod.spec.overhead)
    scalars = {
        name: amount + overhead.get(name) if amount else amount
        for name, amount in (result.scalars or {}).items()
    }
    return Resource(
        cpu_milli=result.cpu_milli + (overhead.cpu_milli if result.cpu_milli else 0),
        memory_bytes=result.memory_bytes + (overhead.memory_bytes if result.memory_bytes else 0),
        scalars=scalars,
    )


def _aggregate(
    pod: Pod, amount_of: Callable[[Container, ContainerStatus | None], Resource]
) -> Resource:
    statuses = _by_name(pod.status.container_statuses)
    running = _NOTHING
    for container in pod.spec.containers:
        running = running.plus(amount_of(container, statuses.get(container.name)))
    if not pod.spec.init_containers:
        return running
    init_statuses = _by_name(pod.status.init_container_statuses)
    sidecars = peak = _NOTHING
    for container in pod.spec.init_containers:
        requested = amount_of(container, init_statuses.get(container.name))
        if container.restart_policy == "Always":
            running = running.plus(requested)
            sidecars = sidecars.plus(requested)
            peak = peak.at_least(sidecars)
        else:
            peak = peak.at_least(sidecars.plus(requested))
    return running.at_least(peak)


def _requests(pod: Pod, container: Container, status: ContainerStatus | None) -> Resource:
    requested = parse_list(container.resources.requests)
    if status is None or status.resources is None:
        return requested
    # A resize under way: what is reserved and what is requested both count, the larger wins.
    actual = parse_list(status.resources.requests).at_least(parse_list(status.allocated_resources))
    return actual if resize_is_infeasible(pod) else requested.at_least(actual)


def resize_is_infeasible(pod: Pod) -> bool:
    """Tell whether the node refused the resize that the spec asks for."""
    if pod.status.resize == "Infeasible":
        return True
    return any(
        condition.type == "PodResizePending"
        and condition.status == "True"
        and condition.reason == "Infeasible"
        for condition in pod.status.conditions
    )


def _with_pod_features(pod: Pod, result: Resource) -> Resource:
    if pod.spec.resources is not None and pod.spec.resources.requests:
        result = _replaced(result, pod.spec.resources.requests)
    return result.plus(parse_list(pod.spec.overhead)) if pod.spec.overhead else result


def _replaced(result: Resource, at_pod_level: Listed) -> Resource:
    stated = parse_list(at_pod_level)
    scalars = dict(result.scalars or {})
    scalars.update(
        (name, stated.get(name)) for name in at_pod_level if name.startswith("hugepages-")
    )
    return Resource(
        cpu_milli=stated.cpu_milli if CPU in at_pod_level else result.cpu_milli,
        memory_bytes=stated.memory_bytes if MEMORY in at_pod_level else result.memory_bytes,
        scalars=scalars,
        max_tasks=result.max_tasks,
    )


def _by_name(statuses: Iterable[ContainerStatus]) -> dict[str, ContainerStatus]:
    return {status.name: status for status in statuses}
