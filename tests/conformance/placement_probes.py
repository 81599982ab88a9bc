"""Probes of what one node says to one task, and placements between them."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from services.scheduler.engine.placement.rows import Rows
from services.scheduler.engine.session.session import Session
from services.scheduler.engine.tasks.task import Task
from tests.conformance.report import Mismatch, Unsupported

_UNSCHEDULABLE, _FOR_GOOD = 2, 3


def _task(session: Session, key: str) -> Task:
    found = next((task for task in session.cluster_state.tasks() if task.key == key), None)
    if found is None:
        raise Unsupported(f"task {key} is not in the session")
    return found


def predicate(session: Session, probe: dict[str, Any]) -> None:
    """PredicateFn: the code of the first refusal; texts are secondary (README)."""
    task = _task(session, probe["args"][0]["task"])
    node = probe["args"][1]["node"]
    column = session.cluster_state.nodes.column(node)
    refusal = _refusal(session, task, column)
    where = f"{task.key} on {node}"
    if (refusal is None) != ("error" not in probe):
        raise Mismatch(f"{where}: refused with {refusal}, recorded {probe.get('error')!r}")
    codes = [status["code"] for status in probe.get("status") or []]
    if refusal is not None and codes and codes[0] != refusal[0]:
        raise Mismatch(f"{where}: code {refusal}, recorded {codes[0]}")


def _refusal(session: Session, task: Task, column: int) -> tuple[int, str] | None:
    cluster_state, hooks = session.cluster_state, session.hooks
    row = Rows(cluster_state.nodes, task.task_class, np.array([column]))
    for predicate in hooks.predicate:
        number = int(predicate.fn(task.task_class, row)[0])
        if number:
            reason = predicate.reasons[number - 1]
            return (_UNSCHEDULABLE if reason.resolvable else _FOR_GOOD, reason.text)
    for wide in hooks.cross_node_predicate:
        verdict = wide.fn(task.task_class)
        number = int(verdict.codes()[column]) if verdict else 0
        if number:
            reason = wide.reasons[number - 1]
            return (_UNSCHEDULABLE if reason.resolvable else _FOR_GOOD, reason.text)
    return None


def allocate(session: Session, probe: dict[str, Any]) -> None:
    """Allocate: put a task on a node, as an action would."""
    task = _task(session, probe["args"][0]["task"])
    job = session.job_of(task)
    assert job is not None
    column = session.cluster_state.nodes.column(probe["args"][1]["node"])
    session.place(job, [task], [column], waiting=False)


PROBES: Final[Mapping[str, Callable[[Session, dict[str, Any]], None]]] = {
    "PredicateFn": predicate,
    "Allocate": allocate,
}
