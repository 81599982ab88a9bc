"""Forty questions, each asked, acted on, and compared with what then happens.

A row is a situation in which `ns/job` waits, or is only thought of. It is asked why, what would
help, when, or what if; then the scheduler's own worker decides beside a controller and a binder
(`Cluster`), as things are and with each change that was named, and the job does what was said.
"""

import copy
import re
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import pytest

from services.visibility.forecast.durations import History
from services.visibility.forecast.forecaster import forecast
from services.visibility.forecast.simulation import SchedulerRules
from services.visibility.queries.explaining import explain, subject_of
from services.visibility.queries.survey import DecisionPolicy, survey
from shared.api import keys
from shared.api import time as times
from shared.api.visibility import Explanation
from tests.support.laws import configured
from tests.support.world import Json
from tests.unit.visibility.mirrors import NOW, Cluster, World, ask, job_of_tasks, running
from tests.unit.visibility.situations import (
    all_cordoned,
    anti_affinity,
    behind_a_gang,
    closed_queue,
    cordoned,
    elastic_beyond_its_minimum,
    full_parent,
    full_queue,
    full_queue_and_full_nodes,
    gang_beside_another,
    gang_too_wide,
    gated_pods,
    held_by_three,
    launcher_and_workers,
    low,
    no_gpu_anywhere,
    no_such_queue,
    not_admitted_and_too_large,
    not_admitted_gang,
    not_admitted_on_a_full_cluster,
    one_node,
    pair_for_gpus_in_a_gang,
    pod_larger_than_a_node,
    polite_beside_a_low_one,
    preempting,
    selected_node_is_full,
    selector_typo,
    tainted,
    terminating_pod,
    too_few_pods,
    too_few_pods_and_no_room,
    two_gpus_on_nodes_of_one,
)

PLAIN = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: overcommit}, {name: predicates}, {name: proportion}, {name: nodeorder}]
"""
CAPACITY = PLAIN.replace("{name: overcommit}, ", "").replace("proportion", "capacity")
TREE = CAPACITY.replace("{name: capacity}", "{name: capacity, enableHierarchy: true}")
PREEMPTING = PLAIN.replace("allocate, backfill", "allocate, preempt, backfill").replace(
    "{name: overcommit}, ", ""
)

Words = re.Match[str]


class Question(NamedTuple):
    build: Callable[[], World]
    gate: str
    """The gate that stops it, "" where it starts by itself."""
    help: str = ""
    """One of the changes that are named; "" for none."""
    conf: str = PLAIN


WAITING = {
    "a gang that is too wide": Question(gang_too_wide, "quota", "a node with 8 cpu"),
    "a gang beside another job": Question(
        gang_beside_another, "quota", "2 nodes, each with 8 cpu"
    ),
    "a pod that is larger than any node": Question(
        pod_larger_than_a_node, "predicate", "a node with 6 cpu"
    ),
    "a job not admitted yet, larger than a node": Question(not_admitted_and_too_large, "gang"),
    "a job not admitted, on a full cluster": Question(
        not_admitted_on_a_full_cluster, "enqueue", "a node with 4 cpu"
    ),
    "a gang not admitted": Question(not_admitted_gang, "enqueue", "a node with 3 cpu"),
    "a full queue": Question(full_queue, "quota", "1 cpu more in queue default", CAPACITY),
    "a full queue on full nodes": Question(
        full_queue_and_full_nodes,
        "quota",
        "2 cpu more in queue default and a node with 2 cpu",
        CAPACITY,
    ),
    "a queue whose parent is full": Question(
        full_parent, "quota", "1 cpu more in queue eng", TREE
    ),
    "a closed queue": Question(closed_queue, "enqueue", "queue default opened"),
    "a queue that is not there": Question(no_such_queue, "queue", "a queue reserach"),
    "a typo in a node selector": Question(
        selector_typo, "predicate", "label disk=sdd on node n2"
    ),
    "the selected node is full": Question(
        selected_node_is_full, "predicate", "a node with 2 cpu, label disk=ssd"
    ),
    "a cordoned node": Question(cordoned, "predicate", "node n2 uncordoned"),
    "every node is cordoned": Question(all_cordoned, "predicate", "nodes n1, n2 uncordoned"),
    "a taint": Question(tainted, "predicate", "no taint gpu-only:NoSchedule on node n1"),
    "no node with a GPU": Question(
        no_gpu_anywhere, "quota", "a node with 1 cpu and 1 nvidia.com/gpu"
    ),
    "two GPUs on nodes of one": Question(
        two_gpus_on_nodes_of_one, "predicate", "a node with 1 cpu and 2 nvidia.com/gpu"
    ),
    "a pair for GPUs in a gang": Question(
        pair_for_gpus_in_a_gang, "quota", "a node with 2 cpu and 2 nvidia.com/gpu"
    ),
    "a launcher and workers": Question(launcher_and_workers, "quota", "a node with 6 cpu"),
    "too few pods": Question(too_few_pods, "gang", "2 more pods"),
    "too few pods and no room": Question(too_few_pods_and_no_room, "gang"),
    "pods with scheduling gates": Question(gated_pods, "gang", "no scheduling gate on 2 pods"),
    "a pod that terminates": Question(terminating_pod, "gang"),
    "an elastic job beyond its minimum": Question(
        elastic_beyond_its_minimum, "quota", "a node with 1 cpu"
    ),
    "preemptionPolicy Never": Question(
        polite_beside_a_low_one, "quota", "a node with 2 cpu", PREEMPTING
    ),
    "a job that preempts": Question(preempting, "", "", PREEMPTING),
    "a gang ahead of it": Question(behind_a_gang, "quota"),
    "three jobs that hold a node": Question(
        held_by_three, "quota", "the end of the 3 jobs that hold most of it"
    ),
    "anti-affinity": Question(anti_affinity, "predicate", "a node with 1 cpu"),
}  # fmt: skip


def why(world: World, conf: str) -> Explanation:
    rules = DecisionPolicy(config=configured(conf))
    found = survey(world.mirror.state, rules, now=NOW)
    subject = subject_of(world.mirror, "ns", "job")
    assert subject is not None
    assert subject.job is not None
    return explain(world.mirror, rules, subject, found.explanations.get(subject.job.key), now=NOW)


def placed(cluster: Cluster) -> int:
    """Return how many pods of the job are on nodes, 0 while it has not what it needs."""
    job = cluster.job("ns/job")
    return job.allocated_count if job.is_ready else 0


def after(world: World, conf: str, change: Callable[[Cluster], None] = lambda _: None) -> int:
    """Return how many pods of the job run once a change is made and everything is at rest."""
    cluster = Cluster(world, conf)
    change(cluster)
    cluster.run()
    return placed(cluster)


@pytest.mark.parametrize("case", WAITING)
def test_a_job_waits_as_it_is_told_and_starts_with_each_change_that_would_help(case: str) -> None:
    build, gate, named, conf = WAITING[case]
    world = build()
    before = placed(Cluster(world, conf))

    found = why(world, conf)

    failed = next((each.name for each in found.gates if each.state == "Failed"), "")
    told = (failed, found.would_help, found.next_event)
    if not gate:
        assert found.next_event.startswith("the scheduler places it"), told
        assert after(world, conf) > before
        return
    assert failed == gate, told
    assert after(world, conf) == before, "it waits"
    assert not named or named in found.would_help, told
    for words in found.would_help:
        assert after(world, conf, made_by(words, found)) > before, words
    if found.next_event.startswith("pods that terminate"):
        assert after(world, conf, terminated) > before


def test_who_would_help_nothing_says_so() -> None:
    assert why(too_few_pods_and_no_room(), PLAIN).would_help == ()
    assert why(terminating_pod(), PLAIN).next_event == (
        "pods that terminate leave their nodes (1 in the cluster)"
    )


# --- a person who does what is said --------------------------------------------------------------


def amounts(words: str) -> dict[str, str]:
    """Return `2 cpu and 1 nvidia.com/gpu` as amounts by resource."""
    parts = re.split(r", (?=\d)| and (?=\d)", words)
    return {name: amount for amount, name in (part.split(" ") for part in parts)}


def made_by(words: str, found: Explanation) -> Callable[[Cluster], None]:
    """Return the change that a line names, made in the objects."""
    for pattern, make in READINGS:
        match = re.fullmatch(pattern, words)
        if match is not None:
            return partial(make, match, found)
    raise AssertionError(f"nobody can do this: {words}")


def both(words: Words, found: Explanation, cluster: Cluster) -> None:
    for part in words.groups():
        made_by(part, found)(cluster)


def add_nodes(words: Words, _: Explanation, cluster: Cluster) -> None:
    count, has, labels = words.groups()
    for number in range(int(count or 1)):
        world = World().node(f"new-{number}", **{"cpu": "0", **amounts(has)})
        node = world.objects["nodes", f"new-{number}"]
        for label in filter(None, (labels or "").split(", label ")):
            key, _, value = label.partition("=")
            node["metadata"].setdefault("labels", {})[key] = value
        cluster.put("nodes", node)


def raise_queue(words: Words, _: Explanation, cluster: Cluster) -> None:
    def change(queue: Json) -> None:
        limits = queue["spec"]["capability"]
        for resource, amount in amounts(words[1]).items():
            limits[resource] = str(int(limits[resource]) + int(amount))

    cluster.edit("queues", words[2], change)


def uncordon(words: Words, _: Explanation, cluster: Cluster) -> None:
    for name in words[1].split(", "):
        cluster.edit("nodes", name, lambda node: node["spec"].update(unschedulable=False))


def label(words: Words, _: Explanation, cluster: Cluster) -> None:
    labels = {words[1]: words[2]}
    cluster.edit("nodes", words[3], lambda node: node["metadata"]["labels"].update(labels))


def remove_taints(words: Words, _: Explanation, cluster: Cluster) -> None:
    cluster.edit("nodes", words[1], lambda node: node["spec"].update(taints=[]))


def open_queue(words: Words, _: Explanation, cluster: Cluster) -> None:
    cluster.edit("queues", words[1], lambda queue: queue["status"].update(state="Open"))


def make_queue(words: Words, _: Explanation, cluster: Cluster) -> None:
    cluster.put("queues", World().queue(words[1]).objects["queues", words[1]])


def more_pods(words: Words, _: Explanation, cluster: Cluster) -> None:
    for number in range(int(words[1])):
        pod = copy.deepcopy(cluster.objects["pods", "ns/job-0"])
        pod["metadata"] |= {"name": f"job-more-{number}", "uid": f"more-{number}"}
        cluster.put("pods", pod)


def lift_gates(words: Words, _: Explanation, cluster: Cluster) -> None:
    for number in range(int(words[1])):
        cluster.edit("pods", f"ns/job-{number}", lambda pod: pod["spec"].pop("schedulingGates"))


def end(words: Words, found: Explanation, cluster: Cluster) -> None:
    for holder in found.holders[: int(words[1] or 1)]:
        cluster.end(f"{holder.job.namespace}/{holder.job.name}")


READINGS = (
    (r"(.*) and ((?:a node|\d+ nodes).*)", both),
    (r"(?:a node|(\d+) nodes, each) with (.*?)(?:, label (.*))?", add_nodes),
    (r"(.*) more in queue (\S+)", raise_queue),
    (r"nodes? (.*) uncordoned", uncordon),
    (r"label (\S+)=(\S+) on node (\S+)", label),
    (r"no taint \S+ on node (\S+)", remove_taints),
    (r"queue (\S+) opened", open_queue),
    (r"a queue (\S+)", make_queue),
    (r"(\d+) more pods?", more_pods),
    (r"no scheduling gate on (\d+) pods?", lift_gates),
    (r"the end of the (?:(\d+) jobs|job) that holds? most of it", end),
)


def terminated(cluster: Cluster) -> None:
    cluster.end("ns/leaving")


# --- jobs to think of ----------------------------------------------------------------------------


class WhatIf(NamedTuple):
    build: Callable[[], World]
    tasks: dict[str, tuple[int, str]]
    starts: bool
    evicts: int = 0
    conf: str = PLAIN
    priority: str = ""


def low_and_polite() -> World:
    world = one_node().priority("high", 1000).priority("low", 1)
    world.put(
        "priorityclasses",
        {
            "metadata": {"name": "polite", "uid": "polite"},
            "value": 1000,
            "preemptionPolicy": "Never",
        },
    )
    return low(world)


WHAT_IFS = {
    "there is room": WhatIf(one_node, {"w": (2, "2")}, starts=True),
    "no node is large enough": WhatIf(one_node, {"w": (1, "9")}, starts=False),
    "a launcher and workers that no node takes": WhatIf(
        lambda: one_node("4").node("n2", cpu="4"), {"l": (1, "1"), "w": (1, "6")}, starts=False
    ),
    "a gang that is too wide": WhatIf(one_node, {"w": (5, "1")}, starts=False),
    "it preempts": WhatIf(
        low_and_polite, {"w": (1, "2")}, starts=True, evicts=1, conf=PREEMPTING, priority="high"
    ),
    "it may not preempt": WhatIf(
        low_and_polite, {"w": (1, "2")}, starts=False, conf=PREEMPTING, priority="polite"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WHAT_IFS)
def test_a_job_that_is_thought_of_does_as_it_is_told_when_it_comes(case: str) -> None:
    build, tasks, starts, evicts, conf, priority = WHAT_IFS[case]
    world = build()
    job = job_of_tasks("asked", queue="default", priority=priority, **tasks)
    before = len([key for key in world.objects if key[0] == "pods"])

    answer = ask(world, conf, job=job)

    cluster = Cluster(world, conf)
    cluster.submit(job)
    cluster.run()
    assert (answer.starts_now, len(answer.evictions)) == (starts, evicts)
    assert cluster.asked_runs is starts
    held = [p for (k, _), p in cluster.objects.items() if k == "pods" and not _is_asked(p)]
    assert before - len(held) == evicts


def _is_asked(pod: Json) -> bool:
    return str(pod["metadata"]["name"]).startswith("asked")


# --- when ----------------------------------------------------------------------------------------


def lasting(world: World, name: str, seconds: int, *, cpu: str, node: str) -> World:
    """Add a job that runs since now, for as long as it says."""
    running(world, name, cpu=cpu, node=node)
    lasts = {keys.EXPECTED_DURATION: str(seconds)}
    world.edit("podgroups", f"ns/{name}", lambda g: g["metadata"].update(annotations=lasts))
    start = times.format_seconds(NOW)
    return world.edit("pods", f"ns/{name}-0", lambda pod: pod["status"].update(startTime=start))


def two_that_end() -> World:
    world = one_node().node("n2", cpu="4")
    lasting(world, "first", 100, cpu="4", node="n1")
    return lasting(world, "second", 300, cpu="4", node="n2")


WHEN = {
    "the first of two ends": (lambda: two_that_end().gang("job", pods=1, cpu="4"), 100.0),
    "both have to end": (lambda: two_that_end().gang("job", pods=2, cpu="4"), 300.0),
    "nothing large enough ends": (lambda: two_that_end().gang("job", pods=1, cpu="5"), None),
    "there is room": (lambda: two_that_end().node("n3", cpu="4").gang("job", pods=1, cpu="4"), 0.0),
}  # fmt: skip


@pytest.mark.parametrize("case", WHEN)
def test_a_job_starts_when_it_is_told(case: str) -> None:
    build, expected_s = WHEN[case]
    world = build()
    rules = SchedulerRules(configured(PLAIN))

    found = forecast(world.mirror.state, rules, History(), now=NOW, draws=4)["ns/job"]

    if expected_s is None:
        assert found.median is None
        assert found.never
    else:
        assert found.median is not None
        assert times.parse(found.median) - NOW == expected_s
    cluster = Cluster(world, PLAIN)
    for at_s, ends in ((0.0, ""), (100.0, "ns/first"), (300.0, "ns/second")):
        if ends:
            cluster.end(ends)
        cluster.run()
        has_begun = expected_s is not None and at_s >= expected_s
        assert bool(placed(cluster)) is has_begun, at_s
