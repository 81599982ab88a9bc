"""A new phase is written at once, everything else when it has stood for a while."""

from pumice.plugins import Condition
from services.scheduler.engine.plan import (
    DesiredPodCondition,
    DesiredPodGroupStatus,
    Plan,
    QueueAllocated,
)
from services.scheduler.status_writer import DueStatuses

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
    statuses = DueStatuses(1.0)
    assert statuses.due(plan(groups=[wanted("Inqueue")]), now=0, shown=shows("Pending")).podgroups
    assert statuses.due(plan(groups=[wanted("Running")]), now=0, shown=shows("Inqueue")).podgroups


def test_a_counter_is_due_when_it_has_stood_for_the_time():
    statuses = DueStatuses(1.0)
    running = shows("Running")
    assert not statuses.due(plan(groups=[wanted("Running", 1)]), now=0, shown=running).podgroups
    assert not statuses.due(plan(groups=[wanted("Running", 9)]), now=0.5, shown=running).podgroups
    assert not statuses.due(plan(groups=[wanted("Running", 9)]), now=1.25, shown=running).podgroups
    due = statuses.due(plan(groups=[wanted("Running", 9)]), now=1.5, shown=running)
    assert due.podgroups == (wanted("Running", 9),)
    assert not statuses.due(plan(groups=[wanted("Running", 9)]), now=2.0, shown=running).podgroups


def test_the_first_pending_is_due_after_the_time_even_if_its_text_changes():
    statuses = DueStatuses(1.0)
    due = [
        statuses.due(plan(groups=[wanted("Pending", n)]), now=n * 0.5, shown=shows("")).podgroups
        for n in range(3)
    ]
    assert due == [(), (), (wanted("Pending", 2),)]


def test_what_never_stops_changing_is_written_all_the_same():
    statuses = DueStatuses(1.0)
    due = [
        now
        for now in range(25)
        if statuses.due(
            plan(groups=[wanted("Running", now)]), now=now * 0.5, shown=shows("Running")
        ).podgroups
    ]
    assert due == [20]


def test_a_wait_that_passes_by_itself_is_never_written():
    statuses = DueStatuses(1.0)
    waiting = plan(pods=[DesiredPodCondition(key="ns/p", uid="p", condition=WAITS)])
    for now in (0.0, 1.0, 2.5):
        assert not statuses.due(waiting, now=now, shown=shows("")).pods
    assert not statuses.due(plan(), now=2.75, shown=shows("")).pods
    assert not statuses.due(waiting, now=4.0, shown=shows("")).pods
    assert statuses.due(waiting, now=7.0, shown=shows("")).pods


def test_a_falling_back_to_pending_waits_like_a_condition():
    statuses = DueStatuses(1.0)
    back = plan(groups=[wanted("Pending")])
    assert not statuses.due(back, now=0, shown=shows("Running")).podgroups
    assert statuses.due(back, now=1, shown=shows("Running")).podgroups


def test_sums_of_queues_wait_and_binds_do_not():
    statuses = DueStatuses(1.0)
    wanted = plan(queues=[QueueAllocated(name="q", uid="q", allocated={"cpu": "1"})])
    assert not statuses.due(wanted, now=0, shown=shows("")).queues
    assert statuses.due(wanted, now=1, shown=shows("")).queues


def test_nothing_but_a_new_phase_is_said_of_a_gang_whose_pods_are_being_made():
    statuses = DueStatuses(1.0)
    waiting = plan(
        groups=[wanted("Pending", 1)],
        pods=[DesiredPodCondition(key="ns/p", uid="p", condition=WAITS)],
    )

    def due(now: float, *groups: str, what: Plan = waiting) -> Plan:
        return statuses.due(
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
