"""The plugin reservation: orders of queues, and what a reservation lets go ahead."""

from typing import Any

import pytest

from pumice.testing import Cluster, binds_of, evictions_of, phase_in
from services.scheduler.config import BadConfig
from services.scheduler.decide import configure
from services.scheduler.engine.plan import Plan
from shared.api import kinds
from shared.api.time import format_seconds

NOW = 1_800_000_000.0
CONF = """
actions: "allocate"
tiers:
- plugins: [{name: gang}, {name: reservation, arguments: {%s}}]
- plugins: [{name: predicates}, {name: capacity}, {name: nodeorder}]
"""


def cluster(order: str = "backfill", *, nodes: int = 2, **arguments: Any) -> Cluster:
    said = ", ".join(f"reservation.{key}: {value}" for key, value in arguments.items())
    found = Cluster(CONF % said)
    for number in range(nodes):
        found.node(f"n{number}", cpu="4")
    return ordered(found, "default", order)


def ordered(world: Cluster, name: str, order: str, **spec: Any) -> Cluster:
    meta = {"name": name, "uid": f"uid-{name}", "annotations": {"pumice.dev/order": order}}
    body = {"metadata": meta, "spec": spec, "status": {"state": "Open"}}
    return world.put(kinds.QUEUE, body)


def lasting(duration: str) -> dict[str, Any]:
    return {"metadata": {"annotations": {"pumice.dev/expected-duration": duration}}}


def running(
    world: Cluster, name: str, node: str, *, cpu: str, duration: str = "", queue: str = "default"
) -> None:
    """A job of one pod that has run for a minute."""
    world.group(name, phase="Running", queue=queue)
    more = lasting(duration) if duration else {}
    started = {"startTime": format_seconds(NOW - 60)}
    world.pod(f"{name}-0", name, cpu=cpu, node=node, status=started, **more)


def waiting(
    world: Cluster,
    name: str,
    at: int,
    *,
    tasks: int = 1,
    cpu: str = "1",
    duration: str = "",
    queue: str = "default",
) -> None:
    """A gang that came at a second."""
    created = f"2026-01-01T00:00:{at:02}Z"
    more = lasting(duration) if duration else {}
    world.group(name, min_member=tasks, created=created, queue=queue)
    for number in range(tasks):
        world.pod(f"{name}-{number}", name, cpu=cpu, **more)
        more = lasting(duration) if duration else {}


def gate(plan: Plan, name: str) -> tuple[str, str]:
    (found,) = (e for e in plan.explanations if e.job == f"ns/{name}")
    return found.gate, found.message


def started(plan: Plan) -> set[str]:
    return {pod.rpartition("-")[0] for pod in binds_of(plan)}


def crowded(order: str, **arguments: Any) -> Cluster:
    """A node is free, the other one for an hour not; a gang needs both, and came first."""
    world = cluster(order, **arguments)
    running(world, "busy", "n0", cpu="4", duration="61m")
    waiting(world, "large", 1, tasks=2, cpu="4", duration="1h")
    return world


def test_at_best_effort_a_small_job_passes_a_gang_that_waits():
    world = crowded("best-effort")
    waiting(world, "small", 2)
    assert started(world.step(now=NOW)) == {"small"}


def test_in_strict_order_nothing_of_the_queue_passes():
    world = crowded("strict")
    waiting(world, "small", 2, duration="1m")
    ordered(world, "other", "best-effort")
    waiting(world, "elsewhere", 3, queue="other")
    plan = world.step(now=NOW)
    assert started(plan) == {"elsewhere"}
    assert gate(plan, "small") == (
        "order",
        "waits behind ns/large, which comes first in queue default",
    )


@pytest.mark.parametrize(
    ("order", "says"),
    [
        ("strict", "waits behind a job of another namespace, which comes first in queue default"),
        ("backfill", "waits for the reservation of a job of another namespace, expected at "),
    ],
)
def test_a_job_of_another_namespace_is_not_named_to_those_who_wait(order: str, says: str):
    world = crowded(order)
    meta = {"name": "small", "namespace": "theirs", "uid": "u-small"}
    meta["creationTimestamp"] = "2026-01-01T00:00:02Z"
    pod = {**meta, "name": "small-0", "uid": "u-small-0"}
    group = {"metadata": meta, "spec": {"minMember": 1, "queue": "default"}}
    world.put(kinds.PODGROUP, {**group, "status": {"phase": "Inqueue"}})
    pod["annotations"] = {"scheduling.k8s.io/group-name": "small"}
    requests = {"resources": {"requests": {"cpu": "1"}}}
    spec = {"schedulerName": "volcano", "containers": [{"name": "c", **requests}]}
    world.put(kinds.POD, {"metadata": pod, "spec": spec, "status": {"phase": "Pending"}})
    (told,) = (e for e in world.step(now=NOW).explanations if e.job == "theirs/small")
    assert told.message.startswith(says)
    assert "ns/" not in told.message


def test_a_job_that_ends_before_the_reserved_start_passes_and_a_longer_one_waits():
    world = crowded("backfill")
    waiting(world, "short", 2, duration="1h")
    waiting(world, "long", 3, duration="61m")
    plan = world.step(now=NOW)
    assert started(plan) == {"short"}
    assert gate(plan, "long") == (
        "reservation",
        (
            "waits for the reservation of ns/large, "
            f"expected at {format_seconds(NOW + 3600)}; "
            f"it would end at {format_seconds(NOW + 3660)}"
        ),
    )


def details(plan: Plan, name: str) -> str:
    return next(e.details for e in plan.explanations if e.job == f"ns/{name}")


def test_a_gang_with_a_reservation_is_told_when_it_is_expected_to_start():
    world = crowded("backfill")
    waiting(world, "small", 2, duration="61m")
    plan = world.step(now=NOW)
    start = format_seconds(NOW + 3600)
    assert f"; room is reserved, expected to start at {start})" in details(plan, "large")
    assert "room is reserved" not in details(plan, "small")
    (shown,) = (group for group in plan.podgroups if group.key == "ns/large")
    assert f"expected to start at {start}" in shown.conditions[0].message


def test_a_start_that_moves_does_not_write_the_status_of_the_gang_again():
    world = crowded("backfill")
    world.step(now=NOW)
    running(world, "busy", "n0", cpu="4", duration="71m")
    plan = world.step(now=NOW + 1)
    assert f"expected to start at {format_seconds(NOW + 4200)}" in details(plan, "large")
    assert plan.podgroups == ()


def test_a_gang_with_a_reservation_is_told_that_its_start_is_not_known():
    world = cluster("backfill")
    running(world, "endless", "n0", cpu="4")
    waiting(world, "large", 1, tasks=2, cpu="4", duration="1h")
    plan = world.step(now=NOW)
    assert "room is reserved, when it starts is not known" in details(plan, "large")


def test_a_job_without_a_reservation_is_told_of_none():
    for order in ("best-effort", "strict"):
        assert "reserved" not in details(crowded(order).step(now=NOW), "large")


def test_a_job_that_says_nothing_of_its_end_waits_unless_the_default_is_short_enough():
    for default, passes in (("0s", set()), ("30m", {"small"})):
        world = crowded("backfill", defaultDuration=default)
        waiting(world, "small", 2)
        assert started(world.step(now=NOW)) == passes


def test_a_long_job_takes_the_room_that_the_gang_leaves():
    world = crowded("backfill")
    world.node("n2", cpu="2")
    waiting(world, "long", 2, duration="100h")
    assert binds_of(world.step(now=NOW)) == {"long-0": "n2"}


def test_room_counts_by_node_and_not_by_sum():
    """Four CPUs are free at once, on no node; the gang's pod waits for the end on n0."""
    world = cluster("backfill")
    for node in ("n0", "n1"):
        running(world, f"half-{node}", node, cpu="2", duration="2h" if node == "n1" else "1h")
    waiting(world, "large", 1, cpu="4", duration="1h")
    waiting(world, "beside", 2, cpu="2", duration="90m")
    plan = world.step(now=NOW)
    assert binds_of(plan) == {"beside-0": "n1"}


def test_a_gang_that_no_empty_cluster_would_take_blocks_nothing():
    for order in ("strict", "backfill"):
        world = cluster(order)
        waiting(world, "huge", 1, tasks=3, cpu="4")
        waiting(world, "small", 2)
        assert started(world.step(now=NOW)) == {"small"}


def test_a_gang_that_waits_for_more_than_room_reserves_none():
    world = crowded("backfill")
    world.group("picky", created="2026-01-01T00:00:00Z")
    ports = [{"containerPort": 80, "hostPort": 80}]
    for number in range(2):
        running(world, f"port-{number}", f"n{number}", cpu="0")
        world.pod(f"holder-{number}", node=f"n{number}", ports=ports)
    world.pod("picky-0", "picky", cpu="1", ports=ports)
    waiting(world, "small", 2, duration="1h")
    plan = world.step(now=NOW)
    assert started(plan) == {"small"}


def test_while_a_pod_is_beyond_its_end_a_short_job_does_not_take_room_of_the_gang():
    world = cluster("backfill")
    running(world, "late", "n0", cpu="4", duration="30s")
    waiting(world, "large", 1, tasks=2, cpu="4", duration="1h")
    waiting(world, "short", 2, duration="1m")
    assert started(world.step(now=NOW)) == set()


def test_while_a_pod_is_beyond_its_end_a_job_out_of_the_way_of_the_gang_passes():
    world = cluster("backfill")
    world.node("n2", cpu="1")
    running(world, "late", "n0", cpu="4", duration="30s")
    waiting(world, "large", 1, tasks=2, cpu="4", duration="1h")
    waiting(world, "small", 2, duration="1h")
    assert started(world.step(now=NOW)) == {"small"}


def test_once_the_promise_is_overdue_nothing_goes_ahead():
    world = crowded("backfill", patience="10m")
    world.step(now=NOW)
    waiting(world, "instant", 2, duration="1s")
    late = NOW + 3600 + 601
    plan = world.step(now=late)
    assert started(plan) == set()
    due = format_seconds(NOW + 3600 + 600)
    assert gate(plan, "instant") == (
        "reservation",
        (
            f"waits for ns/large, which should have started by {due}: "
            "nothing goes ahead of it any more"
        ),
    )


def test_a_start_that_depends_on_pods_without_an_end_is_unknown_and_becomes_strict_in_time():
    world = cluster("backfill", patience="10m")
    running(world, "endless", "n0", cpu="4")
    waiting(world, "large", 1, tasks=2, cpu="4", duration="1h")
    waiting(world, "unknown", 2)
    plan = world.step(now=NOW)
    assert gate(plan, "unknown") == (
        "reservation",
        (
            "waits for the reservation of ns/large, expected at a time that is not known; "
            "nothing says how long it would run"
        ),
    )
    waiting(world, "short", 3, duration="1h")
    assert started(world.step(now=NOW + 1)) == {"short"}
    waiting(world, "next", 4, duration="1h")
    assert started(world.step(now=NOW + 602)) == set()


def test_a_reservation_holds_against_all_queues_that_backfill():
    world = crowded("backfill")
    world.step(now=NOW)
    for name, order in (("b", "backfill"), ("c", "best-effort")):
        ordered(world, name, order)
        waiting(world, f"in-{name}", 2, queue=name, duration="100h")
    assert started(world.step(now=NOW + 1)) == {"in-c"}


def test_more_jobs_have_a_reservation_if_the_configuration_says_so():
    """The second gang starts an hour after the first one; a third job may delay neither."""
    for jobs, passes in ((1, {"between"}), (2, set())):
        world = crowded("backfill", jobs=jobs)
        world.node("n2", cpu="4")
        running(world, "other", "n2", cpu="3", duration="151m")
        waiting(world, "second", 2, tasks=3, cpu="4", duration="1h")
        waiting(world, "between", 3, duration="4h")
        plan = world.step(now=NOW)
        assert started(plan) == passes


def test_the_share_of_a_queue_is_reserved_like_room_on_nodes():
    world = cluster("backfill", nodes=4)
    ordered(world, "default", "backfill", capability={"cpu": "8"})
    running(world, "busy", "n0", cpu="4", duration="61m")
    waiting(world, "large", 1, tasks=2, cpu="4", duration="1h")
    waiting(world, "short", 2, duration="1h")
    waiting(world, "long", 3, duration="2h")
    plan = world.step(now=NOW)
    assert started(plan) == {"short"}
    assert gate(plan, "long")[0] == "reservation"


def test_a_job_that_is_held_goes_once_the_gang_has_started():
    """Nothing but time passes, and the end of the pod that the gang waited for."""
    world = crowded("backfill")
    waiting(world, "long", 3, cpu="4", duration="90m")
    assert started(world.step(now=NOW)) == set()
    world.delete(kinds.POD, "ns/busy-0").delete(kinds.PODGROUP, "ns/busy")
    assert started(world.step(now=NOW + 600)) == {"large"}
    for number in range(2):
        world.delete(kinds.POD, f"ns/large-{number}")
    world.delete(kinds.PODGROUP, "ns/large")
    assert started(world.step(now=NOW + 4200)) == {"long"}


def test_the_first_jobs_of_a_line_get_their_pods_whatever_later_tiers_say():
    """The queue's capability would keep both out; the order of the queue lets the first in."""
    conf = CONF.replace('"allocate"', '"enqueue, allocate"') % "reservation.depth: 1"
    for order, phases in (("backfill", ["Inqueue", None]), ("best-effort", [None, None])):
        world = ordered(Cluster(conf), "default", order, capability={"cpu": "4"})
        world.node("n0", cpu="8")
        running(world, "busy", "n0", cpu="4", duration="1h")
        world.group("busy", phase="Running", minResources={"cpu": "4"})
        for number, name in enumerate(("first", "second")):
            created = f"2026-01-01T00:00:0{number}Z"
            world.group(name, phase="Pending", created=created, minResources={"cpu": "4"})
        plan = world.step(now=NOW)
        wanted = [phase_in(plan, name) for name in ("first", "second")]
        assert [None if phase == "Pending" else phase for phase in wanted] == phases


def test_a_job_that_is_held_evicts_nothing():
    conf = CONF.replace('"allocate"', '"allocate, preempt"').replace(
        "{name: gang}", "{name: priority}, {name: gang, enablePreemptable: false}"
    )
    for order, evicted in (("strict", set()), ("best-effort", {"victim-0"})):
        world = ordered(Cluster(conf % ""), "default", order)
        world.node("n0", cpu="4")
        world.put(kinds.PRIORITYCLASS, {"metadata": {"name": "high", "uid": "h"}, "value": 9})
        running(world, "victim", "n0", cpu="4", duration="1h")
        world.group("large", created="2026-01-01T00:00:01Z", priorityClassName="high")
        world.pod("large-0", "large", cpu="4", preemptionPolicy="Never")
        world.group("small", created="2026-01-01T00:00:02Z", priorityClassName="high")
        world.pod("small-0", "small", cpu="1", priority=9)
        assert set(evictions_of(world.step(now=NOW))) == evicted


def test_an_order_that_is_none_is_refused_in_the_configuration():
    with pytest.raises(BadConfig, match=r"reservation\.order: 'fifo' is none of best-effort, "):
        configure(CONF % "reservation.order: fifo")
