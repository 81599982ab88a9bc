"""A job that waits for long says why in its own status, and costs no request before (J34)."""

import msgspec

from services.controller.job.effects import WriteJobStatus
from services.controller.job.job_events import LONG_S
from shared.api.batch import JobPhase
from shared.api.scheduling import PodGroupCondition, PodGroupPhase, PodGroupStatus
from tests.unit.controller.world import START_S, Cluster, Controller, started, task

WHY = "resource in cluster is overused: overused cpu (needs 64 cpu, the cluster has 24)"


def waiting(message: str = WHY) -> tuple[Cluster, Controller]:
    """Return a job whose PodGroup is kept out of its queue."""
    cluster, controller = started(task("a", 2), group_phase=PodGroupPhase.PENDING)
    say(cluster, message)
    return cluster, controller


def say(cluster: Cluster, message: str, phase: PodGroupPhase = PodGroupPhase.PENDING) -> None:
    """Let scheduling say something of the group; "" takes back what it has said."""
    condition = PodGroupCondition(
        type="Unschedulable", status="True", reason="NotEnoughResources", message=message
    )
    status = PodGroupStatus(phase=phase, conditions=(condition,) if message else ())
    assert cluster.group is not None
    cluster.group = msgspec.structs.replace(cluster.group, status=status)


def test_a_job_that_waits_for_a_moment_writes_nothing_of_it() -> None:
    cluster, controller = waiting()
    cluster.writes.clear()
    found = controller.look()
    assert cluster.writes == []
    assert found.reconcile_at == START_S + LONG_S


def test_a_job_that_waits_for_long_says_why_once() -> None:
    cluster, controller = waiting()
    cluster.now += LONG_S
    cluster.writes.clear()
    found = controller.look()
    (write,) = (e for stage in found.stages for e in stage if isinstance(e, WriteJobStatus))
    assert not write.urgent
    state = controller.settle().state
    assert (state.phase, state.reason, state.message) == (JobPhase.PENDING, "Unschedulable", WHY)
    assert cluster.writes == ["WriteJobStatus"]


def test_a_job_that_waits_no_more_does_not_say_that_it_does() -> None:
    cluster, controller = waiting()
    cluster.now += LONG_S
    controller.settle()
    say(cluster, "", PodGroupPhase.INQUEUE)
    assert controller.settle().state.message == ""
    cluster.run_all()
    state = controller.settle().state
    assert (state.phase, state.reason, state.message) == (JobPhase.RUNNING, "", "")
