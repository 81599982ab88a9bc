"""A native gang is placed whole, within one domain, and always where equal pods fit into one."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from pumice.testing import Cluster, binds_of
from shared.api import kinds
from tests.native.gang_states import NODE_CPU, NODES, DrawnGang, GangState, draw

CONF = """
actions: "enqueue, allocate, preempt, reclaim, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: predicates}, {name: nodeorder}]
"""


def cluster_of(state: GangState) -> Cluster:
    cluster = Cluster(CONF).queue("default")
    for node in NODES:
        labels = {key: value for key, value in state.labels[node].items() if value is not None}
        cluster.node(node, cpu=str(NODE_CPU), labels=labels, unschedulable=node in state.closed)
        if state.used[node]:
            name = f"other-{node}"
            cluster.pod(name, cpu=str(state.used[node]), node=node, scheduler="default-scheduler")
    return cluster


def add(cluster: Cluster, name: str, gang: DrawnGang) -> None:
    policy = {"gang": {"minCount": gang.min_count}} if gang.min_count else {"basic": {}}
    constraints = {"topology": [{"key": gang.key}]} if gang.key else {}
    cluster.put(
        kinds.NATIVEPODGROUP,
        {
            "metadata": {"name": name, "namespace": "ns", "uid": name},
            "spec": {"schedulingPolicy": policy, "schedulingConstraints": constraints},
        },
    )
    for number, cpu in enumerate(gang.cpus):
        cluster.pod(
            f"{name}-{number}",
            cpu=str(cpu) if cpu else "",
            schedulingGroup={"podGroupName": name},
        )


def slots(state: GangState, binds: dict[str, str], cpus: dict[str, int], cpu: int) -> dict:
    """Return how many pods of so many CPUs fit on each node beside the pods that are bound."""
    free = {node: NODE_CPU - state.used[node] for node in NODES if node not in state.closed}
    for pod, node in binds.items():
        free[node] -= cpus[pod]
    return {node: amount // cpu for node, amount in free.items()}


@given(st.integers(0, 2**32 - 1))
def test_gangs_are_placed_whole_within_one_domain(seed):
    state = draw(Random(seed))
    cluster, bound, cpus = cluster_of(state), {}, {}
    for at, gang in enumerate(state.gangs):
        add(cluster, f"g{at}", gang)
        cpus |= {f"g{at}-{number}": cpu for number, cpu in enumerate(gang.cpus)}
        before = dict(bound)
        plan = cluster.decide()
        assert not plan.evictions
        found = {pod: node for pod, node in binds_of(plan).items() if pod.startswith(f"g{at}-")}
        for pod, node in found.items():
            cluster.pod(
                pod, cpu=str(cpus[pod] or ""), node=node, schedulingGroup={"podGroupName": f"g{at}"}
            )
        bound |= found
        least = max(1, gang.min_count)
        assert not found or len(found) >= least
        domains = {state.labels[node][gang.key] for node in found.values()} if gang.key else {""}
        assert len(domains) <= 1
        assert None not in domains
        if len(set(gang.cpus)) == 1 and gang.cpus[0] and not found:
            room = slots(state, before, cpus, gang.cpus[0])
            by_domain: dict[str, int] = {}
            for node, count in room.items():
                domain = state.labels[node][gang.key] if gang.key else ""
                if domain is not None:
                    by_domain[domain] = by_domain.get(domain, 0) + count
            assert all(count < least for count in by_domain.values())
        if not found:
            for number in range(len(gang.cpus)):
                cluster.delete(kinds.POD, f"ns/g{at}-{number}", f"uid-ns/g{at}-{number}")
