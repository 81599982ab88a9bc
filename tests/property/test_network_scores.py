"""The scores of network-topology-aware equal the rule written out node by node (PL17)."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.engine.jobs.subjobs import SubJob
from services.scheduler.engine.placement.choice import PlacementTarget
from services.scheduler.engine.session.session import Session
from tests.property.test_network import build, worlds
from tests.support.laws import count_hits, needs_hits

CPU = 0


def below(session: Session, place: str) -> set[str]:
    """Return the existing nodes below a HyperNode."""
    column = session.cluster_state.nodes.column
    return {node for node in session.network.forest.nodes.get(place, ()) if column(node) >= 0}


def filled(session: Session, place: str, request: int) -> float:
    """Return how full of CPU a HyperNode would be with a request more."""
    ledger, column = session.ledger, session.cluster_state.nodes.column
    columns = [column(node) for node in below(session, place)]
    have = sum(int(ledger.allocatable[CPU, c]) for c in columns)
    then = sum(int(ledger.used[CPU, c] + ledger.pipelined[CPU, c]) for c in columns) + request
    return 0.0 if then > have else then / have


def plainly(session: Session, node: str, request: int, fading: float) -> float:
    """Return the score of a node for a task without a topology."""
    forest, tiers = session.network.forest, session.network.tiers
    total = weights = 0.0
    for tier in range(tiers[0], tiers[-1] + 1):
        weight = fading ** (tier - 1)
        holder = [p for p in forest.by_tier.get(tier, ()) if node in below(session, p)]
        total += weight * (filled(session, holder[0], request) if holder else 1.0)
        weights += weight
    return 100 * total / weights


def nearby(session: Session, sub: SubJob, nodes: list[str], so_far: str) -> list[float]:
    """Return the scores of nodes for a task of a group that is somewhere."""
    forest, tiers = session.network.forest, session.network.tiers
    leaves, scores = [], []
    for node in nodes:
        leaf = [p for p in forest.by_tier[tiers[0]] if node in below(session, p)]
        leaves.append(leaf[0] if leaf else "")
        if not leaf:
            scores.append(0.0)
        elif leaf[0] == so_far or tiers[0] == tiers[-1]:
            scores.append(1.0)
        else:
            both = forest.common_ancestor(leaf[0], so_far)
            scores.append((tiers[-1] - forest.tiers[both]) / (tiers[-1] - tiers[0]))
    best = [number for number, score in enumerate(scores) if score == max(scores)]
    if len(best) > 1:
        for number in best:
            there = below(session, leaves[number]) if leaves[number] else set()
            own = sum(task.node in there for task in sub.tasks.values())
            scores[number] += own / len(sub.tasks)
    return [100 * score for score in scores]


@needs_hits(at_least=17)
@settings(max_examples=60, deadline=None)
@given(worlds, st.data())
def test_vectors_equal_the_rule_node_by_node(world, data):
    cluster = build(world)
    session = cluster.session()
    compared = []
    try:
        nodes = sorted(data.draw(st.sets(st.sampled_from(cluster_nodes(cluster)), min_size=1)))
        columns = np.array([cluster.cluster_state.nodes.column(node) for node in nodes])
        order = np.argsort(columns)
        columns, nodes = columns[order], [nodes[number] for number in order]
        for number in range(len(world["jobs"])):
            job = cluster.job(f"j{number}")
            task_class = next(iter(job.tasks.values())).task_class
            plain = session.hooks.batch_node_order(PlacementTarget(job), task_class, columns)
            if plain is not None:
                compared.append(task_class)
                wanted = [plainly(session, node, 1000, 0.8) for node in nodes]
                assert plain.tolist() == pytest.approx(wanted)
            for sub in job.sub_jobs.by_id().values() if job.sub_jobs else ():
                so_far = session.network.allocated(job, sub)
                near = session.hooks.batch_node_order(
                    PlacementTarget(job, sub, so_far), task_class, columns
                )
                if sub.topology is not None and near is not None:
                    compared.append(sub)
                    assert near.tolist() == pytest.approx(nearby(session, sub, nodes, so_far))
    finally:
        session.close()
    count_hits(compared)


def cluster_nodes(cluster) -> list[str]:
    return [name for name in cluster.cluster_state.nodes.attributes.names if name]
