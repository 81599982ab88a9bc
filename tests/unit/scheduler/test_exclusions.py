"""An error of ours about one job, queue or fact: it is left out, told, and all others go on."""

import pytest

from pumice.plugins import PERMIT, Hooks
from pumice.testing import Cluster, binds_of, evictions_of
from services.scheduler.decide import configure, decide
from services.scheduler.decision_settings import DecisionSettings
from services.scheduler.engine.journal import BrokenOff
from services.scheduler.policy.catalog import PLUGINS
from services.scheduler.scheduler_state import SchedulerState
from shared.api import kinds
from shared.contracts import messages as m
from tests.support.world import fact as fact_of
from tests.support.world import gone as end_of
from tests.support.world import named, stored_group, stored_node, stored_pod, stored_queue

ACTIONS = "enqueue, allocate, preempt, reclaim, gangpreempt, gangreclaim, backfill, shuffle"
SHARED = ("priority", "gang", "conformance", "drf", "predicates", "proportion", "nodeorder")


class Faulty:
    """A built-in plugin that has a bug, which one job's name brings out at one extension point."""

    name = "faulty"

    def __init__(self, point: str) -> None:
        self._point = point

    def __call__(self, _: object) -> "Faulty":
        return self

    def contribute(self, hooks: Hooks, _: object) -> None:
        def fail(*asked: object) -> object:
            if any("bad" in name for name in map(_named, asked)):
                raise ZeroDivisionError(f"in {self._point}")
            return _ANSWERS[self._point](*asked)

        if self._point == "predicate":
            hooks.predicate(fail, reasons=())
        else:
            getattr(hooks, self._point)(fail)


def _named(asked: object) -> str:
    selector = getattr(asked, "node_selector", {})
    return f"{getattr(asked, 'key', '')} {getattr(asked, 'name', '')} {dict(selector)}"


_ANSWERS = {
    "job_order": lambda job: 0,
    "queue_order": lambda queue: 0,
    "task_order": lambda task: 0,
    "job_valid": lambda job: None,
    "job_ready": lambda job: 0,
    "job_starving": lambda job: True,
    "job_enqueueable": lambda job: PERMIT,
    "overused": lambda queue: False,
    "allocatable": lambda queue, task_class, count: count,
    "predicate": lambda task_class, rows: rows.index * 0,
    "node_score": lambda task_class, rows: rows.index * 0.0,
    "conditions": lambda job: None,
    "preemptable": lambda task, candidates: candidates,
    "reclaimable": lambda task, candidates: candidates,
}


def world(point: str) -> tuple[Cluster, dict]:
    conf = f'actions: "{ACTIONS}"\ntiers:\n- plugins:\n' + "".join(
        f"  - {{name: {name}}}\n" for name in (*SHARED, "faulty")
    )
    plugins = {**PLUGINS, "faulty": Faulty(point)}
    made = Cluster().node("n1", cpu="4").node("n2", cpu="4").queue("bad").queue("other")
    made.config = configure(conf, plugins=plugins)
    queue = "bad" if point in {"queue_order", "overused", "allocatable"} else "default"
    for name in ("bad", "good"):
        made.gang(
            name,
            tasks=2,
            phase="Pending",
            minResources={"cpu": "2"},
            queue=queue if name == "bad" else "other",
            nodeSelector={"bad": "bad"} if name == "bad" else {},
        )
        made.pod(f"{name}-effort", name, nodeSelector={"bad": "bad"} if name == "bad" else {})
    return made, plugins


@pytest.mark.parametrize("point", _ANSWERS)
def test_a_bug_that_one_job_brings_out_keeps_no_other_job_waiting(point) -> None:
    made, plugins = world(point)
    placed: dict[str, str] = {}
    exclusions: dict = {}
    for _ in range(3):
        plan = decide(
            made.cluster_state,
            made.config,
            now=0.0,
            plugins=plugins,
            inspect=lambda session, _: exclusions.update(session.exclusions.found),
        )
        made.publish(plan)
        placed |= binds_of(plan)
    assert {"good-0", "good-1"} <= set(placed)
    assert made.cluster_state.audit() == []
    assert exclusions or point in {"preemptable", "reclaimable"}
    for (kind, key), exclusion in exclusions.items():
        assert "bad" in key or kind == "actions", exclusion
        assert "ZeroDivisionError" in exclusion.reason


def test_the_podgroup_of_a_job_that_is_left_out_says_so() -> None:
    made, plugins = world("predicate")
    for _ in range(2):
        plan = decide(made.cluster_state, made.config, now=0.0, plugins=plugins)
        made.publish(plan)
    conditions = {g.key: g.conditions for g in plan.podgroups}["ns/bad"]
    said = {c.type: c for c in conditions}["Unschedulable"]
    assert said.reason == "Quarantined"
    assert "ZeroDivisionError: in predicate" in said.message


def test_a_placement_that_breaks_off_spoils_the_session_and_names_the_job() -> None:
    made = Cluster().node("n1").gang("bad", tasks=1)
    made.cluster_state.nodes.ledger.place = lambda *_, **__: 1 / 0
    with pytest.raises(BrokenOff) as broken:
        made.decide()
    assert broken.value.job == "ns/bad"


# --- facts ---------------------------------------------------------------------------------------


def fact(kind: kinds.Kind, key: str, document: dict) -> m.Fact:
    return fact_of(kind.token, {"metadata": named(key), **document})


def pod_fact(name: str, *, cpu: str = "1", node: str = "") -> m.Fact:
    return fact_of("pods", stored_pod(f"ns/{name}", group=name, cpu=cpu, node=node))


def base() -> list[m.Fact]:
    node = stored_node("n1", cpu="4", memory="8Gi", pods="10")
    return [
        fact_of("queues", stored_queue("q")),
        fact_of("nodes", node),
        fact_of("podgroups", stored_group("ns/good", phase="Inqueue", queue="q")),
        pod_fact("good"),
    ]


def new_scheduler() -> SchedulerState:
    return SchedulerState(DecisionSettings(), gang_message=10, settle_s=0)


def test_a_fact_that_meets_a_bug_while_it_is_read_is_left_out_alone(monkeypatch) -> None:
    scheduler = new_scheduler()
    of = scheduler._cluster_state.task_classes.of
    monkeypatch.setattr(
        scheduler._cluster_state.task_classes,
        "of",
        lambda pod, affinity_terms: (
            1 / 0 if pod.metadata.name == "bad" else of(pod, affinity_terms)
        ),
    )
    (failure,) = scheduler.fold([*base()[:2], pod_fact("bad"), *base()[2:]])
    assert (failure.kind, failure.key) == ("pods", "ns/bad")
    assert isinstance(failure.reason, ZeroDivisionError)
    assert scheduler.is_consistent
    decision = scheduler.decide(configure(), now=0.0, cycle=1, token=1)
    assert set(binds_of(decision.full_plan)) == {"good"}
    (told,) = [wanted for wanted in decision.plan.pods if wanted.key == "ns/bad"]
    assert told.condition.reason == "Quarantined"
    assert "ZeroDivisionError" in told.condition.message


def test_a_fact_that_fails_half_way_is_left_out_when_all_are_read_again(monkeypatch) -> None:
    scheduler = new_scheduler()
    stream = [*base(), pod_fact("bad", node="n1")]
    take = scheduler._cluster_state.jobs.take
    monkeypatch.setattr(
        scheduler._cluster_state.jobs,
        "take",
        lambda task: 1 / 0 if task.name == "bad" else take(task),
    )
    (failure,) = scheduler.fold(stream)
    assert not scheduler.is_consistent, "its pod counts on a node and in no job"
    scheduler.forget()
    assert scheduler.is_consistent
    (again,) = scheduler.fold(stream)
    assert again == failure, "the same content is not tried again"
    assert scheduler.is_consistent
    assert [task.name for task in scheduler._cluster_state.tasks()] == ["good"]
    assert scheduler.fold([pod_fact("bad", node="n1", cpu="2")]) == [], (
        "it is tried again when it changes"
    )
    assert {task.name for task in scheduler._cluster_state.tasks()} == {"good", "bad"}


def test_an_object_that_was_left_out_and_goes_is_forgotten(monkeypatch) -> None:
    scheduler = new_scheduler()
    with monkeypatch.context() as patched:
        patched.setattr(scheduler._cluster_state.task_classes, "of", lambda *_: 1 / 0)
        assert len(scheduler.fold([pod_fact("bad")])) == 1
    gone = end_of("pods", "ns/bad")
    assert scheduler.fold([gone]) == []
    assert scheduler.fold([pod_fact("bad")]) == []


def test_a_job_that_broke_a_session_has_no_turn_until_its_podgroup_is_made_anew(
    monkeypatch,
) -> None:
    scheduler = new_scheduler()
    bad = {"spec": {"minMember": 1, "queue": "q"}, "status": {"phase": "Inqueue"}}
    stream = [*base(), fact(kinds.PODGROUP, "ns/bad", dict(bad)), pod_fact("bad", cpu="2")]
    scheduler.fold(stream)
    ledger = scheduler._cluster_state.nodes.ledger
    place = ledger.place

    def broken(columns, counts, task_class, *, waiting):
        if task_class.request[0] == 2000:
            raise ZeroDivisionError
        place(columns, counts, task_class, waiting=waiting)

    monkeypatch.setattr(ledger, "place", broken)
    with pytest.raises(BrokenOff):
        scheduler.decide(configure(), now=0.0, cycle=1, token=1)
    assert not scheduler.is_consistent
    scheduler.forget()
    scheduler.fold(stream)
    decision = scheduler.decide(configure(), now=0.0, cycle=2, token=1)
    assert set(binds_of(decision.full_plan)) == {"good"}
    gone = end_of("podgroups", "ns/bad")
    scheduler.fold([gone, fact(kinds.PODGROUP, "ns/bad", dict(bad))])
    decision = scheduler.decide(configure(), now=0.0, cycle=3, token=1)
    assert "bad" in binds_of(decision.full_plan)


def test_no_eviction_is_decided_for_a_job_that_is_left_out() -> None:
    made, plugins = world("preemptable")
    plan = decide(made.cluster_state, made.config, now=0.0, plugins=plugins)
    assert evictions_of(plan) == {}
