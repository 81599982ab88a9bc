"""The place of a waiting job in its queue, and which resources count as short."""

from tests.unit.scheduler.test_explaining import explained, world
from tests.unit.scheduler.test_storage import mounting


def test_jobs_of_a_queue_know_their_place_in_the_order():
    found = world()
    for number in range(3):
        created = f"2026-01-01T00:00:0{3 - number}Z"
        found.gang(f"j{number}", tasks=1, cpu="5", created=created)
    places = {e.job: e.position for e in found.decide().explanations}
    assert places == {"ns/j2": 1, "ns/j1": 2, "ns/j0": 3}


def test_what_no_node_has_is_short_although_another_resource_is_counted():
    """Nodes are counted by the first resource that they lack; the end of `f` would not help."""
    found = world().pod("f-0", "f", cpu="4", node="n1").group("f", phase="Running")
    found.gang("g", tasks=1, cpu="1", requests={"nvidia.com/gpu": "8"})
    why = explained(found.decide())
    assert why.reasons == {"Insufficient cpu": 1}
    assert [short.resource for short in why.shortages] == ["cpu", "nvidia.com/gpu"]
    assert "no node has nvidia.com/gpu, it never fits as it is" in why.details


def test_admitted_jobs_come_before_those_that_are_not():
    """Although enqueue visits `later` before allocate visits `first`."""
    found = world("overcommit").gang("first", tasks=1, cpu="5", created="2026-01-01T00:00:01Z")
    found.group("later", min_member=1, phase="Pending", minResources={"cpu": "9"})
    places = {e.job: e.position for e in found.decide().explanations}
    assert places == {"ns/first": 1, "ns/later": 2}


def test_amounts_are_short_only_where_nothing_else_closes_the_nodes():
    """The full node lacks CPU, but a claim that is not there closes it for good."""
    found = world().node("n2", cpu="1").pod("f-0", "f", cpu="4", node="n1")
    found.group("f", phase="Running").gang("g", tasks=1, cpu="1", **mounting("c"))
    found.pod("other-0", cpu="1", node="n2", scheduler="default-scheduler")
    why = explained(found.node("n3", cpu="4").decide())
    assert why.reasons == {"Insufficient cpu": 2, 'persistentvolumeclaim "c" not found': 1}
    assert why.shortages == ()
    assert "free on one node" not in why.details
