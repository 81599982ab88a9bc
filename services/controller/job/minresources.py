"""Computes PodGroup.spec.minResources: what a gang needs to enter its queue (J28).

Counted the way quotas count a pod: `cpu`, `requests.cpu`, `limits.cpu`, `pods`, `count/pods`. A
queue's capability can name any of these, so the scheduler is given all of them. Sums are exact
integers.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from shared.api.base import ResourceList
from shared.api.batch import JobSpec, TaskSpec
from shared.api.core import PodSpec
from shared.model import quantity

_BINARY: Final = ("memory", "ephemeral-storage", "hugepages-")

Milli = dict[str, int]
"""Resource name → thousandths."""


def least_started(spec: JobSpec) -> int:
    """Return the minimum of running or ended pods in a Running job: minAvailable, but at least 1.

    Volcano takes a minAvailable of 0 as it is: such a job is Running while all its pods wait, and
    its PodGroup is Completed (volcano#5401).
    """
    return max(spec.min_available, min(1, sum(task.replicas for task in spec.tasks)))


def min_resources(
    spec: JobSpec,
    usage: Mapping[str, Milli],
    priorities: Mapping[str, int],
    of_task: Mapping[str, str],
) -> dict[str, str]:
    """Return minResources of a job.

    `usage` holds one pod's usage per task (`pod_usage`), `of_task` the priority class of each
    task's pods, `priorities` the value of each class. Tasks of higher priority come first; equal
    ones keep their order.
    """
    ranked = sorted(spec.tasks, key=lambda t: -priorities.get(of_task.get(t.name, ""), 0))
    total: Milli = {}
    for task, pods in _shares(ranked, spec.min_available):
        for name, amount in usage[task.name].items():
            total[name] = total.get(name, 0) + amount * pods
    return as_texts(total)


def _shares(ranked: Iterable[TaskSpec], min_available: int) -> list[tuple[TaskSpec, int]]:
    """How many pods of each task are needed, highest priority first."""
    tasks = [
        (task, task.replicas if task.min_available is None else task.min_available)
        for task in ranked
    ]
    minima = sum(least for _, least in tasks)
    shares = []
    if min_available < minima:
        left = min_available
        for task, _ in tasks:
            taken = min(task.replicas, left)
            shares.append((task, taken))
            left -= taken
        return shares
    left = min_available - minima
    for task, least in tasks:
        more = min(max(task.replicas - least, 0), left)
        shares.append((task, least + more))
        left -= more
    return shares


def as_texts(amounts: Milli) -> dict[str, str]:
    """Return amounts as Kubernetes quantities, without zero amounts."""
    return {name: _text(name, amount) for name, amount in sorted(amounts.items()) if amount}


def pod_usage(spec: PodSpec) -> Milli:
    """Return the usage of one pod as quotas count it; BadQuantity names an unreadable amount."""
    usage: Milli = {"pods": 1000, "count/pods": 1000}
    for name, amount in _total(spec, limits=False).items():
        usage[name] = usage[f"requests.{name}"] = amount
    for name, amount in _total(spec, limits=True).items():
        if (
            "/" not in name
        ):  # A quota knows no limit of an extended resource: it equals the request.
            usage[f"limits.{name}"] = amount
    return usage


def _total(spec: PodSpec, *, limits: bool) -> Milli:
    """Return the overhead plus the larger of two: what runs together, or the init phase's peak."""
    running: Milli = {}
    for container in spec.containers:
        _add(running, _of(container.resources.limits if limits else container.resources.requests))
    sidecars: Milli = {}
    peak: Milli = {}
    for container in spec.init_containers:
        amounts = _of(container.resources.limits if limits else container.resources.requests)
        if container.restart_policy == "Always":
            _add(sidecars, amounts)
            _add(running, amounts)
            amounts = {}
        _raise_to(peak, {**sidecars, **{n: a + sidecars.get(n, 0) for n, a in amounts.items()}})
    _raise_to(running, peak)
    if spec.resources is not None:
        running.update(_of(spec.resources.limits if limits else spec.resources.requests))
    if running:
        _add(running, _of(spec.overhead))
    return running


def _of(listed: ResourceList) -> Milli:
    return {name: quantity.milli(amount) for name, amount in listed.items()}


def _add(total: Milli, more: Milli) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise_to(total: Milli, least: Milli) -> None:
    for name, amount in least.items():
        total[name] = max(total.get(name, 0), amount)


def _text(name: str, milli: int) -> str:
    """Write an amount as Kubernetes prints one of its kind."""
    whole, rest = divmod(milli, 1000)
    base = name.removeprefix("requests.").removeprefix("limits.")
    if rest == 0 and base.startswith(_BINARY):
        return quantity.format_bytes(whole)
    return quantity.format_milli(milli)
