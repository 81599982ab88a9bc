"""A new phase is written at once, everything else when it has stood for a while."""

from pumice.plugins import Condition
from services.scheduler.engine.plan import (
    DesiredPodCondition,
    DesiredPodGroupStatus,
    Plan,
    QueueAllocated,
)
from services.scheduler.pacing import Pacing

WAITS = Condition("PodScheduled", "False", "Unschedulable", "0/1 nodes")


def wanted(phase: str, running: int = 0) -> DesiredPodGroupStatus:
    return DesiredPodGroupStatus(
        key="ns/g", uid="g", phase=phase, running=running, succeeded=0, failed=0, conditions=()
    )


def plan(*, groups=(), pods=(), queues=()) -> Plan:
    return Plan(cycle=1, podgroups=tuple(groups), pods=tuple(pods), queues=tuple(queues))


def shows(phase: str):
    return lambda _: phase


def test_a_phase_that_moves_on_is_due_at_once():
    pacing = Pacing(1.0)
    assert pacing.due(plan(groups=[wanted("Inqueue")]), now=0, shown=shows("Pending")).podgroups
    assert pacing.due(plan(groups=[wanted("Running")]), now=0, shown=shows("Inqueue")).podgroups


def test_a_counter_is_due_when_it_has_stood_for_the_time():
    pacing = Pacing(1.0)
    running = shows("Running")
    assert not pacing.due(plan(groups=[wanted("Running", 1)]), now=0, shown=running).podgroups
    assert not pacing.due(plan(groups=[wanted("Running", 9)]), now=0.5, shown=running).podgroups
    assert not pacing.due(plan(groups=[wanted("Running", 9)]), now=1.25, shown=running).podgroups
    due = pacing.due(plan(groups=[wanted("Running", 9)]), now=1.5, shown=running)
    assert due.podgroups == (wanted("Running", 9),)
    assert not pacing.due(plan(groups=[wanted("Running", 9)]), now=2.0, shown=running).podgroups


def test_what_never_stops_changing_is_written_all_the_same():
    pacing = Pacing(1.0)
    due = [
        now
        for now in range(25)
        if pacing.due(
            plan(groups=[wanted("Running", now)]), now=now * 0.5, shown=shows("Running")
        ).podgroups
    ]
    assert due == [20]


def test_a_wait_that_passes_by_itself_is_never_written():
    pacing = Pacing(1.0)
    waiting = plan(pods=[DesiredPodCondition(key="ns/p", uid="p", condition=WAITS)])
    for now in (0.0, 1.0, 2.5):
        assert not pacing.due(waiting, now=now, shown=shows("")).pods
    assert not pacing.due(plan(), now=2.75, shown=shows("")).pods
    assert not pacing.due(waiting, now=4.0, shown=shows("")).pods
    assert pacing.due(waiting, now=7.0, shown=shows("")).pods


def test_a_falling_back_to_pending_waits_like_a_condition():
    pacing = Pacing(1.0)
    back = plan(groups=[wanted("Pending")])
    assert not pacing.due(back, now=0, shown=shows("Running")).podgroups
    assert pacing.due(back, now=1, shown=shows("Running")).podgroups


def test_sums_of_queues_wait_and_binds_do_not():
    pacing = Pacing(1.0)
    wanted = plan(queues=[QueueAllocated(name="q", uid="q", allocated={"cpu": "1"})])
    assert not pacing.due(wanted, now=0, shown=shows("")).queues
    assert pacing.due(wanted, now=1, shown=shows("")).queues


def test_nothing_but_a_new_phase_is_said_of_a_gang_whose_pods_are_being_made():
    pacing = Pacing(1.0)
    waiting = plan(
        groups=[wanted("Pending", 1)],
        pods=[DesiredPodCondition(key="ns/p", uid="p", condition=WAITS)],
    )

    def due(now: float, *groups: str, what: Plan = waiting) -> Plan:
        return pacing.due(
            what,
            now=now,
            shown=shows("Pending"),
            in_progress=groups,
            group_of=lambda _: "ns/g",
        )

    for now in range(40):
        held = due(float(now), "ns/g")
        assert (held.podgroups, held.pods) == ((), ())
    assert due(40.0, "ns/g", what=plan(groups=[wanted("Inqueue")])).podgroups
    assert due(41.0).podgroups == ()
    assert due(42.0).podgroups != ()
    assert due(44.0).pods != ()
