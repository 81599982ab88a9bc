"""Jobs that wait are looked at again when what they wait for has changed; work is counted here."""

import numpy as np
import pytest

from pumice.testing import Cluster
from services.scheduler.decide import configure
from services.scheduler.decision import Decision
from services.scheduler.scheduler_state import SchedulerState
from shared.contracts import messages as m
from tests.support import world
from tests.unit.scheduler.test_scheduler_state import add_group, add_pod, put, scheduler

CONF = configure()
UNGATED = configure(
    'actions: "allocate, backfill"\n'
    "tiers: [{plugins: [{name: gang}, {name: predicates}, {name: proportion}]}]"
)
IMPATIENT = configure(
    'actions: "enqueue, allocate"\n'
    "tiers: [{plugins: [{name: gang}, {name: sla}, {name: overcommit}]}]"
)
ROOM = 10


def cluster(by: SchedulerState, cpu: int = ROOM) -> None:
    add_node(by, cpu)
    put(by, "queues", world.stored_queue("default", uid="q"))


def add_node(by: SchedulerState, cpu: int) -> None:
    put(by, "nodes", world.stored_node("n1", uid="n1", cpu=str(cpu)))


def occupy(by: SchedulerState, pods: int = ROOM - 1) -> None:
    """Leave one CPU, and let so much in beyond the cluster that a large job finds the gate shut."""
    add_group(by, "old", "Running", minMember=pods)
    for number in range(pods):
        add_pod(by, f"old-{number}", "old", "n1")


class Cycles:
    """Cycles of one scheduler, in seconds of their own."""

    def __init__(self, by: SchedulerState, conf=CONF) -> None:
        self.by, self.conf = by, conf
        self.number = 0
        self.told: list[str] = []

    def run(self) -> Decision:
        self.number += 1
        found = self.by.decide(self.conf, now=float(self.number), cycle=self.number, token=1)
        if not found.plan.is_empty:
            self.by.assume_statuses(found.plan)
        self.told += [why.job for why in found.waits]
        return found

    def settle(self) -> Decision:
        for _ in range(6):
            found = self.run()
        return found


def waiting_for_the_gate(count: int) -> Cycles:
    under = scheduler(0.0)
    cluster(under)
    occupy(under)
    for number in range(count):
        add_group(under, f"w{number:03}", "Pending", minResources={"cpu": "8"})
    cycles = Cycles(under)
    assert cycles.settle().unschedulable == count
    return cycles


def looked_at(decision: Decision) -> int:
    return len(decision.full_plan.explanations)


@pytest.mark.parametrize("count", [40, 160])
def test_a_cycle_with_a_small_job_looks_at_no_waiting_job_however_many_there_are(count):
    cycles = waiting_for_the_gate(count)
    add_group(cycles.by, "small", "Pending", minResources={"cpu": "1"})
    entered = cycles.run()
    assert [g.phase for g in entered.plan.podgroups if g.key == "ns/small"] == ["Inqueue"]
    assert (looked_at(entered) <= 1, entered.unschedulable) == (
        True,
        count,
    )  # the small one lacks its pod
    add_pod(cycles.by, "small-0", "small")
    bound = cycles.run()
    assert [len(c.binds) for c in bound.commands if isinstance(c, m.BindGang)] == [1]
    assert (looked_at(bound), bound.unschedulable) == (0, count)


def test_where_some_may_enter_those_who_do_are_looked_at_and_the_first_who_may_not():
    cycles = waiting_for_the_gate(100)
    add_node(cycles.by, ROOM + 16)
    entered = cycles.run()
    admitted = [g.key for g in entered.plan.podgroups if g.phase == "Inqueue"]
    assert admitted == ["ns/w000", "ns/w001"]
    refused = [why.job for why in entered.full_plan.explanations if why.gate == "enqueue"]
    assert refused == ["ns/w002"]
    assert entered.unschedulable == 100 - 3


def test_a_job_is_looked_at_when_it_changes_itself():
    cycles = waiting_for_the_gate(40)
    add_group(cycles.by, "w007", "Pending", minResources={"cpu": "1"})
    decision = cycles.run()
    assert [g.phase for g in decision.plan.podgroups if g.key == "ns/w007"] == ["Inqueue"]


def test_a_new_job_has_its_place_behind_the_unschedulable_ones():
    cycles = waiting_for_the_gate(40)
    add_group(cycles.by, "w0075", "Pending", minResources={"cpu": "9"})
    (why,) = cycles.run().full_plan.explanations
    assert (why.job, why.position) == ("ns/w0075", 9)


def test_queues_count_unschedulable_jobs_among_the_pending_ones():
    cycles = waiting_for_the_gate(40)
    assert cycles.by.decide(CONF, now=9.0, cycle=9, token=1).plan.queues == ()
    add_group(cycles.by, "w999", "Pending", minResources={"cpu": "8"})
    (queue,) = cycles.run().plan.queues
    assert queue.pending == 41


def waiting_for_nodes(count: int) -> Cycles:
    under = scheduler(0.0)
    cluster(under)
    occupy(under, ROOM - 3)
    for number in range(count):
        add_group(under, f"w{number:03}", "Inqueue", minMember=4)
        for member in range(4):
            add_pod(under, f"w{number:03}-{member}", f"w{number:03}")
    cycles = Cycles(under, UNGATED)
    assert cycles.settle().unschedulable == count
    return cycles


@pytest.mark.parametrize("count", [40, 80])
def test_gangs_without_a_place_are_not_looked_at_while_small_jobs_come_and_go(count):
    cycles = waiting_for_nodes(count)
    add_group(cycles.by, "small", "Inqueue")
    add_pod(cycles.by, "small-0", "small")
    bound = cycles.run()
    assert [c.job for c in bound.commands if isinstance(c, m.BindGang)] == ["ns/small"]
    assert (looked_at(bound), bound.unschedulable) == (0, count)
    gone = m.Fact(kind="pods", key="ns/small-0", uid="small-0", rv="2", op=m.Op.DELETE)
    cycles.by.fold([gone])
    after = cycles.run()
    assert (after.commands, after.unschedulable) == ([], count)


def test_gangs_are_looked_at_when_there_is_room_for_one():
    cycles = waiting_for_nodes(40)
    gone = m.Fact(kind="pods", key="ns/old-0", uid="old-0", rv="2", op=m.Op.DELETE)
    cycles.by.fold([gone])
    assert [c.job for c in cycles.run().commands if isinstance(c, m.BindGang)] == ["ns/w000"]


def test_room_is_counted_for_the_classes_only_that_are_still_asked_for():
    cluster = Cluster()
    cluster.node("n0", cpu="4")
    cluster.group("g", min_member=1)
    cluster.pod("g-0", "g", cpu="1")
    nodes = cluster.cluster_state.nodes
    (task,) = cluster.cluster_state.jobs.get("ns/g").tasks.values()
    counted = []

    def session(*, asks: bool) -> None:
        nodes.slots.update()
        if asks:
            assert nodes.slots.total(task.task_class, 0, open_nodes) == 4

    def open_nodes():
        counted.append(task.task_class.id)
        return np.ones(1, dtype=bool)

    session(asks=True)
    session(asks=True)
    assert len(counted) == 1
    session(asks=False)
    session(asks=True)
    assert len(counted) == 2, "what no job waits for is kept no longer"


def test_a_short_queue_has_all_its_turns():
    under = scheduler(0.0)
    cluster(under)
    occupy(under)
    for number in range(10):
        add_group(under, f"w{number:03}", "Pending", minResources={"cpu": "8"})
    decision = Cycles(under).settle()
    assert (looked_at(decision), decision.unschedulable) == (10, 0)


def test_no_job_is_unschedulable_where_a_plugin_goes_by_the_clock():
    under = scheduler(0.0)
    cluster(under)
    occupy(under)
    for number in range(40):
        add_group(under, f"w{number:03}", "Pending", minResources={"cpu": "8"})
    assert Cycles(under, IMPATIENT).settle().unschedulable == 0


def test_a_wait_is_told_once_though_its_job_is_looked_at_again():
    cycles = waiting_for_the_gate(40)
    assert len(cycles.told) == len(set(cycles.told)) == 40
    for _ in range(60):
        cycles.run()
    assert len(cycles.told) == 40


def test_the_cycle_that_is_recorded_looks_at_all_jobs():
    cycles = waiting_for_the_gate(40)
    cycles.by.memory()
    recorded = cycles.run()
    assert (looked_at(recorded), recorded.unschedulable) == (40, 0)
