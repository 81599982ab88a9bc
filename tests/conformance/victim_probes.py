"""Probes of the hooks that choose victims."""

import itertools
from collections.abc import Callable, Mapping
from typing import Any, Final

from pumice.plugins import EvictionContext, EvictionKind
from services.scheduler.config import SchedulerConfig
from services.scheduler.decide import open_session
from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.session.ordering import Orders
from services.scheduler.engine.session.session import Session
from services.scheduler.engine.tasks.task import Task
from tests.conformance.report import Mismatch, Unsupported, expect
from tests.conformance.world import cluster_state_of, now_of

Probe = Callable[[Session, dict[str, Any]], None]


def task_in(session: Session, stated: str | dict[str, Any]) -> Task:
    if isinstance(stated, dict) and not stated.get("literal"):
        stated = stated["task"]
    if isinstance(stated, dict):
        return _literal_task(stated)
    found = next((task for task in session.cluster_state.tasks() if task.key == stated), None)
    if found is None:
        raise Unsupported(f"task {stated} is not in the session")
    return found


def _literal_task(stated: dict[str, Any]) -> Task:
    """Return a task that is in no session, with what the case says of it."""
    task = Task()
    task.name, task.namespace = stated.get("name", ""), stated.get("namespace", "")
    task.key = task.uid = f"{task.namespace}/{task.name}"
    task.job_key = stated.get("job", "")
    task.eviction_cost = None
    task.priority = stated.get("priority", 0)
    return task


def job_in(session: Session, stated: str | dict[str, Any]) -> Job:
    if isinstance(stated, dict):
        job = Job(stated.get("uid", ""), session.cluster_state.dimensions.capacity)
        job.priority = stated.get("priority", 0)
        job.queue = stated.get("queue", "")
        return job
    found = session.cluster_state.jobs.get(stated)
    if found is None:
        raise Unsupported(f"job {stated} is not in the session")
    return found


def _argument(probe: dict[str, Any], name: str) -> Any:
    return next(argument[name] for argument in probe["args"] if name in argument)


def _tasks(session: Session, probe: dict[str, Any]) -> list[Task]:
    return [task_in(session, stated) for stated in _argument(probe, "tasks")]


def _expect_set(probe: dict[str, Any], victims: list[Task]) -> None:
    wanted = sorted(probe.get("result") or [])
    expect(probe["fn"], sorted(task.key for task in victims), wanted)


def _preemptable(session: Session, probe: dict[str, Any]) -> None:
    preemptor = task_in(session, _argument(probe, "task"))
    _expect_set(probe, session.hooks.preemptable(preemptor, _tasks(session, probe)))


def _reclaimable(session: Session, probe: dict[str, Any]) -> None:
    preemptor = task_in(session, _argument(probe, "task"))
    _expect_set(probe, session.hooks.reclaimable(preemptor, _tasks(session, probe)))


def _evictable(session: Session, probe: dict[str, Any]) -> None:
    stated = _argument(probe, "evictionContext")
    kind = EvictionKind(int(stated["kind"]))
    context = EvictionContext(kind, job_in(session, stated["job"]))
    _expect_set(probe, session.hooks.evictable(context, _tasks(session, probe)))


def _unwanted(session: Session, probe: dict[str, Any]) -> None:
    _expect_set(probe, session.hooks.victim_tasks(_tasks(session, probe)))


def _queue(session: Session, probe: dict[str, Any]) -> None:
    """Compare the order in which victims would go, whatever order they come in."""
    preemptor = task_in(session, _argument(probe, "task"))
    tasks = _tasks(session, probe)
    for arrangement in itertools.islice(itertools.permutations(tasks), 24):
        heap = Orders(session).victims(arrangement, preemptor)
        popped = [heap.pop().key for _ in tasks]
        if popped != probe["result"]:
            raise Mismatch(f"victims go as {popped}, recorded {probe['result']}")


def run_loose(case: dict[str, Any], config: SchedulerConfig) -> None:
    """Run a case whose outcome was not always the same: by what was equal in all of them."""
    probes = case["probeOutcomes"][0]
    if [probe["fn"] for probe in probes] != ["VictimTasks"]:
        raise Unsupported("nondeterministic probes")
    session = open_session(cluster_state_of(case["given"]), config, now=now_of(case))
    try:
        victims = {task.key for task in session.hooks.victim_tasks(_tasks(session, probes[0]))}
    finally:
        session.close()
    wanted = case["invariants"]
    expect("victims in every outcome", sorted(set(wanted["always"]) - victims), [])
    expect("victims in no outcome", sorted(victims - set(wanted["possibleObserved"])), [])
    expect("number of victims", len(victims), wanted["resultCount"])


VICTIM_PROBES: Final[Mapping[str, Probe]] = {
    "Preemptable": _preemptable,
    "Reclaimable": _reclaimable,
    "UnifiedEvictable": _evictable,
    "VictimTasks": _unwanted,
    "BuildVictimsPriorityQueue": _queue,
}
