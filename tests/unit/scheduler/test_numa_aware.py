"""numa-aware: CPUs by kubelet's policies, over Numatopology objects (PL19)."""

import json

import pytest

from pumice.testing import Cluster, binds_of
from services.scheduler.engine.state.cluster_state import BadFact
from services.scheduler.engine.state.memory import memory_of, prepare_replay, restore
from services.scheduler.policy.states.cpu_topology import CpuLocation, cpu_set, take
from shared.api import kinds
from shared.model.quantity import BadQuantity

POLICY = "volcano.sh/numa-topology-policy"
CONF = """\
actions: "allocate"
tiers:
- plugins: [{name: gang}, {name: numa-aware, arguments: {weight: 10}}]
"""


def cpus(sockets: int, cores: int, threads: int = 1) -> dict[int, CpuLocation]:
    """Return CPUs as Linux numbers them: first all cores, then their second threads."""
    return {
        thread * sockets * cores + socket * cores + core: CpuLocation(socket, socket, core)
        for thread in range(threads)
        for socket in range(sockets)
        for core in range(cores)
    }


def add_node(
    world: Cluster,
    name: str,
    *,
    free: str = "0-7",
    policy: str = "single-numa-node",
    manager: str = "static",
    reserved: str = "0",
    holders: tuple[str, ...] = (),
) -> Cluster:
    """Add a node with two NUMA nodes of four CPUs."""
    world.node(name, cpu="8", memory="64Gi")
    return topology(
        world,
        name,
        free=free,
        policy=policy,
        manager=manager,
        reserved=reserved,
        holders=holders,
    )


def topology(world, name, *, free, policy, manager="static", reserved="0", holders=()):
    detail = {str(cpu): place._asdict() for cpu, place in cpus(2, 4).items()}
    spec = {
        "policies": {"CPUManagerPolicy": manager, "TopologyManagerPolicy": policy},
        "resReserved": {"cpu": reserved},
        "numares": {"cpu": {"allocatable": free, "capacity": 8}},
        "cpuDetail": detail,
        "podAllocations": [{"uid": uid} for uid in holders],
    }
    return world.put(kinds.NUMATOPOLOGY, {"metadata": {"name": name, "uid": name}, "spec": spec})


def ask(world: Cluster, name: str, *, cpu: str, policy: str = "", tasks: int = 1, limits=None):
    """Add Guaranteed pods, or with other limits Burstable ones."""
    world.group(name, min_member=1)
    stated = {"cpu": cpu, "memory": "1Gi"}
    resources = {"requests": stated, "limits": limits or stated}
    containers = [{"name": "main", "resources": resources}]
    for at in range(tasks):
        annotations = {POLICY: policy} if policy else {}
        metadata = {"annotations": annotations}
        world.pod(f"{name}-{at}", name, metadata=metadata, containers=containers)
    return world


def decisions_of(plan) -> dict[str, dict]:
    return {
        bind.pod.partition("/")[2]: json.loads(bind.annotations["volcano.sh/topology-decision"])
        for gang in plan.binds
        for bind in gang.binds
    }


@pytest.mark.parametrize(
    ("policy", "free", "placed"),
    [
        ("single-numa-node", "0-3", True),
        ("single-numa-node", "2-5", False),
        ("restricted", "2-5", False),
        ("restricted", "4-7", True),
        ("best-effort", "2-5", True),
    ],
)
def test_a_policy_decides_whether_cpus_may_lie_on_two_numa_nodes(policy, free, placed):
    world = add_node(Cluster(CONF), "n1", policy=policy, free=free)
    plan = ask(world, "g", cpu="4", policy=policy).decide()
    assert bool(binds_of(plan)) is placed
    if not placed:
        reasons = dict(plan.explanations[0].reasons)
        assert reasons == {"plugin numa-aware predicates failed": 1}


def test_restricted_takes_two_numa_nodes_for_what_one_could_never_hold():
    world = add_node(Cluster(CONF), "n1", policy="restricted")
    plan = ask(world, "g", cpu="6", policy="restricted").decide()
    numa = decisions_of(plan)["g-0"]["numa"]
    assert sum(int(has["cpu"]) for has in numa.values()) == 6
    world = add_node(Cluster(CONF), "n1")
    assert not binds_of(ask(world, "g", cpu="6", policy="single-numa-node").decide())


def test_what_was_decided_travels_with_the_binding_and_holds_in_the_next_cycle():
    world = ask(add_node(Cluster(CONF), "n1"), "g", cpu="3", policy="single-numa-node", tasks=2)
    plan = world.step()
    assert sorted(str(d) for d in decisions_of(plan).values()) == [
        "{'numa': {'0': {'cpu': '3'}}}",
        "{'numa': {'1': {'cpu': '3'}}}",
    ]
    ask(world, "h", cpu="2", policy="single-numa-node")
    assert binds_of(world.decide()) == {}
    world.delete(kinds.POD, "ns/g-0", "uid-ns/g-0")
    assert binds_of(world.decide()) == {"h-0": "n1"}


def test_the_topology_takes_over_when_it_names_a_pod():
    world = ask(add_node(Cluster(CONF), "n1"), "g", cpu="4", policy="single-numa-node")
    world.step()
    topology(world, "n1", free="4-7", policy="single-numa-node", holders=("uid-ns/g-0",))
    assert binds_of(ask(world, "h", cpu="4", policy="single-numa-node").decide()) == {"h-0": "n1"}


OTHERS = {
    "another policy": (
        {"policy": "restricted"},
        "task topology policy is different with node",
    ),
    "shared CPUs": ({"manager": "none"}, "cpu manager policy isn't static"),
    "no CPU": ({"free": ""}, "cpu allocatable map is empty"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_a_pod_with_a_policy_goes_to_nodes_that_have_it(case):
    node, reason = OTHERS[case]
    world = add_node(Cluster(CONF), "n1", **node).node("n2", memory="64Gi")
    plan = ask(world, "g", cpu="2", policy="single-numa-node").decide()
    reasons = dict(plan.explanations[0].reasons)
    assert reasons == {reason: 1, "numa info is empty": 1}


@pytest.mark.parametrize("node", [{"policy": "none"}, {"manager": "none"}, {"free": "0-7"}])
def test_a_pod_without_policy_goes_anywhere_that_does_not_refuse_it(node):
    world = ask(add_node(Cluster(CONF), "n1", **node), "g", cpu="2", policy="none")
    assert binds_of(world.decide()) == {"g-0": "n1"}
    world = ask(add_node(Cluster(CONF), "n1", free="2-5"), "g", cpu="4")
    assert binds_of(world.decide()) == {}


def test_pods_that_share_cpus_are_no_concern_of_it():
    for limits in ({"cpu": "8", "memory": "1Gi"}, {"cpu": "4"}):
        world = ask(add_node(Cluster(CONF), "n1", free="2-5"), "g", cpu="4", limits=limits)
        assert binds_of(world.decide()) == {"g-0": "n1"}
    world = ask(add_node(Cluster(CONF), "n1"), "g", cpu="1500m", policy="single-numa-node")
    assert binds_of(world.decide()) == {"g-0": "n1"}


def test_a_node_where_fewer_numa_nodes_do_is_better():
    world = Cluster(CONF)
    add_node(world, "a", policy="best-effort", free="2-5")
    add_node(world, "b", policy="best-effort", free="4-7")
    assert binds_of(ask(world, "g", cpu="4", policy="best-effort").decide()) == {"g-0": "b"}


def test_reserved_cpus_are_nobodys():
    world = add_node(Cluster(CONF), "n1", reserved="500m")
    plan = ask(world, "g", cpu="4", policy="single-numa-node", tasks=2).decide()
    assert decisions_of(plan) == {"g-0": {"numa": {"1": {"cpu": "4"}}}}


@pytest.mark.parametrize(
    ("places", "available", "count", "taken"),
    [
        (cpus(2, 4), "0-7", 4, "0-3"),
        (cpus(2, 4), "1-7", 4, "4-7"),
        (cpus(2, 2, 2), "0-7", 2, "0,4"),
        (cpus(2, 2, 2), "0-7", 3, "0-1,4"),
        (cpus(2, 2, 2), "1-7", 1, "4"),
        (cpus(2, 2, 2), "1-7", 2, "1,5"),
        (cpus(2, 2, 2), "0-7", 6, "0-2,4-6"),
        (cpus(1, 2), "0-1", 0, ""),
    ],
)
def test_cpus_are_taken_close_to_each_other(places, available, count, taken):
    assert take(places, cpu_set(available), count) == cpu_set(taken)


def test_more_cpus_than_there_are_cannot_be_taken():
    assert take(cpus(1, 2), cpu_set("0-1"), 3) is None


def test_a_list_of_cpus_that_cannot_be_read_names_its_part():
    assert cpu_set(" 0-2,8 ,") == {0, 1, 2, 8}
    with pytest.raises(BadQuantity, match="'x' is no number of a CPU"):
        cpu_set("0,x")
    with pytest.raises(BadFact, match=r"numatopologies n1 .*'all' is no number of a CPU"):
        add_node(Cluster(CONF), "n1", free="all")


@pytest.mark.parametrize("runs", [False, True])
def test_what_was_chosen_goes_with_a_recorded_cycle(runs):
    def pods(world: Cluster) -> Cluster:
        return ask(add_node(world, "n1"), "g", cpu="3", policy="single-numa-node", tasks=2)

    def start(world: Cluster) -> None:
        stated = {"cpu": "3", "memory": "1Gi"}
        containers = [{"name": "main", "resources": {"requests": stated, "limits": stated}}]
        metadata = {"annotations": {POLICY: "single-numa-node"}}
        world.pod("g-0", "g", node="n1", metadata=metadata, containers=containers)

    world = pods(Cluster(CONF))
    world.step()
    if runs:
        start(world)
    memory = memory_of(world.cluster_state)
    again = Cluster(CONF)
    prepare_replay(again.cluster_state, memory)
    pods(again)
    if runs:
        start(again)
    restore(again.cluster_state, memory)
    for same in (world, again):
        ask(same, "h", cpu="1", policy="single-numa-node", tasks=3)
    assert decisions_of(again.decide()) == decisions_of(world.decide()) != {}
