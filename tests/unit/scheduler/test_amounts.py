"""Amounts beyond all measure harm their owner alone: nothing ends, wraps or waits for them."""

import pytest

from pumice.testing import Cluster, binds_of
from services.scheduler.engine.resources.amounts import AMOUNT_MAX
from shared.api import kinds

MAX = "9223372036854775807"
SHARING = {
    plugin: (
        'actions: "enqueue, allocate, backfill, preempt, reclaim"\ntiers:\n- plugins:\n'
        "  - {name: priority}\n  - {name: gang}\n  - {name: conformance}\n"
        f"  - {{name: drf, enableHierarchy: {hierarchy}}}\n- plugins:\n  - {{name: overcommit}}\n"
        f"  - {{name: predicates}}\n  - {{name: {plugin}}}\n  - {{name: nodeorder}}\n"
        "  - {name: binpack}\n"
    )
    for plugin, hierarchy in (("proportion", "true"), ("capacity", "false"))
}


def containers(*amounts: dict[str, str]) -> list[dict]:
    return [
        {"name": f"c{number}", "resources": {"requests": asked}}
        for number, asked in enumerate(amounts)
    ]


@pytest.mark.parametrize("sharing", SHARING)
@pytest.mark.parametrize(
    "asked",
    [
        [{"memory": "4Ei"}, {"memory": "4Ei"}],
        [{"memory": "8Ei"}],
        [{"cpu": MAX}],
        [{"memory": "8Ei", "cpu": MAX, "example.com/gpu": MAX, "ephemeral-storage": "8Ei"}] * 3,
        [{"cpu": "1e999"}],
    ],
    ids=["twice 4Ei", "8Ei", "most cpus", "all", "exponent"],
)
def test_a_pending_pod_of_any_size_keeps_nobody_in_its_queue_or_another_waiting(
    sharing, asked
) -> None:
    world = Cluster(SHARING[sharing]).node("n1", cpu="8").queue("other")
    world.group("huge", min_member=1, created="2025-01-01T00:00:00Z")
    for number in range(3):
        world.pod(f"huge-{number}", "huge", containers=containers(*asked))
    world.gang("mine", tasks=2, phase="Pending", minResources={"cpu": "2"})
    world.gang("theirs", tasks=2, queue="other", phase="Pending", minResources={"cpu": "2"})
    placed = binds_of(world.step()) | binds_of(world.step())
    assert set(placed) == {"mine-0", "mine-1", "theirs-0", "theirs-1"}


@pytest.mark.parametrize("sharing", SHARING)
def test_a_minimum_of_any_size_waits_alone(sharing) -> None:
    world = Cluster(SHARING[sharing]).node("n1", cpu="8")
    amounts = {"cpu": MAX, "memory": "8Ei", "example.com/gpu": MAX}
    for number in range(3):
        for phase in ("Pending", "Inqueue", "Running"):
            world.gang(f"{phase}-{number}", tasks=1, phase=phase, cpu=MAX, minResources=amounts)
    world.queue("other")
    world.gang("mine", tasks=2, phase="Pending", queue="other")
    assert set(binds_of(world.step()) | binds_of(world.step())) == {"mine-0", "mine-1"}


@pytest.mark.parametrize("amount", ["8Ei", "4Ei", "1Pi", MAX])
@pytest.mark.parametrize("pods", [1, 2, 3, 4, 5])
def test_pods_that_name_a_node_fill_it_whatever_they_ask_for(amount, pods) -> None:
    world = Cluster().node("n1", cpu="8", memory="16Gi")
    for number in range(pods):
        world.pod(f"named-{number}", memory=amount, node="n1", scheduler="other")
    world.gang("mine", tasks=1, cpu="1", memory="1Gi")
    plan = world.step()
    assert binds_of(plan) == {}
    for number in range(pods):
        world.delete(kinds.POD, "ns/" + f"named-{number}")
    assert world.cluster_state.audit() == []
    assert binds_of(world.step()) == {"mine-0": "n1"}


NAMED = [
    {"memory": "7Ei"},
    {"memory": "150Gi"},
    {"cpu": MAX},
    {"cpu": MAX, "memory": "1Pi", "example.com/gpu": MAX, "ephemeral-storage": "8Ei"},
]


@pytest.mark.parametrize("sharing", SHARING)
@pytest.mark.parametrize("asked", NAMED, ids=["7Ei", "nearly the cluster", "most cpus", "all"])
@pytest.mark.parametrize("later", [False, True], ids=["before its node", "after a session"])
def test_a_pod_of_ours_that_names_a_node_takes_one_node_from_its_queue_at_most(
    sharing, asked, later
) -> None:
    world = Cluster(SHARING[sharing]).queue("other")
    if later:
        world.node("n9", cpu="8", memory="16Gi")
        world.step()
    world.group("huge", phase="Running", min_member=1)
    world.pod("huge-0", "huge", node="n0", containers=containers(asked))
    for number in range(10):
        world.node(f"n{number}", cpu="8", memory="16Gi")
    least = {"cpu": "2", "memory": "2Gi"}
    for name, queue in (("mine", "default"), ("theirs", "other")):
        world.gang(name, tasks=2, queue=queue, memory="1Gi", phase="Pending", minResources=least)
    placed = binds_of(world.step()) | binds_of(world.step())
    assert set(placed) == {"mine-0", "mine-1", "theirs-0", "theirs-1"}
    assert "n0" not in placed.values()
    assert world.cluster_state.audit() == []
    world.delete(kinds.POD, "ns/huge-0")
    assert world.job("huge").allocated.max() == 0


@pytest.mark.parametrize("sharing", SHARING)
def test_a_group_whose_pod_names_its_node_reserves_no_more_than_a_cluster(sharing) -> None:
    world = Cluster(SHARING[sharing]).queue("other")
    for number in range(10):
        world.node(f"n{number}", cpu="8", memory="16Gi")
    for phase in ("Running", "Inqueue"):
        name = f"claims-{phase.lower()}"
        world.group(name, phase=phase, min_member=1, minResources={"memory": "7Ei", "cpu": MAX})
        world.pod(f"{name}-0", name, node="n0", cpu="1m", memory="1Mi")
    least = {"cpu": "2", "memory": "2Gi"}
    for name, queue in (("mine", "default"), ("theirs", "other")):
        world.gang(name, tasks=2, queue=queue, memory="1Gi", phase="Pending", minResources=least)
    placed = binds_of(world.step()) | binds_of(world.step())
    assert set(placed) == {"mine-0", "mine-1", "theirs-0", "theirs-1"}


def test_a_pod_that_names_a_node_counts_whole_once_a_node_is_as_large() -> None:
    world = Cluster().node("n0", cpu="8", memory="16Gi")
    world.group("wide", phase="Running", min_member=1)
    world.pod("wide-0", "wide", node="n0", cpu="32", memory="64Gi")
    world.step()
    cpu, memory = world.job("wide").allocated[:2].tolist()
    assert (cpu, memory) == (8_000, 16 << 30)
    world.node("n1", cpu="64", memory="128Gi")
    world.step()
    cpu, memory = world.job("wide").allocated[:2].tolist()
    assert (cpu, memory) == (32_000, 64 << 30)
    assert world.cluster_state.audit() == []


@pytest.mark.parametrize("amount", ["8Ei", MAX, "1e30"])
def test_a_node_of_any_size_takes_no_pod_whose_amount_is_beyond_the_bound(amount) -> None:
    world = Cluster().node("n1", cpu=amount, memory=amount)
    world.gang("huge", tasks=1, cpu="1", memory=amount)
    world.gang("mine", tasks=3, cpu="1", memory="1Gi")
    assert set(binds_of(world.step())) == {"mine-0", "mine-1", "mine-2"}


@pytest.mark.parametrize("sharing", SHARING)
def test_settings_of_a_queue_of_any_size_are_no_limit_and_no_debt(sharing) -> None:
    amounts = {"cpu": MAX, "memory": "8Ei", "ephemeral-storage": "8Ei", "example.com/gpu": MAX}
    world = Cluster(SHARING[sharing]).node("n1", cpu="8")
    for name in ("a", "b", "c"):
        world.queue(name, capability=amounts, deserved=amounts)
    world.gang("mine", tasks=2, queue="a", phase="Pending", minResources={"cpu": "2"})
    assert set(binds_of(world.step()) | binds_of(world.step())) == {"mine-0", "mine-1"}


def test_a_reservation_below_zero_makes_no_room() -> None:
    world = Cluster(SHARING["proportion"]).node("n1", cpu="2")
    world.group("debt", phase="Inqueue", minResources={"cpu": "-1000"})
    world.group("mine", phase="Pending", minResources={"cpu": "100"})
    plan = world.step()
    assert [e.gate for e in plan.explanations if e.job == "ns/mine"] == ["enqueue"]


def test_the_owner_is_told_that_an_amount_is_beyond_the_bound() -> None:
    world = Cluster().node("n1")
    world.gang("huge", tasks=1, memory="8Ei")
    world.group("large", phase="Pending", minResources={"memory": "8Ei"})
    plan = world.step()
    said = {g.key: " ".join(c.message for c in g.conditions) for g in plan.podgroups}
    assert "memory is beyond the bound of 1Pi" in said["ns/huge"]
    assert "memory is beyond the bound of 1Ei" in said["ns/large"]


def test_sums_come_back_from_beyond_the_bound_exactly() -> None:
    world = Cluster().node("n1")
    world.gang("mine", tasks=1, cpu="1", memory="1Gi", node="n1")
    before = world.job("mine").requested.copy()
    for number in range(2_000):
        world.pod(f"mine-x{number}", "mine", memory="8Ei")
    assert int(world.job("mine").requested[1]) == AMOUNT_MAX
    for number in range(2_000):
        world.delete(kinds.POD, "ns/" + f"mine-x{number}")
    assert (world.job("mine").requested == before).all()
    assert world.cluster_state.audit() == []


@pytest.mark.parametrize("pods", range(1, 7))
def test_a_node_whose_pods_leave_shows_what_their_facts_say_whatever_they_ask_for(pods) -> None:
    world = Cluster().node("n", cpu="4").group("g", min_member=1)
    for number in range(pods):
        world.pod(f"p{number}", "g", memory="8Ei", node="n", deleting=True)
        assert world.cluster_state.audit() == []
    for number in range(pods):
        world.delete(kinds.POD, f"ns/p{number}")
        assert world.cluster_state.audit() == []
