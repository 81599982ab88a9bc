"""Rows of the tables `allocations` and `jobs`, what objects say for them, and daily sums."""

import enum
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from shared.api import time as times
from shared.api.core import Pod
from shared.api.kinds import JOB, NATIVEPODGROUP, PODGROUP
from shared.api.native_groups import NativePodGroup
from shared.api.scheduling import PodGroup, uid_of_job
from shared.contracts.messages import Fact
from shared.jobs.native_groups import as_podgroup
from shared.model.quantity import is_quantity, milli
from shared.model.resources import CPU, MEMORY, PODS, Resource, is_counted

DAY_S: Final = 86_400
GROUPS: Final = (PODGROUP.token, NATIVEPODGROUP.token)
"""Kinds of the gangs of pods."""

_groups: Final = msgspec.json.Decoder(PodGroup)
_native_groups: Final = msgspec.json.Decoder(NativePodGroup)


class EndReason(enum.StrEnum):
    """Why an allocation ended."""

    COMPLETED = "Completed"
    FAILED = "Failed"
    EVICTED = "Evicted"
    DELETED = "Deleted"
    UNOBSERVED = "Unobserved"
    """The pod ended while nothing was recorded; its row ends when it was last observed."""


class AllocationEnd(msgspec.Struct, frozen=True):
    """When and why an allocation ended, in Unix seconds."""

    at_s: float
    reason: EndReason


class Allocation(msgspec.Struct, frozen=True, kw_only=True):
    """Resources of a node that one pod uses from its bind to its end; times are Unix seconds."""

    pod_uid: str
    pod: str
    namespace: str
    job: str = ""
    job_uid: str = ""
    queue: str = ""
    user: str = ""
    node: str = ""
    cpu_milli: int = 0
    memory_bytes: int = 0
    scalars: dict[str, int] = {}
    started: float
    ended: float | None = None
    reason: str = ""
    approximate: bool = False

    def amounts(self) -> Iterator[tuple[str, int]]:
        """Yield the amount of each resource, `pods` as 1,000."""
        yield PODS, 1000
        yield from amounts_of(self.cpu_milli, self.memory_bytes, self.scalars)

    def end(self, end: AllocationEnd) -> "Allocation":
        """Return the allocation with its end; a reason that it has stays."""
        ended_s = max(self.started, end.at_s)
        return replace(self, ended=ended_s, reason=self.reason or end.reason)


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """One Job, or PodGroup without a Job; times are Unix seconds."""

    uid: str
    namespace: str
    name: str
    kind: str
    queue: str = ""
    user: str = ""
    submitted: float
    admitted: float | None = None
    started: float | None = None
    ended: float | None = None
    phase: str = ""
    reason: str = ""
    restarts: int = 0
    min_member: int = 0
    requested: dict[str, int] = {}
    waits: dict[str, float] = {}
    gate: str = ""
    gate_since: float | None = None


UsageKey = tuple[int, str, str, str, str]
"""Day since 1970-01-01 (UTC), queue, namespace, user, resource."""


def scalars_of(resource: Resource) -> dict[str, int]:
    """Return the amounts other than CPU, memory and pods."""
    found = resource.scalars or {}
    return {name: int(amount) for name, amount in found.items() if name != PODS and amount}


def amounts_of(
    cpu_milli: int, memory_bytes: int, scalars: Mapping[str, int]
) -> Iterator[tuple[str, int]]:
    """Yield the amount of each resource of a row but `pods`; none that is 0."""
    for name, amount in {CPU: cpu_milli, MEMORY: memory_bytes, **scalars}.items():
        if amount:
            yield name, amount


def in_units(resource: str, amount: float) -> float:
    """Return an amount of a row in the units of reports: memory in bytes, all else in units."""
    return amount if resource == MEMORY else amount / 1000.0


def usage_of(allocation: Allocation | None) -> Iterator[tuple[UsageKey, float]]:
    """Yield amount times seconds per day and resource; nothing of an allocation without an end."""
    if allocation is None or allocation.ended is None:
        return
    for day, seconds in days_of(allocation.started, allocation.ended):
        for resource, amount in allocation.amounts():
            key = (day, allocation.queue, allocation.namespace, allocation.user, resource)
            yield key, amount * seconds


def days_of(begin_s: float, end_s: float) -> Iterator[tuple[int, float]]:
    """Yield each day of a span with the seconds of the span in it."""
    for day in range(int(begin_s // DAY_S), int(end_s // DAY_S) + 1):
        seconds = min(end_s, (day + 1) * DAY_S) - max(begin_s, day * DAY_S)
        if seconds > 0.0:
            yield day, seconds


# --- what events and facts say ----------------------------------------------------------------


def job_uid(gang: str, uid: str, job: str) -> str:
    """Return the uid of a gang's Job, in which the gang's name ends (J27), else `uid`."""
    return uid_of_job(gang, job) or uid


def group_of(fact: Fact) -> PodGroup:
    """Return the PodGroup of a fact; a native one has only the queue of its own annotation."""
    if fact.kind == NATIVEPODGROUP.token:
        return as_podgroup(_native_groups.decode(fact.body), queue="")
    return _groups.decode(fact.body)


def owner_of(fact: Fact, group: PodGroup) -> tuple[str, str]:
    """Return the uid of a PodGroup's row, and the key of its Job or ""."""
    owner = group.metadata.controller
    if owner is None or owner.kind != JOB.kind or owner.api_version != JOB.api_version:
        return fact.uid, ""
    return owner.uid, f"{group.metadata.namespace}/{owner.name}"


def amounts(listed: Mapping[str, str | int]) -> dict[str, int]:
    """Return the amounts of a resource list, memory in bytes and others in thousandths."""
    return {
        name: -(-milli(text) // 1000) if name == MEMORY else milli(text)
        for name, text in sorted(listed.items())
        if name != PODS and is_counted(name) and is_quantity(text)
    }


def shares(job: JobRow) -> dict[str, Any]:
    """Return a pod's amounts as an equal share of what its gang needs."""
    if not job.min_member:
        return {}
    shares = {name: amount // job.min_member for name, amount in job.requested.items()}
    return {
        "cpu_milli": shares.pop(CPU, 0),
        "memory_bytes": shares.pop(MEMORY, 0),
        "scalars": shares,
    }


def scheduled_s(pod: Pod) -> float | None:
    """Return when a pod was bound, by its condition; None without it."""
    found = (each for each in pod.status.conditions if each.type == "PodScheduled")
    return max(
        (times.read(each.last_transition_time) or 0.0 for each in found if each.status == "True"),
        default=None,
    )


def finished_s(pod: Pod) -> float | None:
    """Return when the last container ended, if all say so."""
    ended = [each.state.terminated for each in pod.status.container_statuses]
    found = [times.read(each.finished_at) for each in ended if each is not None]
    exact = [each for each in found if each is not None]
    return max(exact) if exact and len(exact) == len(ended) else None
