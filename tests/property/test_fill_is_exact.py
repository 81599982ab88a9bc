"""Placing a run of equal tasks at once chooses what placing them one by one would choose."""

from fractions import Fraction
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pumice.testing import Cluster
from services.scheduler.engine.placement.choice import fill
from services.scheduler.engine.session.session import Session
from tests.property.plain_allocate import Plain, PlainNode, PlainTask, balanced, least
from tests.property.test_engine_laws import CONF, nodes

WISH = {
    "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {
                "weight": 10,
                "preference": {
                    "matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]
                },
            }
        ]
    }
}

running = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from(["", "250m", "1", "3"]), st.booleans()),
    max_size=8,
)

AMOUNTS = ("cpu", "memory", "pods")


def plain_nodes(session: Session, node_list: list[dict[str, Any]]) -> list[PlainNode]:
    """Return the nodes in plain numbers, in the order of their columns."""
    ledger, columns = session.ledger, session.cluster_state.nodes

    def amounts(rows: Any, number: int, names: tuple[str, ...] = AMOUNTS) -> dict[str, int]:
        column = columns.column(f"n{number}")
        return {name: int(rows[dim, column]) for dim, name in enumerate(names)}

    return [
        PlainNode(
            f"n{number}",
            amounts(ledger.allocatable, number),
            labels=node.get("labels", {}),
            used=amounts(ledger.used, number),
            leaving=amounts(ledger.releasing, number),
            scored=amounts(ledger.scoring, number, ("cpu", "memory")),
        )
        for number, node in enumerate(node_list)
    ]


def fits(node: PlainNode, task: PlainTask, *, waiting: bool) -> bool:
    if node.used["pods"] + node.promised["pods"] >= node.have["pods"]:
        return False
    return all(
        amount <= (node.future(name) if waiting else node.have[name] - node.used[name])
        for name, amount in task.request.items()
        if not task.best_effort
    )


def binpack(node: PlainNode, task: PlainTask) -> Fraction:
    parts = []
    for name in ("cpu", "memory"):
        if task.request[name]:
            then = node.used[name] + task.request[name]
            if then > node.have[name]:
                return Fraction(0)
            parts.append(Fraction(then, node.have[name]))
    return 100 * sum(parts, Fraction(0)) / len(parts) if parts else Fraction(0)


def one_by_one(
    there: list[PlainNode], soft: dict[str, int], task: PlainTask, count: int, *, waiting: bool
) -> list[str]:
    """Return the nodes of `count` tasks, each placed before the next; `soft` counts soft taints.

    The task selects labels that it would like its node to have.
    """

    def score(node: PlainNode, others: list[PlainNode]) -> float:
        found = float(least(node, task) + balanced(node, task)) + float(binpack(node, task))
        if len({soft[each.name] for each in others}) > 1:
            most = max(soft[each.name] for each in others)
            found += 3 * (100 - 100 * soft[node.name] // most)
        liked = {
            each.name: all(each.labels.get(k) == v for k, v in task.selector.items())
            for each in others
        }
        if len(set(liked.values())) > 1:
            found += 200 * liked[node.name]
        return found

    chosen = []
    for _ in range(count):
        fitting = [node for node in there if fits(node, task, waiting=waiting)]
        if not fitting:
            break
        best = max(fitting, key=lambda n: (score(n, fitting), -there.index(n)))
        Plain.put(task, best, waiting=waiting)
        chosen.append(best.name)
    return chosen


@given(
    node_list=nodes,
    occupied=running,
    cpu=st.sampled_from(["", "100m", "500m", "1"]),
    memory=st.sampled_from(["", "128Mi", "1Gi"]),
    count=st.integers(1, 30),
    wish=st.booleans(),
    waiting=st.booleans(),
)
@settings(max_examples=400, deadline=None)
def test_a_run_of_tasks_goes_where_they_would_go_one_by_one(
    *, node_list, occupied, cpu, memory, count, wish, waiting
):
    world = Cluster(CONF)
    for number, node in enumerate(node_list):
        world.node(f"n{number}", **node)
    for number, (node, size, leaving) in enumerate(occupied):
        world.pod(f"old-{number}", cpu=size, node=f"n{node}", deleting=leaving)
    world.group("g").pod("new", "g", cpu=cpu, memory=memory, affinity=WISH if wish else None)
    task_class = next(iter(world.job("g").tasks.values())).task_class
    session = world.session()
    try:
        fast = fill(session.candidates(task_class), count, waiting=waiting)
        request, names = task_class.request, session.cluster_state.nodes.attributes.names
        task = PlainTask("new", 0, int(request[0]), int(request[1]))
        task.selector = {"disk": "ssd"} if wish else {}
        soft = {
            f"n{number}": sum(t["effect"] == "PreferNoSchedule" for t in node.get("taints") or [])
            for number, node in enumerate(node_list)
        }
        slow = one_by_one(plain_nodes(session, node_list), soft, task, count, waiting=waiting)
    finally:
        session.close()
    assert [names[column] for column in fast] == slow
