"""Placing a run of equal tasks at once chooses what placing them one by one would choose."""

from hypothesis import given, settings
from hypothesis import strategies as st

from pumice.testing import Cluster
from services.scheduler.engine.placement.choice import fill
from tests.property.test_engine_laws import CONF, nodes
from tests.support.one_by_one import place_one_by_one

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
        slow = place_one_by_one(session, task_class, count, waiting=waiting)
    finally:
        session.close()
    assert fast == slow
