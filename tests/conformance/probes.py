"""Kind `scheduler-probe`: hooks of an open session called directly."""

import math
from typing import Any

import numpy as np

from pumice.plugins import Vote
from pumice.plugins.points import Points
from services.scheduler.decide import open_session
from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.placement.rows import Rows
from services.scheduler.engine.session.session import Session
from services.scheduler.engine.tasks.task import Task
from tests.conformance.network import PROBES as NETWORK_PROBES
from tests.conformance.network import prepare
from tests.conformance.placement_probes import PROBES as PLACEMENT_PROBES
from tests.conformance.report import Mismatch, Unsupported, expect
from tests.conformance.victim_probes import VICTIM_PROBES, run_loose
from tests.conformance.world import KNOWN_PLUGINS, config_of, measure, now_of, replica_of


def run_probes(case: dict[str, Any]) -> None:
    """Run a case of kind `scheduler-probe`; raises `Mismatch` or `Unsupported`."""
    config = config_of(case["conf"])
    if "probes" not in case:
        run_loose(case, config)
        return
    for probe in case["probes"]:
        if probe["fn"] not in _PROBES:
            raise Unsupported(f"probe {probe['fn']}")
    cluster_state = replica_of(case["given"])
    measure(cluster_state, case)
    session = open_session(cluster_state, config, now=now_of(case), plugins=KNOWN_PLUGINS)
    try:
        prepare(session, case["given"])
        for probe in case["probes"]:
            _PROBES[probe["fn"]](session, probe)
    finally:
        session.close()


def _job(session: Session, key: str) -> Job:
    job = session.cluster_state.jobs.get(key)
    if job is None:
        raise Unsupported(f"job {key} is not in the session")
    return job


def _task(session: Session, key: str) -> Task:
    found = next((task for task in session.cluster_state.tasks() if task.key == key), None)
    if found is None:
        raise Unsupported(f"task {key} is not in the session")
    return found


def _enqueueable(session: Session, probe: dict[str, Any]) -> None:
    opinion = session.hooks.job_enqueueable(_job(session, probe["args"][0]["job"]))
    expect("JobEnqueueable", opinion.vote is not Vote.REJECT, probe["result"])


def _enqueued(session: Session, probe: dict[str, Any]) -> None:
    session.hooks.job_enqueued(_job(session, probe["args"][0]["job"]))


def _job_order(session: Session, probe: dict[str, Any]) -> None:
    left, right = (
        [fn(_job(session, arg["job"])) for fn in session.hooks.of(Points.job_order)]
        for arg in probe["args"]
    )
    expect("JobOrderCompareFn", (left > right) - (left < right), probe["result"])


def _node_order(session: Session, probe: dict[str, Any]) -> None:
    task = _task(session, probe["args"][0]["task"])
    column = session.cluster_state.nodes.column(probe["args"][1]["node"])
    rows = Rows(session.cluster_state.nodes, task.task_class, np.array([column]))
    score = sum(float(fn(task.task_class, rows)[0]) for fn in session.hooks.node_score)
    wanted = probe.get("result", 0)
    if not math.isclose(score, wanted, abs_tol=1e-6):
        raise Mismatch(f"score of {task.key} on {probe['args'][1]['node']}: {score}, not {wanted}")


_PROBES = {
    "JobEnqueueable": _enqueueable,
    "JobEnqueued": _enqueued,
    "JobOrderCompareFn": _job_order,
    "NodeOrderFn": _node_order,
    **PLACEMENT_PROBES,
    **VICTIM_PROBES,
    **NETWORK_PROBES,
}
