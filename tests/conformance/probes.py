"""Kind `scheduler-probe`: hooks of an open session called directly."""

import math
from typing import Any

import numpy as np

from pumice.plugins import Vote
from pumice.plugins.points import Points
from services.scheduler.decide import open_session
from services.scheduler.engine.placement.rows import Rows
from services.scheduler.engine.session.session import Session
from services.scheduler.engine.tasks.task import Task
from tests.conformance.network import PROBES as NETWORK_PROBES
from tests.conformance.network import prepare
from tests.conformance.report import Mismatch, Unsupported, expect
from tests.conformance.victim_probes import VICTIM_PROBES, job_in, run_loose, task_in
from tests.conformance.world import KNOWN_PLUGINS, cluster_state_of, config_of, measure, now_of

_UNSCHEDULABLE, _FOR_GOOD = 2, 3


def run_probes(case: dict[str, Any]) -> None:
    """Run a case of kind `scheduler-probe`; raises `Mismatch` or `Unsupported`."""
    config = config_of(case["conf"])
    if "probes" not in case:
        run_loose(case, config)
        return
    for probe in case["probes"]:
        if probe["fn"] not in _PROBES:
            raise Unsupported(f"probe {probe['fn']}")
    cluster_state = cluster_state_of(case["given"])
    measure(cluster_state, case)
    session = open_session(cluster_state, config, now=now_of(case), plugins=KNOWN_PLUGINS)
    try:
        prepare(session, case["given"])
        for probe in case["probes"]:
            _PROBES[probe["fn"]](session, probe)
    finally:
        session.close()


def _enqueueable(session: Session, probe: dict[str, Any]) -> None:
    opinion = session.hooks.job_enqueueable(job_in(session, probe["args"][0]["job"]))
    expect("JobEnqueueable", opinion.vote is not Vote.REJECT, probe["result"])


def _enqueued(session: Session, probe: dict[str, Any]) -> None:
    session.hooks.job_enqueued(job_in(session, probe["args"][0]["job"]))


def _job_order(session: Session, probe: dict[str, Any]) -> None:
    left, right = (
        [fn(job_in(session, arg["job"])) for fn in session.hooks.of(Points.job_order)]
        for arg in probe["args"]
    )
    expect("JobOrderCompareFn", (left > right) - (left < right), probe["result"])


def _node_order(session: Session, probe: dict[str, Any]) -> None:
    task = task_in(session, probe["args"][0]["task"])
    column = session.cluster_state.nodes.column(probe["args"][1]["node"])
    rows = Rows(session.cluster_state.nodes, task.task_class, np.array([column]))
    score = sum(float(fn(task.task_class, rows)[0]) for fn in session.hooks.node_score)
    wanted = probe.get("result", 0)
    if not math.isclose(score, wanted, abs_tol=1e-6):
        raise Mismatch(f"score of {task.key} on {probe['args'][1]['node']}: {score}, not {wanted}")


def _predicate(session: Session, probe: dict[str, Any]) -> None:
    """PredicateFn: the code of the first refusal; texts are secondary (README)."""
    task = task_in(session, probe["args"][0]["task"])
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


def _allocate(session: Session, probe: dict[str, Any]) -> None:
    """Allocate: put a task on a node, as an action would."""
    task = task_in(session, probe["args"][0]["task"])
    job = session.job_of(task)
    assert job is not None
    column = session.cluster_state.nodes.column(probe["args"][1]["node"])
    session.place(job, [task], [column], waiting=False)


_PROBES = {
    "JobEnqueueable": _enqueueable,
    "JobEnqueued": _enqueued,
    "JobOrderCompareFn": _job_order,
    "NodeOrderFn": _node_order,
    "PredicateFn": _predicate,
    "Allocate": _allocate,
    **VICTIM_PROBES,
    **NETWORK_PROBES,
}
