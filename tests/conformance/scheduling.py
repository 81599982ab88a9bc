"""Kinds `scheduler` and `scheduler-probe`: one session, judged by what it decided."""

from collections import Counter
from typing import Any

from pumice.plugins import IntArray
from services.scheduler.decide import conclude, open_session, run_actions
from services.scheduler.engine.plan import Plan
from services.scheduler.engine.session.session import Session
from services.scheduler.engine.state.cluster_state import ClusterState
from services.scheduler.engine.status.statuses import phase_of
from shared.model.status import TaskStatus
from tests.conformance.network import Places, check_places, prepare
from tests.conformance.report import Unsupported, expect
from tests.conformance.world import KNOWN_PLUGINS, cluster_state_of, config_of, measure, now_of

_OF_PLACES = {
    "allocatedHyperNodes",
    "subJobHyperNodes",
    "bindsPerLowestTierHyperNode",
    "bindsPerLowestTierHyperNodeSorted",
}


class Outcome:
    """What a session decided, in the words of the cases."""

    def __init__(
        self, cluster_state: ClusterState, session: Session, plan: Plan, given: dict[str, Any]
    ) -> None:
        jobs = [job for job in cluster_state.jobs.all() if cluster_state.jobs.takes_part(job)]
        self.binds = {bind.pod: bind.node for gang in plan.binds for bind in gang.binds}
        self.places = Places(session, self.binds, given)
        self.evicted = sorted(eviction.pod for eviction in plan.evictions)
        self.tasks = {
            task.key: {"status": task.status.label, "node": task.node}
            for job in jobs
            for task in job.tasks.values()
        }
        self.pipelined = {
            job.key: {t.key: t.node for t in job.by_status[TaskStatus.PIPELINED].values()}
            for job in jobs
            if job.waiting_count
        }
        self.phases = {job.key: phase_of(job, unschedulable=False) for job in jobs}
        self.allocated = {
            job.key: amounts for job in jobs if (amounts := _amounts(session, job.allocated))
        }
        wanted = {group.key: group for group in plan.podgroups}
        self.after_close = {
            job.key: {
                "phase": wanted[job.key].phase if job.key in wanted else job.last_status.phase,
                "conditions": [
                    {"type": c.type, "status": c.status, "reason": c.reason}
                    for c in (wanted[job.key].conditions if job.key in wanted else job.conditions)
                    # Our own word on groups without pods, which Volcano puts in an event (D01).
                    if job.tasks or c.type != "Unschedulable"
                ],
            }
            for job in jobs
        }


def _amounts(session: Session, held: IntArray) -> dict[str, int]:
    """Return what a job holds in the words of the cases: CPU in milli, pods as a count."""
    named = zip(session.resources, held.tolist(), strict=False)
    words = {"cpu": "milliCPU"}
    return {words.get(name, name): amount for name, amount in named if amount}


def _recorded_amounts(jobs: dict[str, Any]) -> dict[str, dict[str, int]]:
    """Return recorded amounts without zeros, scalars beside CPU and memory."""
    found = {}
    for key, resource in jobs.items():
        flat = {**resource, **resource.get("scalars", {})}
        amounts = {n: a for n, a in flat.items() if n not in {"scalars", "maxTaskNum"} and a}
        if amounts:
            found[key] = amounts
    return found


def run_scheduler(case: dict[str, Any]) -> None:
    """Run a case of kind `scheduler`; raises `Mismatch` or `Unsupported`."""
    config = config_of(case["conf"])
    cluster_state = cluster_state_of(case["given"])
    measure(cluster_state, case)
    session = open_session(cluster_state, config, now=now_of(case), plugins=KNOWN_PLUGINS)
    try:
        prepare(session, case["given"])
        if "nodesInShard" in case["given"]:
            mode = case["options"]["shardingMode"]
            session.join_shard(case["given"]["nodesInShard"], hard=mode == "hard")
        run_actions(session, config)
        outcome = Outcome(cluster_state, session, conclude(session), case["given"])
    finally:
        session.close()
    if "expect" in case:
        _check_expectation(case["expect"], outcome)
    if case.get("deterministic"):
        own = case.get("origin", {}).get("own", False)
        _check_actual(case["actual"][0], outcome, own=own)
    else:
        _check_invariants(case.get("invariants", {}), outcome)


def _check_expectation(wanted: dict[str, Any], outcome: Outcome) -> None:
    check_places(wanted, outcome.places)
    expect("number of binds", len(outcome.binds), wanted["bindsNum"])
    if wanted.get("check") == "CheckBindInHyperNode":
        return
    if "binds" in wanted and not wanted.get("minimalBindCheck"):
        expect("binds", outcome.binds, wanted["binds"])
    expect("evicted", outcome.evicted, sorted(wanted.get("evicted", [])))
    for job, nodes in wanted.get("pipelined", {}).items():
        places = outcome.pipelined.get(job, {})
        expect(
            f"pipelined tasks of {job}", bool(places) and set(places.values()) <= set(nodes), True
        )
    for job, phase in wanted.get("podgroupPhases", {}).items():
        expect(f"phase of {job}", outcome.phases.get(job), phase)
    for job, counts in wanted.get("taskStatusNums", {}).items():
        have = Counter(
            task["status"] for key, task in outcome.tasks.items() if key.startswith(f"{job}-")
        )
        expect(f"tasks of {job}", dict(have), counts)


def _check_actual(actual: dict[str, Any], outcome: Outcome, *, own: bool) -> None:
    # An absent map is an empty one; our own cases need not state what they are not about.
    absent = {} if own else {"allocatedHyperNodes": {}, "subJobHyperNodes": {}}
    check_places(absent | actual, outcome.places)
    expect("binds", outcome.binds, actual.get("binds", {}))
    expect("evicted", outcome.evicted, actual.get("evicted", []))
    for key, task in actual.get("tasks", {}).items():
        expect(f"task {key}", outcome.tasks.get(key), task)
    expect("pipelined", outcome.pipelined, actual.get("pipelined", {}))
    expect("phases", outcome.phases, actual.get("podgroupPhases", {}))
    if "jobAllocated" in actual or not own:
        allocated = _recorded_amounts(actual.get("jobAllocated", {}))
        expect("what jobs hold", outcome.allocated, allocated)
    for key, after in actual.get("afterClose", {}).items():
        have = outcome.after_close.get(key, {"phase": None, "conditions": []})
        expect(f"{key} after close", have["phase"], after["phase"])
        expect(
            f"conditions of {key} after close",
            {c["type"]: (c["status"], c["reason"]) for c in have["conditions"]},
            {c["type"]: (c["status"], c["reason"]) for c in after.get("conditions", [])},
        )


def _check_invariants(wanted: dict[str, Any], outcome: Outcome) -> None:
    check_places(wanted, outcome.places)
    nodes = Counter(outcome.binds.values())
    for key, value in wanted.items():
        if key in _OF_PLACES:
            continue
        if key == "jobAllocated":
            expect(key, outcome.allocated, _recorded_amounts(value))
        elif key == "boundPods":
            expect(key, sorted(outcome.binds), sorted(value))
        elif key == "taskStatuses":
            expect(key, {name: task["status"] for name, task in outcome.tasks.items()}, value)
        elif key == "nodesUsedByBinds":
            expect(key, sorted(nodes), sorted(value))
        elif key == "bindsPerNodeSorted":
            expect(key, sorted(nodes.values()), sorted(value))
        elif key == "podgroupPhases":
            expect(key, outcome.phases, value)
        elif key == "binds":
            expect(key, outcome.binds, value)
        elif key == "evicted":
            expect(key, outcome.evicted, sorted(value))
        elif key == "pipelined":
            expect(key, outcome.pipelined, value)
        elif key not in {"afterClose", "tasks"}:
            raise Unsupported(f"invariant {key}")
