"""The tree of queues: the figures that the sharing plugin itself decides by."""

import pytest

from pumice.testing import Cluster
from services.visibility.api.resources import RESOURCES
from services.visibility.api.tables import table
from services.visibility.queries.survey import DecisionPolicy, survey
from shared.api.visibility import QueueResource, QueueTree

TIERS = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: predicates}, {name: SHARING}, {name: nodeorder}]
"""
PROPORTION, CAPACITY = "proportion", "capacity"
HIERARCHY = "capacity, enableHierarchy: true"


def cluster(sharing: str = PROPORTION) -> Cluster:
    return Cluster(TIERS.replace("SHARING", sharing), queue=False).node("n1", cpu="8")


def trees(world: Cluster) -> dict[str, QueueTree]:
    found = survey(world.cluster_state, DecisionPolicy(config=world.config), now=0.0)
    return {tree.metadata.name: tree for tree in found.trees}


def cpu(tree: QueueTree) -> QueueResource:
    [found] = [each for each in tree.resources if each.resource == "cpu"]
    return found


def running(world: Cluster, name: str, queue: str, amount: str) -> Cluster:
    world.group(name, phase="Running", queue=queue)
    return world.pod(f"{name}-0", name, cpu=amount, node="n1")


def test_proportion_tells_what_a_queue_deserves_and_holds() -> None:
    world = cluster().queue("a", weight=1).queue("b", weight=1)
    running(world, "mine", "a", "6")
    world.gang("other", tasks=1, cpu="8", queue="b")

    found = trees(world)

    assert cpu(found["a"]).deserved == "4"
    assert cpu(found["a"]).allocated == "6"
    assert cpu(found["a"]).overused is True
    assert cpu(found["b"]).allocated == "0"
    assert cpu(found["b"]).overused is False


def test_a_queue_that_the_plugin_does_not_judge_is_not_overused() -> None:
    """The root is made with amounts of zero; proportion shares among the queues below it."""
    none = {"cpu": "0", "memory": "0"}
    world = cluster().queue("root", deserved=none).queue("a", parent="root")

    found = cpu(trees(running(world, "mine", "a", "6"))["root"])

    assert (found.allocated, found.deserved, found.overused) == ("6", "", False)


@pytest.mark.parametrize("sharing", [PROPORTION, CAPACITY])
def test_stated_amounts_are_told_and_others_stay_empty(sharing: str) -> None:
    world = cluster(sharing).queue(
        "a", capability={"cpu": "6"}, guarantee={"resource": {"cpu": "2"}}
    )

    found = cpu(trees(running(world, "mine", "a", "1"))["a"])

    assert (found.capability, found.guarantee) == ("6", "2")
    [memory] = [each for each in trees(world)["a"].resources if each.resource == "memory"]
    assert (memory.capability, memory.guarantee) == ("", "")


def test_admitted_jobs_without_pods_are_inqueue_and_others_pending() -> None:
    world = cluster(CAPACITY).queue("a", capability={"cpu": "4"})
    world.group("in", phase="Inqueue", queue="a", minResources={"cpu": "3"})
    world.group("out", phase="Pending", queue="a", minResources={"cpu": "2"})

    found = trees(world)["a"]

    assert (cpu(found).inqueue, cpu(found).pending) == ("3", "2")
    assert (found.inqueue_jobs, found.pending_jobs, found.running_jobs) == (1, 1, 0)


def family(sharing: str) -> Cluster:
    world = cluster(sharing).queue("root").queue("eng", parent="root", deserved={"cpu": "4"})
    world.queue("dev", parent="eng", deserved={"cpu": "1"}).queue("ops", parent="root")
    return running(running(world, "one", "dev", "2"), "two", "ops", "1")


@pytest.mark.parametrize("sharing", [PROPORTION, CAPACITY, HIERARCHY])
def test_a_parent_has_what_the_queues_below_it_hold(sharing: str) -> None:
    found = trees(family(sharing))

    held = {name: cpu(tree).allocated for name, tree in found.items()}
    assert held == {"root": "3", "eng": "2", "dev": "2", "ops": "1"}
    assert {name: tree.running_jobs for name, tree in found.items()} == {
        "root": 2, "eng": 1, "dev": 1, "ops": 1,
    }  # fmt: skip


def test_each_queue_comes_behind_its_parent() -> None:
    found = trees(family(HIERARCHY))

    assert [(name, tree.depth, tree.parent) for name, tree in found.items()] == [
        ("root", 0, ""),
        ("eng", 1, "root"),
        ("dev", 2, "eng"),
        ("ops", 1, "root"),
    ]
    assert found["root"].children == ("eng", "ops")


def test_a_queue_of_a_tree_is_overused_beyond_what_it_deserves() -> None:
    found = trees(family(HIERARCHY))

    assert cpu(found["dev"]).overused is True
    assert cpu(found["eng"]).overused is False


def test_parents_in_a_ring_and_unknown_ones_make_roots() -> None:
    world = cluster().queue("a", parent="b").queue("b", parent="a").queue("c", parent="gone")

    assert {name: tree.depth for name, tree in trees(world).items()} == {"a": 0, "b": 0, "c": 0}


def test_without_a_plugin_that_shares_what_is_held_is_still_told() -> None:
    world = cluster("nodegroup").queue("a", deserved={"cpu": "1"})

    found = cpu(trees(running(world, "mine", "a", "2"))["a"])

    assert (found.allocated, found.deserved, found.overused) == ("2", "1", True)


def test_the_table_of_kubectl_tells_what_a_queue_holds_in_decimals() -> None:
    world = cluster().queue("a", weight=1)
    running(world, "one", "a", "2500m")
    (resource,) = (each for each in RESOURCES if each.plural == "queuetrees")

    rows = table(resource, list(trees(world).values()), now=0.0)["rows"]

    (cells,) = (row["cells"] for row in rows if row["cells"][0] == "a")
    assert "cpu=2.5" in str(cells)
    assert "m," not in str(cells)
