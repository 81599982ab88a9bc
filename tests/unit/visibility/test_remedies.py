"""The smallest change with which a job starts now is named, and the job then starts."""

import copy

import pytest

from pumice.queries.text import shortages
from services.visibility.forecast.durations import History
from services.visibility.forecast.forecaster import forecast
from services.visibility.forecast.simulation import SchedulerRules
from shared.contracts.messages import ItemOutcome, Outcome, Result
from tests.unit.visibility.mirrors import NOW, World, running
from tests.unit.visibility.situations import full_queue
from tests.unit.visibility.test_explaining_a_job import answer, failed, policy, two_full_nodes


def cordoned() -> World:
    world = World().queue("default").node("n1", cpu="4").node("n2", cpu="8")
    running(world, "one", cpu="2", node="n1")
    return cordon(world, "n2").gang("job", pods=2, cpu="2")


def cordon(world: World, name: str, *, is_cordoned: bool = True) -> World:
    node = copy.deepcopy(world.objects["nodes", name])
    node["spec"] = {"unschedulable": is_cordoned}
    return world.put("nodes", node)


def refuse_bind(world: World, pod: str, why: str) -> None:
    """Let the API server refuse a bind; its back-off is over when a test asks."""
    uid = world.objects["pods", f"ns/{pod}"]["metadata"]["uid"]
    item = ItemOutcome(pod=f"ns/{pod}", uid=uid, result=Result.FAILED, message=why)
    outcome = Outcome(intent="i", job="ns/job", items=(item,), instance="b", time=NOW)
    world.mirror.outcomes([outcome])
    world.mirror.state.review_refusals(NOW - 600)
    world.mirror.state.review_refusals(NOW)


def label(world: World, name: str, **labels: str) -> World:
    node = copy.deepcopy(world.objects["nodes", name])
    node["metadata"]["labels"] |= labels
    return world.put("nodes", node)


def taint(world: World, name: str, *taints: str) -> World:
    node = copy.deepcopy(world.objects["nodes", name])
    node["spec"] = {"taints": [{"key": each, "effect": "NoSchedule"} for each in taints]}
    return world.put("nodes", node)


def selecting() -> World:
    world = World().queue("default").node("n1", cpu="4").node("n2", cpu="8")
    world.group("job", phase="Inqueue", minMember=1)
    return world.pod("job-0", "job", cpu="2", nodeSelector={"disk": "sdd"})


def tainted() -> World:
    world = taint(World().queue("default").node("n1", cpu="4"), "n1", "gpu-only")
    return world.gang("job", pods=1, cpu="1")


def a_part_of_the_gang() -> World:
    """Room for two of three pods."""
    world = World().queue("default").node("n1", cpu="8").node("n2", cpu="8")
    return world.gang("job", pods=3, cpu="8")


def subgroups() -> World:
    """A gang of CPU pods in which a pair for GPUs has to start as well."""
    world = World().queue("default").node("n1", cpu="16")
    policies = [
        {
            "name": name,
            "subGroupSize": size,
            "minSubGroups": 1,
            "labelSelector": {"matchLabels": {"part": name}},
            "matchLabelKeys": ["part"],
        }
        for name, size in (("head", 1), ("gpu", 2))
    ]
    world.group("job", phase="Inqueue", minMember=3, subGroupPolicy=policies)
    for name in ("head-0", "cpu-0", "cpu-1", "cpu-2", "gpu-0", "gpu-1"):
        part = name.partition("-")[0]
        asked = {"cpu": "1", **({GPU: "1"} if part == "gpu" else {})}
        containers = [{"name": "main", "resources": {"requests": asked}}]
        world.pod(
            f"job-{name}", "job", cpu="", metadata={"labels": {"part": part}}, containers=containers
        )
    return world


GPU = "nvidia.com/gpu"


def a_queue_full_of_both() -> World:
    """A pod for more GPUs than a node has, and a queue without CPUs or GPUs left."""
    limits = {"cpu": "4", GPU: "4"}
    world = World().queue("default", capability=limits).node("n1", cpu="16", **{GPU: "4"})
    containers = [{"name": "main", "resources": {"requests": {"cpu": "4", GPU: "4"}}}]
    world.group("other", phase="Running", minResources={"cpu": "4", GPU: "4"})
    world.pod("other-0", "other", cpu="", node="n1", containers=containers)
    asked = {"cpu": "1", GPU: "8"}
    return world.group("job", phase="Pending", minMember=1, minResources=asked)


REMEDIES = {
    "a cordoned node": (
        cordoned,
        "node n2 uncordoned",
        lambda w: cordon(w, "n2", is_cordoned=False),
    ),
    "a label": (selecting, "label disk=sdd on node n2", lambda w: label(w, "n2", disk="sdd")),
    "a taint": (tainted, "no taint gpu-only:NoSchedule on node n1", lambda w: taint(w, "n1")),
    "as much as is missing": (
        full_queue,
        "1 cpu more in queue default",
        lambda w: w.queue("default", capability={"cpu": "5"}),
    ),
    "room for one of the pods": (
        a_part_of_the_gang,
        "a node with 8 cpu",
        lambda w: w.node("n3", cpu="8"),
    ),
    "what a subgroup asks for": (
        subgroups,
        "a node with 2 cpu and 2 nvidia.com/gpu",
        lambda w: w.node("n2", cpu="2", **{GPU: "2"}),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REMEDIES)
def test_the_smallest_change_with_which_a_job_starts_is_named(case: str) -> None:
    build, text, change = REMEDIES[case]
    world = build()
    found = answer(world, "job")
    assert text in found.would_help

    change(world)

    after = answer(world, "job")
    assert not failed(after) or after.next_event == "the scheduler places it"


def test_a_queue_is_raised_by_what_a_later_gate_finds_short() -> None:
    """Overcommit finds the GPUs of the cluster short; the queue has no CPU left either."""
    found = answer(a_queue_full_of_both(), "job", "overcommit}, {name: capacity")
    assert failed(found) == "enqueue"
    assert [each.resource for each in found.shortages] == [GPU]
    assert found.would_help == (
        f"1 cpu and 8 {GPU} more in queue default and a node with 1 cpu and 8 {GPU}",
    )


def test_what_is_short_is_told_in_pods_and_nodes() -> None:
    found = answer(a_part_of_the_gang(), "job")
    assert shortages(found.shortages) == "3 pods of 8 cpu each; 2 nodes have that free"

    alone = answer(two_full_nodes().gang("job", pods=1, cpu="2500m"), "job")
    assert shortages(alone.shortages) == "1 pod of 2.5 cpu; no node has that free (most: 1)"


def test_the_end_of_a_job_is_next_only_where_it_helps() -> None:
    found = answer(subgroups(), "job")

    assert not any("the end" in text for text in found.would_help)
    assert "ends" not in found.next_event.replace("nothing that ends helps", "")


def test_no_room_is_said_to_help_a_pod_whose_bind_the_api_server_refused() -> None:
    world = two_full_nodes().gang("job", pods=1, cpu="4")
    assert answer(world, "job").would_help
    refuse_bind(world, "job-0", "denied by policy no-gpus")

    found = answer(world, "job")

    assert (failed(found), found.would_help) == ("quota", ())
    assert found.next_event == (
        "a bind of pod job-0 succeeds; the API server refused to bind it: denied by policy no-gpus"
    )
    [expected] = forecast(
        world.mirror.state, SchedulerRules(policy().config), History(), now=NOW, draws=1
    ).values()
    assert expected.unknown.startswith("pod job-0: the API server refused to bind it")


def test_a_gang_that_starts_without_the_pod_that_was_refused_is_told_what_helps() -> None:
    world = two_full_nodes().group("job", phase="Inqueue", minMember=1)
    world.pod("job-0", "job", cpu="4").pod("job-1", "job", cpu="4")
    refuse_bind(world, "job-0", "denied by policy no-gpus")

    assert "a node with 4 cpu" in answer(world, "job").would_help


def test_what_is_short_for_pods_beyond_the_minimum_counts_each_of_them() -> None:
    world = World().queue("default").node("n1", cpu="4")
    running(world, "job", cpu="3", node="n1")
    world.pod("job-1", "job", cpu="2").pod("job-2", "job", cpu="2")

    assert shortages(answer(world, "job").shortages) == (
        "2 pods of 2 cpu each; no node has that free (most: 1)"
    )
