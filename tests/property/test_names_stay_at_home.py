"""No text or event for readers of one namespace names an object of another one.

Objects of each namespace bear its mark in their names. Drawn clusters are decided on, with
evictions and reservations, and asked about; what is published or answered about objects of one
namespace is searched for the marks of the others.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from pumice.events import PodEvicted
from services.binder.adapters.recorder import eviction_event, for_whom
from services.scheduler.decide import decide
from services.scheduler.messages import admissions, commands, desires
from services.visibility.api.hiding import hide
from services.visibility.forecast.durations import History
from services.visibility.forecast.forecaster import forecast
from services.visibility.forecast.simulation import SchedulerRules
from services.visibility.queries.explaining import explain, subject_of
from services.visibility.queries.live import entry_of, running_jobs
from services.visibility.queries.survey import DecisionPolicy, survey
from services.visibility.queries.whatif import what_if
from services.visibility.timelines import known_job, timeline
from shared.api import keys
from shared.api.whatifs import WhatIfSpec
from shared.contracts.messages import Evict
from tests.support.laws import configured, count_hits, needs_hits
from tests.support.world import Json, stored_group, stored_pod, stored_queue
from tests.unit.visibility.mirrors import World, job_of_tasks

NOW = 1e9
MARKS = {"alpha": "ofalpha", "beta": "ofbeta"}
CONFIGURATIONS = [
    f"""
actions: "enqueue, allocate, {actions}backfill"
tiers:
- plugins: [{{name: priority}}, {{name: gang}}, {{name: conformance}}, {{name: reservation}}]
- plugins: [{{name: overcommit}}, {{name: drf}}, {{name: predicates}}, {{name: {sharing}}},
    {{name: nodeorder}}]
"""
    for actions in ("preempt, reclaim, ", "gangpreempt, gangreclaim, ", "")
    for sharing in ("proportion", "capacity")
]
spaces = st.sampled_from(sorted(MARKS))
queues = st.sampled_from(["red", "blue"])
priorities = st.sampled_from(["high", "high", "low"])
drawn_worlds = st.fixed_dictionaries(
    {
        "free": st.lists(st.sampled_from([0, 0, 0, 1]), min_size=1, max_size=3),
        "orders": st.sampled_from(["", "strict", "backfill"]),
        "running": st.lists(
            st.tuples(spaces, st.integers(0, 2), queues, st.booleans()), min_size=2, max_size=6
        ),
        "waiting": st.lists(
            st.tuples(spaces, st.integers(1, 3), queues, priorities, st.booleans()),
            min_size=1,
            max_size=4,
        ),
    }
)


class Drawn:
    """A drawn cluster, in which all objects of a namespace bear its mark."""

    def __init__(self, drawn: Json) -> None:
        self.world = World().queue("default").priority("high", 1000).priority("low", 1)
        self.waiting: list[tuple[str, str]] = []
        for queue in ("red", "blue"):
            order = {"annotations": {keys.QUEUE_ORDER: drawn["orders"]}} if drawn["orders"] else {}
            made = stored_queue(queue, reclaimable=True)
            made["metadata"].update(order)
            self.world.put("queues", made)
        nodes = len(drawn["free"])
        for number, free in enumerate(drawn["free"]):
            used = sum(at % nodes == number for _, at, _, _ in drawn["running"])
            self.world.node(f"n{number}", cpu=str(used + free))
        for number, (space, at, queue, has_port) in enumerate(drawn["running"]):
            name = f"{MARKS[space]}-run{number}"
            self._group(space, name, phase="Running", queue=queue, priority="low", least=1)
            node = f"n{at % nodes}"
            self._pod(space, f"{name}-0", name, node=node, has_port=has_port)
        for number, (space, size, queue, priority, has_port) in enumerate(drawn["waiting"]):
            name = f"{MARKS[space]}-wait{number}"
            self._group(space, name, phase="Inqueue", queue=queue, priority=priority, least=size)
            for pod in range(size):
                self._pod(space, f"{name}-{pod}", name, has_port=has_port)
            self.waiting.append((space, name))

    def _group(
        self, space: str, name: str, *, phase: str, queue: str, priority: str, least: int
    ) -> None:
        spec = {"minMember": least, "queue": queue, "priorityClassName": priority}
        spec["minResources"] = {"cpu": str(least)}
        made = stored_group(f"{space}/{name}", uid=f"uid-{name}", phase=phase, **spec)
        self.world.put("podgroups", made)

    def _pod(
        self, space: str, name: str, group: str, *, node: str = "", has_port: bool = False
    ) -> None:
        annotations = {"volcano.sh/preemptable": "true"}
        made = stored_pod(
            f"{space}/{name}",
            uid=f"uid-{name}",
            group=group,
            cpu="1",
            node=node,
            annotations=annotations,
        )
        if has_port:
            made["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
        self.world.put("pods", made)


def published(drawn: Drawn, conf: str) -> Iterator[tuple[str, Any]]:
    """Yield what a cycle publishes for readers of a namespace, with that namespace."""
    state = drawn.world.mirror.state
    plan = decide(state, configured(conf), now=NOW, cycle=1)
    for why in plan.explanations:
        yield why.job.partition("/")[0], why
    for status in desires(plan, state):
        key = getattr(status.message, "key", "")  # that of a queue is its name, without a namespace
        yield key.rpartition("/")[0], status
    for admission in admissions(plan, state):
        yield admission.gang.partition("/")[0], admission
    for command in commands(plan, token=1, gang_message=100):
        if isinstance(command, Evict):
            for victim in command.victims:
                space = victim.pod.partition("/")[0]
                told = eviction_event(command, victim)
                yield space, told
                yield space, for_whom(command.preemptor, victim)
                yield space, entry_of(told, "2026-01-01T00:00:00Z")


def answered(drawn: Drawn, conf: str) -> Iterator[tuple[str, Any]]:
    """Yield what readers of one namespace are answered, with that namespace."""
    mirror, policy = drawn.world.mirror, DecisionPolicy(config=configured(conf))
    found = survey(mirror.state, policy, now=NOW)
    expected = forecast(mirror.state, SchedulerRules(policy.config), History(), now=NOW, draws=2)
    for job in found.pending:
        yield job.metadata.namespace, job
    for running in running_jobs(mirror.state):
        yield running.metadata.namespace, running
    for space, name in drawn.waiting:
        yield space, expected.get(f"{space}/{name}")
        subject = subject_of(mirror, space, name)
        assert subject is not None
        why = found.explanations.get(f"{space}/{name}")
        explanation = explain(mirror, policy, subject, why, now=NOW)
        yield space, hide(explanation, {space})
        yield space, timeline(space, name, [], known_job(mirror, space, name), NOW)
    for space, mark in MARKS.items():
        for queue in ("red", "blue"):
            job_ = job_of_tasks(f"{mark}-asked", queue=queue, priority="high", t=(2, "1"))
            spec = msgspec.json.decode(msgspec.json.encode({"job": job_}), type=WhatIfSpec)
            answer = what_if(mirror, policy, spec, namespace=space, now=NOW)
            yield space, hide(answer, {space})


def foreign(space: str, told: Any) -> str:
    """Return the text if it has the mark of another namespace, else ""."""
    text = msgspec.json.encode(told).decode()
    others = (mark for other, mark in MARKS.items() if other != space)
    return text if any(mark in text for mark in others) else ""


@needs_hits(at_least=3)
@settings(max_examples=30)
@given(drawn_worlds, st.sampled_from(CONFIGURATIONS))
def test_no_text_for_readers_of_a_namespace_names_an_object_of_another(drawn: Json, conf: str):
    cluster = Drawn(drawn)
    told = [*answered(cluster, conf), *published(cluster, conf)]
    evicted = (each for _, each in told if isinstance(each, PodEvicted))
    count_hits([each for each in evicted if each.preemptor_queue and not each.preemptor])
    for space, text in told:
        assert not foreign(space, text)


def test_events_of_former_binders_are_told_without_the_name():
    told = PodEvicted(
        pod="alpha/p",
        uid="u",
        node="n",
        gang="alpha/g",
        job="alpha/j",
        by="reclaim",
        preemptor="beta/secret",
        reason="to make room for beta/secret",
    )
    entry = entry_of(told, "2026-01-01T00:00:00Z")
    assert entry is not None
    assert "secret" not in entry.message
