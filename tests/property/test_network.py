"""Laws of placing in a network: limits hold in any cluster, and tries leave nothing behind."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pumice.testing import Cluster, binds_of
from services.scheduler.decide import conclude, run_actions
from services.scheduler.engine.jobs.subjobs import SubJobs
from shared.api import kinds
from tests.support.laws import count_hits, needs_hits

CONF = """
actions: "allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: network-topology-aware}]
"""

worlds = st.fixed_dictionaries(
    {
        "racks": st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=3), max_size=5),
        "spines": st.lists(st.integers(0, 2), min_size=5, max_size=5),
        "jobs": st.lists(
            st.fixed_dictionaries(
                {
                    "tasks": st.integers(1, 6),
                    "spare": st.integers(0, 2),
                    "mode": st.sampled_from(["hard", "soft", ""]),
                    "tier": st.integers(0, 3),
                    "parts": st.integers(0, 2),
                    "part_tier": st.integers(1, 2),
                    "running": st.booleans(),
                }
            ),
            min_size=1,
            max_size=4,
        ),
    }
)


def build(world: dict) -> Cluster:
    """Racks below spines; every node but those of `loose` is in a rack."""
    cluster = Cluster(CONF).node("loose", cpu="2")
    below: dict[int, list[str]] = {}
    for number, rack in enumerate(world["racks"]):
        names = [f"r{number}-n{place}" for place in range(len(rack))]
        for name, cpu in zip(names, rack, strict=True):
            cluster.node(name, cpu=str(cpu))
        hypernode(cluster, f"r{number}", 1, "Node", names)
        below.setdefault(world["spines"][number], []).append(f"r{number}")
    for spine, racks in below.items():
        hypernode(cluster, f"s{spine}", 2, "HyperNode", racks)
    for number, job in enumerate(world["jobs"]):
        add_job(cluster, f"j{number}", job, runs_on="r0-n0" if world["racks"] else "")
    return cluster


def hypernode(cluster: Cluster, name: str, tier: int, kind: str, names: list[str]) -> None:
    members = [{"type": kind, "selector": {"exactMatch": {"name": member}}} for member in names]
    meta = {"name": name, "uid": f"uid-{name}"}
    cluster.put(kinds.HYPERNODE, {"metadata": meta, "spec": {"tier": tier, "members": members}})


def add_job(cluster: Cluster, name: str, job: dict, *, runs_on: str) -> None:
    spec: dict = {}
    if job["mode"]:
        spec["networkTopology"] = {"mode": job["mode"], "highestTierAllowed": job["tier"]}
    if job["parts"]:
        topology = {"mode": "hard", "highestTierAllowed": job["part_tier"]}
        policy = {"name": "p", "matchLabelKeys": ["part"], "networkTopology": topology}
        spec["subGroupPolicy"] = [{**policy, "subGroupSize": 1, "minSubGroups": 1}]
    cluster.group(name, min_member=max(1, job["tasks"] - job["spare"]), **spec)
    for number in range(job["tasks"]):
        labels = {"part": str(number % job["parts"])} if job["parts"] else {}
        node = runs_on if job["running"] and not number else ""
        cluster.pod(f"{name}-{number}", name, cpu="1", node=node, metadata={"labels": labels})


@needs_hits(at_least=20)
@settings(max_examples=60, deadline=None)
@given(worlds)
def test_no_job_and_no_subgroup_spans_more_than_it_may(world):
    cluster = build(world)
    binds = binds_of(cluster.decide())
    session = cluster.session()
    judged = []
    try:
        network = session.network
        for number, stated in enumerate(world["jobs"]):
            job = cluster.job(f"j{number}")
            limits = {None: network.limit_of_job(job)}
            if job.sub_jobs is not None:
                subs = job.sub_jobs.by_id()
                limits |= {name: network.limit_of_sub(job, sub) for name, sub in subs.items()}
            for name, limit in limits.items():
                tasks = job.tasks if name is None else job.sub_jobs.by_id()[name].tasks
                placed = {binds.get(task.name, "") for task in tasks.values()} - {""}
                if limit is None or not placed or stated["running"]:
                    continue
                judged.append(name)
                assert any(
                    tier <= limit and placed <= network.forest.nodes.get(place, frozenset())
                    for place, tier in network.forest.tiers.items()
                ), (name or job.key, placed, limit)
    finally:
        session.close()
    count_hits(judged)


@settings(max_examples=60, deadline=None)
@given(worlds)
def test_gangs_are_whole_nodes_are_not_overfilled_and_tries_leave_nothing_behind(world):
    cluster = build(world)
    ledger = cluster.cluster_state.nodes.ledger
    before = ledger.used.copy(), ledger.pipelined.copy()
    session = cluster.session()
    try:
        run_actions(session, cluster.config)
        assert (ledger.used[:, : ledger.size] <= _room(cluster)).all()
        binds = binds_of(conclude(session))
        for number, stated in enumerate(world["jobs"]):
            own = [name for name in binds if name.startswith(f"j{number}-")]
            running = bool(stated["running"] and world["racks"])
            minimum = max(1, stated["tasks"] - stated["spare"])
            assert not own or len(own) + running >= minimum
    finally:
        session.close()
    assert (ledger.used == before[0]).all()
    assert (ledger.pipelined == before[1]).all()
    assert cluster.cluster_state.audit() == []


def _room(cluster: Cluster) -> np.ndarray:
    """Return what nodes have, or hold already where running pods overfill them."""
    ledger = cluster.cluster_state.nodes.ledger
    held = sum(
        task.node == "r0-n0" and task.fact_node == "r0-n0" for task in cluster.cluster_state.tasks()
    )
    room = ledger.allocatable[:, : ledger.size].copy()
    column = cluster.cluster_state.nodes.column("r0-n0")
    if column >= 0:
        room[0, column] = max(room[0, column], 1000 * held)
    return room


@needs_hits(at_least=15)
@settings(max_examples=30, deadline=None)
@given(worlds, st.randoms(use_true_random=False))
def test_subgroups_kept_up_equal_those_divided_from_scratch(world, random):
    cluster = build(world)
    pods = [f"ns/{task.name}" for task in cluster.cluster_state.tasks()]
    for key in random.sample(pods, k=len(pods) // 2):
        cluster.decide()
        cluster.delete(kinds.POD, key)
    divided = []
    for job in cluster.cluster_state.jobs.all():
        if job.sub_jobs is not None:
            divided.append(job)
            kept = {name: sorted(sub.tasks) for name, sub in job.sub_jobs.by_id().items()}
            spec = SubJobs.__new__(SubJobs)
            spec.__dict__.update(job.sub_jobs.__dict__)
            spec.invalidate()
            assert kept == {name: sorted(sub.tasks) for name, sub in spec.by_id().items()}
    count_hits(divided)
