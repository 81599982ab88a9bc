"""What rows need of events and facts: uids of jobs, amounts, times."""

from collections.abc import Mapping
from typing import Any

from services.accounting.books.rows import JobRow
from shared.api import time as times
from shared.api.core import Pod
from shared.api.kinds import JOB
from shared.api.scheduling import PodGroup, uid_of_job
from shared.contracts.messages import Fact
from shared.model.quantity import is_quantity, milli
from shared.model.resources import CPU, MEMORY, PODS, is_counted


def job_uid(gang: str, uid: str, job: str) -> str:
    """Return the uid of a gang's Job, in which the gang's name ends (J27), else `uid`."""
    return uid_of_job(gang, job) or uid


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
