"""A controller may die between any two writes: its successor ends in the same place."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.api.batch import JobStatus
from shared.api.meta import ObjectMeta
from shared.api.scheduling import ExtendCluster, PodGroupPhase, Queue, QueueSpec
from tests.support.structs import job
from tests.unit.controller.world import Cluster, Controller, Crash, running, task

pytestmark = pytest.mark.laws

Happening = Callable[[Cluster], None]


def _fails(code: int) -> Happening:
    return lambda cluster: cluster.change_pod("train-w-0", "Failed", exit_code=code)


def _evicted(cluster: Cluster) -> None:
    del cluster.pods["train-w-1"]


def _all_succeed(cluster: Cluster) -> None:
    for index in range(3):
        cluster.change_pod(f"train-w-{index}", "Succeeded")


def _stopped_and_resumed(cluster: Cluster) -> None:
    cluster.change_pod("train-w-0", "Succeeded")
    cluster.command("AbortJob", "1-stop")
    cluster.command("ResumeJob", "2-go")


HAPPENINGS: dict[str, Happening] = {
    "a-pod-fails": _fails(1),
    "a-pod-fails-with-a-code": _fails(137),
    "a-pod-is-evicted": _evicted,
    "the-workers-succeed": _all_succeed,
    "abort-is-ordered": lambda cluster: cluster.command("AbortJob"),
    "terminate-is-ordered": lambda cluster: cluster.command("TerminateJob"),
    "stop-and-resume-are-ordered": _stopped_and_resumed,
    "restart-is-ordered": lambda cluster: cluster.command("RestartJob"),
}
ACTIONS = ("RestartJob", "RestartTask", "RestartPod", "AbortJob", "CompleteJob", "TerminateJob")


def _world(failed: str, evicted: str) -> Cluster:
    cluster, _ = running(
        task("ps", 1),
        task("w", 3, policies=[{"event": "TaskCompleted", "action": "CompleteJob"}]),
        policies=[
            {"event": "PodFailed", "action": failed},
            {"event": "PodEvicted", "action": evicted},
        ],
        plugins={"svc": [], "env": []},
    )
    return cluster


def _survives(cluster: Cluster, *deaths: int) -> JobStatus:
    """Look after the job with a process that dies after so many writes, then with the next one."""
    for dies_after in deaths:
        try:
            return Controller(cluster, dies_after=dies_after).settle()
        except Crash:
            continue
    return Controller(cluster).settle()


def _summary(cluster: Cluster, status: JobStatus) -> tuple[object, ...]:
    pods = sorted((name, pod.status.phase) for name, pod in cluster.pods.items())
    return (
        status.state.phase,
        status.retry_count,
        pods,
        cluster.group is not None,
        sorted(cluster.companions),
        sorted(cluster.commands),
    )


@pytest.mark.parametrize("happening", HAPPENINGS)
@given(
    failed=st.sampled_from(ACTIONS),
    evicted=st.sampled_from(ACTIONS),
    deaths=st.lists(st.integers(0, 12), max_size=4),
)
@settings(max_examples=50, deadline=None)
def test_a_crash_between_two_writes_changes_nothing_in_the_end(
    happening: str, failed: str, evicted: str, deaths: list[int]
) -> None:
    undisturbed, disturbed = _world(failed, evicted), _world(failed, evicted)
    HAPPENINGS[happening](undisturbed)
    HAPPENINGS[happening](disturbed)
    expected = _summary(undisturbed, _survives(undisturbed))
    assert _summary(disturbed, _survives(disturbed, *deaths)) == expected


def _new() -> Cluster:
    """A job of which nothing is made yet, in a queue that hands its jobs on."""
    first = job(
        task("ps", 1),
        task("w", 3, dependsOn={"name": ["ps"]}),
        plugins={"svc": [], "env": []},
        volumes=[{"mountPath": "/data", "volumeClaim": {"accessModes": ["ReadWriteOnce"]}}],
    )
    cluster = Cluster(first, group_phase=PodGroupPhase.INQUEUE)
    spec = QueueSpec(extend_clusters=(ExtendCluster(name="b"),))
    cluster.queue = Queue(metadata=ObjectMeta(name="default", uid="q"), spec=spec)
    return cluster


@given(deaths=st.lists(st.integers(0, 8), max_size=6))
@settings(max_examples=50, deadline=None)
def test_a_crash_while_a_job_is_begun_changes_nothing_in_the_end(deaths: list[int]) -> None:
    undisturbed, disturbed = _new(), _new()
    ends = []
    for cluster, dies in ((undisturbed, ()), (disturbed, deaths)):
        _survives(cluster, *dies)
        cluster.run_all()
        _survives(cluster, *dies)
        cluster.run_all()
        ends.append((_summary(cluster, _survives(cluster)), cluster.job.spec, cluster.created))
    assert ends[0] == ends[1]


@given(deaths=st.lists(st.integers(0, 6), max_size=30))
@settings(max_examples=30, deadline=None)
def test_a_process_that_dies_again_and_again_counts_each_restart_once_j37(
    deaths: list[int],
) -> None:
    cluster = _world("RestartJob", "RestartJob")
    for retries in (1, 2):
        cluster.run_all()
        _survives(cluster, *deaths)
        HAPPENINGS["a-pod-fails"](cluster)
        assert _survives(cluster, *deaths).retry_count == retries
