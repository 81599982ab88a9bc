"""Jobs that hold what another one waits for, those that hold most first."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from pumice.plugins import BoolArray, FloatArray, IntArray
from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.plan import JobExplanation
from services.scheduler.engine.resources.dimensions import quantity
from services.scheduler.engine.session.session import Session
from services.visibility.forecast.ends import stated_end
from services.visibility.queries.live import EndOf
from services.visibility.queries.queues import Family
from services.visibility.queries.wording import controller_of, owner_of
from shared.api.time import format_seconds
from shared.api.visibility import Holder
from shared.model.status import HOLDS_RESOURCES, TaskStatus

HOLDERS_MAX = 20
"""Holders that one explanation names."""
_OF_A_NAMESPACE = "resource quota"


class HeldResources(NamedTuple):
    """A job, and what it holds of the short resources."""

    key: str
    """Key of its PodGroup."""
    holder: Holder


def holders(
    session: Session, job: Job, why: JobExplanation, ends: EndOf = stated_end
) -> tuple[tuple[HeldResources, ...], int]:
    """Return holders of the short resources, where the gate that stops a job looks for them.

    Those that hold most are named; of the others their number is returned.
    """
    names = [short.resource for short in why.shortages] or (["cpu"] if why.gate == "queue" else [])
    dims = [dim for name in names if (dim := session.resource(name)) is not None]
    if not dims:
        return (), 0
    allocated = _holders(session, job, why)
    total = session.total[dims].astype(np.float64)
    ranked = sorted(
        ((_weight(amounts[dims], total), holder) for holder, amounts in allocated),
        key=lambda found: (-found[0], found[1].key),
    )
    ranked_holders = [holder for weight, holder in ranked if weight > 0]
    by_key = {holder.key: amounts for holder, amounts in allocated}
    named = tuple(
        HeldResources(each.key, _holder(session, each, by_key[each.key], dims, ends(each)))
        for each in ranked_holders[:HOLDERS_MAX]
    )
    return named, len(ranked_holders) - len(named)


def _weight(amounts: IntArray, total: FloatArray) -> float:
    return float((amounts / np.maximum(total, 1)).max(initial=0.0))


def _holder(
    session: Session, job: Job, amounts: IntArray, dims: list[int], end: float | None
) -> Holder:
    names = session.resources
    allocated = {
        names[dim]: quantity(names[dim], int(amounts[dim])) for dim in dims if amounts[dim]
    }
    until = format_seconds(end) if end is not None else None
    return Holder(
        job=owner_of(job),
        owner=controller_of(job),
        queue=job.queue,
        holds=allocated,
        expected_end=until,
    )


def _holders(session: Session, job: Job, why: JobExplanation) -> list[tuple[Job, IntArray]]:
    """Return jobs with what they hold where this one would need it."""
    if why.gate == "predicate":
        return list(_on_nodes(session, job))
    within = set(scope(session, job, why))
    return [
        (each, each.allocated)
        for each in session.cluster_state.jobs.all()
        if each is not job and each.has_group and _is_within(each, within, job, why)
    ]


def _is_within(each: Job, queues: set[str], job: Job, why: JobExplanation) -> bool:
    if why.message.startswith(_OF_A_NAMESPACE):
        return each.namespace == job.namespace
    return each.queue in queues


def scope(session: Session, job: Job, why: JobExplanation) -> Iterable[str]:
    """Return the queues that share what is short with a job's: those below the level that lacks it.

    All of them if no queue in the line does: then it is the cluster that is full.
    """
    family = Family(session.queues)
    if job.queue not in session.queues:
        return ()
    figures = {of.name: of for account in session.hooks.queue_figures for of in account()}
    for name in family.with_ancestors(job.queue):
        of = figures.get(name)
        limit = session.queues[name].capability
        for short in why.shortages:
            dim = session.resource(short.resource)
            if of is None or dim is None or short.resource not in limit:
                continue
            if limit[short.resource] - of.allocated[dim] - of.inqueue[dim] < short.requested:
                return family.below(name)
    return family.below(job.queue) if why.gate in {"quota", "queue"} else session.queues


def _on_nodes(session: Session, job: Job) -> Iterator[tuple[Job, IntArray]]:
    """Yield jobs with what they hold on nodes that a pending pod of this one could go to."""
    open_ = _open(session, job)
    names = session.node_names
    allocated: dict[str, IntArray] = {}
    for column in np.flatnonzero(open_).tolist():
        for task in session.tasks_on(names[column]):
            if HOLDS_RESOURCES[task.status] and task.job_key and task.job_key != job.key:
                request = task.task_class.request
                known = allocated.get(task.job_key)
                allocated[task.job_key] = request.copy() if known is None else known + request
    for key, amounts in allocated.items():
        other = session.job(key)
        if other is not None and other.has_group:
            yield other, amounts


def _open(session: Session, job: Job) -> BoolArray:
    """Return the nodes that no rule but room closes to the first pending pod."""
    pending = sorted(job.by_status[TaskStatus.PENDING].values(), key=lambda task: task.order())
    if not pending:
        alive: BoolArray = session.nodes.alive
        return alive
    open_: BoolArray = session.candidates(pending[0].task_class).open
    return open_
