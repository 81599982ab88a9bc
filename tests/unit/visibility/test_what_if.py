"""Questions about changes: the nodes of a job, the pods that it evicts, the gate that stops it."""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec
import pytest

from services.scheduler.decide import configure
from services.scheduler.engine.state.memory import memory_of
from services.visibility.forecast.durations import History
from services.visibility.forecast.forecaster import forecast
from services.visibility.forecast.simulation import SchedulerRules
from services.visibility.queries.cluster_mirror import ClusterMirror
from services.visibility.queries.gangs import PODS_MAX, BadQuery
from services.visibility.queries.survey import DecisionPolicy
from services.visibility.queries.whatif import ForecastFor, changed_queue, no_forecast, what_if
from shared.api.scheduling import Guarantee, QueueSpec
from shared.api.time import parse
from shared.api.visibility import (
    EvictedPod,
    ExpectedStart,
    ObjectRef,
    ResourceShortage,
    TaskPlacement,
    WhatIfStatus,
)
from shared.api.whatifs import QueueChange, WhatIfSpec
from tests.support.world import stored_node
from tests.unit.visibility.mirrors import World, job_of_tasks, running

CONF = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: overcommit}, {name: predicates}, {name: proportion}, {name: nodeorder}]
"""
EVICTING = """
actions: "enqueue, allocate, preempt, reclaim"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: predicates}, {name: proportion}, {name: nodeorder}]
"""


SHARING = """
actions: "enqueue, allocate"
tiers:
- plugins: [{name: gang}, {name: deviceshare, arguments: {deviceshare.GPUSharingEnable: true}}]
"""
NOW = 1e9
GPU_MEMORY = "volcano.sh/gpu-memory"


def forecasts(world: World) -> ForecastFor:
    """Return what foresees starts in a world as it is then."""
    rules = SchedulerRules(configure(CONF))
    return lambda keys: forecast(world.mirror.state, rules, History(), now=NOW, targets=keys)


def ask(
    world: World, conf: str = CONF, forecast_for: ForecastFor = no_forecast, **spec: Any
) -> WhatIfStatus:
    policy = DecisionPolicy(config=configure(conf))
    question = msgspec.json.decode(msgspec.json.encode(spec), type=WhatIfSpec)
    return what_if(
        world.mirror, policy, question, namespace="ns", now=NOW, forecast_for=forecast_for
    )


def test_a_job_that_fits_starts_now_and_says_where() -> None:
    world = World().queue("default").node("n1", cpu="4").node("n2", cpu="2")

    answer = ask(world, job=job_of_tasks("train", worker=(2, "2"), ps=(1, "1")))

    assert answer.starts_now is True
    assert sum(placed.pods for placed in answer.placements) == 3
    assert {placed.node for placed in answer.placements} == {"n1", "n2"}
    assert (answer.gate, answer.evictions) == ("", ())


def test_a_job_that_does_not_start_now_is_expected_when_there_is_room_for_it() -> None:
    world = World().queue("default").node("n1", cpu="4")
    world.group("other", phase="Running")
    world.pod("other-0", "other", cpu="3", node="n1", activeDeadlineSeconds=600)
    answer = ask(world, forecast_for=forecasts(world), job=job_of_tasks("train", worker=(1, "2")))

    assert answer.starts_now is False
    assert answer.expected_start is not None
    assert answer.expected_start.median is not None
    assert NOW < parse(answer.expected_start.median) <= NOW + 600
    assert world.mirror.state.jobs.get("ns/train-what-if") is None


def test_a_job_that_starts_now_is_not_forecast() -> None:
    asked: list[str] = []

    def forecast_for(keys: Collection[str]) -> Mapping[str, ExpectedStart]:
        asked.extend(keys)
        return {}

    answer = ask(
        World().queue("default").node("n1"),
        forecast_for=forecast_for,
        job=job_of_tasks("train", w=(1, "1")),
    )

    assert (answer.starts_now, answer.expected_start, asked) == (True, None, [])


def test_a_job_without_room_names_the_gate_and_what_is_short() -> None:
    world = World().queue("default").node("n1", cpu="3").node("n2", cpu="3")
    running(world, "other", cpu="1", node="n1")

    answer = ask(world, job=job_of_tasks("train", worker=(1, "3"), more=(1, "2")))

    assert answer.starts_now is False
    assert answer.gate == "predicate"
    assert answer.shortages[0].resource == "cpu"
    assert answer.placements == ()


def test_a_job_that_its_queue_would_not_admit_says_so() -> None:
    world = World().queue("default", capability={"cpu": "2"}).node("n1", cpu="8")

    answer = ask(world, job=job_of_tasks("train", worker=(3, "1")))

    assert (answer.starts_now, answer.gate) == (False, "enqueue")
    assert answer.shortages == (ResourceShortage(resource="cpu", requested="3", free="2"),)


def test_a_job_with_a_pod_that_no_node_takes_never_starts() -> None:
    """Pods of an even share of its minimum would all have room."""
    world = World().queue("default").node("n1", cpu="4").node("n2", cpu="4")
    job = job_of_tasks("train", launcher=(1, "1"), worker=(1, "6"))

    answer = ask(world, forecast_for=forecasts(world), job=job)

    assert answer.starts_now is False
    assert answer.expected_start is not None
    assert answer.expected_start.median is None
    assert answer.expected_start.never


def test_a_job_that_evicts_names_the_pods() -> None:
    world = World().queue("default").node("n1", cpu="2")
    world.priority("high", 1000).priority("low", 1)
    running(world, "batch", cpu="1", node="n1", priority="low", preemptable=True)
    world.pod("batch-1", "batch", cpu="1", node="n1")

    answer = ask(world, EVICTING, job=job_of_tasks("urgent", worker=(1, "1"), priority="high"))

    assert answer.starts_now is True
    [evicted] = answer.evictions
    assert evicted in {
        EvictedPod(namespace="ns", name=f"batch-{number}", job="batch", queue="default")
        for number in (0, 1)
    }
    assert answer.placements == (TaskPlacement(task="worker", node="n1", pods=1),)


def test_tasks_that_wait_for_others_do_not_count_at_the_start() -> None:
    world = World().queue("default").node("n1", cpu="2")
    wanted = job_of_tasks("train", first=(1, "1"), then=(1, "2"))
    wanted["spec"]["tasks"][1]["dependsOn"] = {"name": ["first"]}
    wanted["spec"]["minAvailable"] = 1

    answer = ask(world, job=wanted)

    assert answer.placements == (TaskPlacement(task="first", node="n1", pods=1),)


def test_more_nodes_start_jobs_that_wait() -> None:
    world = World().queue("default").node("n1", cpu="1")
    world.gang("wide", pods=2, cpu="2")

    answer = ask(world, addNodes=[{"count": 2, "template": stored_node("any", cpu="2")}])

    assert answer.starting == (ObjectRef(kind="PodGroup", namespace="ns", name="wide"),)


def test_more_room_in_a_queue_starts_jobs_that_have_no_pods_yet() -> None:
    world = World().queue("default", capability={"cpu": "1"}).node("n1", cpu="4")
    world.waiting("wide", pods=2, cpu="4")

    queue = {"metadata": {"name": "default"}, "spec": {"capability": {"cpu": "4"}}}

    assert ask(world, queue=queue).starting == (
        ObjectRef(kind="PodGroup", namespace="ns", name="wide"),
    )


def test_a_queue_that_gets_more_starts_its_jobs_and_keeps_what_the_change_does_not_name() -> None:
    stated = {"capability": {"cpu": "1", "memory": "2"}, "deserved": {"memory": "1"}}
    world = World().queue("default", weight=3, priority=7, **stated).node("n1", cpu="4")
    world.waiting("wide", pods=2, cpu="4")

    answer = ask(world, changeQueue={"name": "default", "capability": {"cpu": "4"}})

    assert answer.starting == (ObjectRef(kind="PodGroup", namespace="ns", name="wide"),)
    change = QueueChange(
        name="default", capability={"cpu": "4"}, guarantee={"cpu": "1"}, deserved={"cpu": "2"}
    )
    assert changed_queue(change, world.mirror).spec == QueueSpec(
        weight=3,
        priority=7,
        capability={"cpu": "4", "memory": "2"},
        deserved={"cpu": "2", "memory": "1"},
        guarantee=Guarantee(resource={"cpu": "1"}),
    )
    assert changed_queue(QueueChange(name="default", weight=9), world.mirror).spec.weight == 9


def test_a_job_that_waits_for_its_queue_starts_once_that_may_have_more() -> None:
    world = World().queue("default", capability={"cpu": "1"}).node("n1", cpu="4")
    asked = job_of_tasks("train", worker=(1, "2"))

    assert ask(world, job=asked).gate == "enqueue"
    change = {"name": "default", "capability": {"cpu": "2"}}
    assert ask(world, job=asked, changeQueue=change).starts_now is True


def test_a_drained_node_is_left_and_takes_nothing() -> None:
    world = World().queue("default").node("n1", cpu="4").node("n2", cpu="1")
    running(world, "other", cpu="1", node="n1")

    answer = ask(world, job=job_of_tasks("train", worker=(1, "2")), drainNodes=["n1"])

    assert [evicted.name for evicted in answer.evictions] == ["other-0"]
    assert answer.starts_now is False


def test_pods_of_a_drained_node_are_placed_elsewhere_and_keep_others_out() -> None:
    world = World().queue("default").node("n1", cpu="4").node("n2", cpu="4")
    world.group("other", phase="Running", minMember=2)
    for number in range(2):
        world.pod(f"other-{number}", "other", cpu="1", node="n1")

    answer = ask(world, job=job_of_tasks("train", worker=(1, "3")), drainNodes=["n1"])
    without = ask(world, job=job_of_tasks("train", worker=(1, "2")), drainNodes=["n1"])

    assert (answer.drained_pods, answer.unplaced_pods, answer.losing) == (2, 0, ())
    assert (answer.starts_now, without.starts_now) == (False, True)
    assert [evicted.name for evicted in answer.evictions] == ["other-0", "other-1"]


def test_jobs_whose_pods_have_no_place_without_a_node_are_named() -> None:
    world = World().queue("default").node("n1", cpu="4").node("n2", cpu="4")
    world.group("whole", phase="Running", minMember=2)
    world.pod("whole-0", "whole", cpu="2", node="n1").pod("whole-1", "whole", cpu="2", node="n2")
    world.group("elastic", phase="Running", minMember=1)
    world.pod("elastic-0", "elastic", cpu="2", node="n1")
    world.pod("elastic-1", "elastic", cpu="2", node="n2")

    answer = ask(world, drainNodes=["n1"])

    assert (answer.drained_pods, answer.unplaced_pods) == (2, 2)
    assert [(each.job.name, each.pods, each.stops) for each in answer.losing] == [
        ("elastic", 1, False),
        ("whole", 1, True),
    ]


def test_a_node_without_pods_of_jobs_costs_none() -> None:
    answer = ask(World().queue("default").node("n1"), drainNodes=["n1"])

    assert (answer.drained_pods, answer.unplaced_pods, answer.evictions) == (0, 0, ())


def test_a_job_of_higher_priority_delays_one_that_was_about_to_start() -> None:
    world = World().queue("default").node("n1", cpu="2").priority("high", 1000)
    world.waiting("next", pods=1, cpu="2")

    answer = ask(world, job=job_of_tasks("urgent", worker=(1, "2"), priority="high"))

    assert answer.starts_now is True
    assert [(delay.job.name, delay.seconds) for delay in answer.delays] == [("next", None)]


def test_a_delay_lasts_until_the_delayed_job_is_expected_to_start() -> None:
    world = World().queue("default").node("n1", cpu="2").priority("high", 1000)
    world.waiting("next", pods=1, cpu="2")
    urgent = job_of_tasks("urgent", worker=(1, "2"), priority="high")
    urgent["metadata"]["annotations"] = {"pumice.dev/expected-duration": "10m"}

    answer = ask(world, forecast_for=forecasts(world), job=urgent)

    [delay] = answer.delays
    assert (delay.job.name, delay.seconds) == ("next", 600.0)
    assert world.mirror.state.jobs.get("ns/urgent-what-if") is None


def test_the_queue_of_the_namespace_is_heeded_as_admission_does() -> None:
    world = World().queue("default").queue("team", capability={"cpu": "1"}).node("n1", cpu="4")
    world.namespace("ns", queue="team")

    assert ask(world, job=job_of_tasks("train", worker=(1, "2"))).gate == "enqueue"


def test_a_job_that_has_ended_may_be_asked_about_again() -> None:
    """Its PodGroup is gone, and its pods, which keep their names, are there."""
    world = World().queue("default").node("n1", cpu="4")
    for number in range(2):
        world.pod(f"train-worker-{number}", "train-uid", cpu="1", node="n1", phase="Succeeded")

    answer = ask(world, job=job_of_tasks("train", worker=(2, "1")))

    assert answer.starts_now
    assert answer.placements == (TaskPlacement(task="worker", node="n1", pods=2),)


def of_class(name: str) -> dict[str, Any]:
    """Return a job of which a task names a priority class."""
    job = job_of_tasks("train", worker=(1, "1"))
    job["spec"]["tasks"][0]["template"]["spec"]["priorityClassName"] = name
    return job


def test_priority_classes_of_kubernetes_are_always_there() -> None:
    world = World().queue("default").node("n1", cpu="4")
    assert ask(world, job=of_class("system-cluster-critical")).starts_now


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({}, "spec"),
        (
            {"job": job_of_tasks("train", worker=(1, "much"))},
            "spec.job.spec.tasks[0].template.spec.containers[0].resources.requests.cpu",
        ),
        ({"job": job_of_tasks("train", worker=(1, "1"), queue="none")}, "spec.job.spec.queue"),
        ({"job": job_of_tasks("train", worker=(PODS_MAX + 1, "1"))}, "spec.job.spec.tasks"),
        (
            {"job": job_of_tasks("T", worker=(1, "1"), scheduler="other")},
            "spec.job.spec.schedulerName",
        ),
        (
            {"job": job_of_tasks("train", worker=(1, "1"), priority="hihg")},
            "spec.job.spec.priorityClassName",
        ),
        (
            {"job": of_class("hihg")},
            "spec.job.spec.tasks[0].template.spec.priorityClassName",
        ),
        ({"drainNodes": ["n9"]}, "spec.drainNodes[0]"),
        ({"addNodes": [{"like": "n9"}]}, "spec.addNodes[0].like"),
        ({"addNodes": [{"count": 1}]}, "spec.addNodes[0]"),
        ({"addNodes": [{"count": 0, "like": "n1"}]}, "spec.addNodes[0].count"),
        ({"addNodes": [{"like": "n1"}, {"count": -3, "like": "n1"}]}, "spec.addNodes[1].count"),
        ({"addNodes": [{"count": 5000, "like": "n1"}]}, "spec.addNodes"),
        ({"changeQueue": {"name": "none"}}, "spec.changeQueue.name"),
        ({"changeQueue": {"name": "default"}, "queue": {}}, "spec.changeQueue"),
    ],
    ids=[
        "nothing is asked",
        "an amount that is none",
        "an unknown queue",
        "too many pods",
        "another scheduler",
        "an unknown priority class",
        "an unknown priority class of a task",
        "an unknown node to drain",
        "an unknown node to copy",
        "a node of no form",
        "no node to add",
        "fewer nodes by adding",
        "too many nodes",
        "an unknown queue to change",
        "a queue and a change of it",
    ],
)
def test_a_question_that_cannot_be_answered_names_the_field(
    spec: dict[str, Any], field: str
) -> None:
    world = World().queue("default").node("n1", cpu="4")

    with pytest.raises(BadQuery) as refused:
        ask(world, **spec)

    assert refused.value.field == field


def test_questions_cannot_fill_the_arrays_with_names_of_resources() -> None:
    world = World().queue("default").node("n1", cpu="4")
    capacity = world.mirror.state.dimensions.capacity

    def ask_for_many() -> None:
        for number in range(capacity + 1):
            ask(
                world,
                job=job_of_tasks("train", worker=(1, "1"), also={f"example.com/r{number}": "1"}),
            )

    with pytest.raises(BadQuery, match="no object in the cluster has named"):
        ask_for_many()

    assert world.mirror.state.dimensions.capacity == capacity


def test_a_name_that_a_job_has_is_no_hindrance() -> None:
    world = World().queue("default").node("n1", cpu="4")
    running(world, "train-uid", cpu="1", node="n1", owner="train")

    assert ask(world, job=job_of_tasks("train", worker=(1, "1"))).starts_now is True


def test_cards_that_are_chosen_in_thought_are_not_kept() -> None:
    world = World().queue("default")
    cards = {GPU_MEMORY: "16", "volcano.sh/gpu-number": "1"}
    with_cards = stored_node("n1", cpu="4", **cards)
    with_cards["status"]["capacity"] = with_cards["status"]["allocatable"]
    container = {"name": "main", "resources": {"requests": {GPU_MEMORY: "8"}}}
    world.group("wide", phase="Inqueue").pod("wide-0", "wide", cpu="0", containers=[container])

    answer = ask(world, SHARING, addNodes=[{"count": 1, "template": with_cards}])

    assert [each.name for each in answer.starting] == ["wide"]
    assert memory_of(world.mirror.state)["cards"] == []


def test_the_replica_is_made_of_the_kinds_that_the_scheduler_reads() -> None:
    assert {"nodes", "pods", "podgroups", "queues", "namespaces"} <= ClusterMirror().kinds


def test_the_time_is_looked_at_while_pods_are_made():
    world = World().queue("default").node("n", cpu="100000", pods="100000")
    looks = 0

    def out_of_time() -> bool:
        nonlocal looks
        looks += 1
        return looks > 100

    job = job_of_tasks("large", worker=(5_000, "1"))
    spec = msgspec.json.decode(msgspec.json.encode({"job": job}), type=WhatIfSpec)
    policy = DecisionPolicy(config=configure(CONF))
    with pytest.raises(BadQuery, match="its pods take too long") as refused:
        what_if(world.mirror, policy, spec, namespace="ns", now=NOW, out_of_time=out_of_time)
    assert refused.value.field == "spec"
    assert looks == 101
    assert world.mirror.state.jobs.get("ns/large") is None
