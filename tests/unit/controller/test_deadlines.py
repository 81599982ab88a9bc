"""A job that has run for as long as it may is ended, at the same time whoever looks after it."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.controller.job.facts import pod_view
from shared.api import keys
from shared.api.batch import JobPhase
from shared.api.meta import ObjectMeta
from shared.api.scheduling import PodGroupPhase, Queue
from shared.api.time import format_seconds
from tests.support.structs import job
from tests.unit.controller.world import START_S, Cluster, Controller, Crash, task

HOUR_S = 3600.0


def limited(
    *, queue: dict[str, str] | None = None, spec: Any = None, **annotations: str
) -> Cluster:
    """Return a cluster whose job of two pods has annotations; the first pod starts at START_S."""
    made = job(task("w", 2), **(spec or {}))
    notes = {f"pumice.dev/{k.replace('_', '-')}": value for k, value in annotations.items()}
    meta = msgspec.structs.replace(made.metadata, annotations=notes)
    cluster = Cluster(
        msgspec.structs.replace(made, metadata=meta), group_phase=PodGroupPhase.INQUEUE
    )
    cluster.queue = Queue(metadata=ObjectMeta(name="default", uid="q", annotations=queue or {}))
    Controller(cluster).settle()
    start(cluster, "train-w-0", START_S)
    start(cluster, "train-w-1", START_S + 60.0)
    Controller(cluster).settle()
    return cluster


def start(cluster: Cluster, name: str, at: float) -> None:
    cluster.change_pod(name, "Running")
    pod = cluster.pods[name]
    status = msgspec.structs.replace(pod.status, start_time=format_seconds(at))
    cluster.pods[name] = msgspec.structs.replace(pod, status=status)


def at(cluster: Cluster, after_s: float) -> JobPhase | None:
    """Let a new controller handle the job so long after the start; return its phase."""
    cluster.now = START_S + after_s
    return Controller(cluster).settle().state.phase


def test_a_job_is_terminated_when_its_first_pod_has_run_for_the_limit() -> None:
    cluster = limited(max_runtime="1h")
    assert at(cluster, HOUR_S - 1.0) == JobPhase.RUNNING
    assert at(cluster, HOUR_S) == JobPhase.TERMINATED
    state = cluster.job.status.state
    assert state.reason == "JobDeadlineExceeded"
    assert state.message == (
        "the job has run for 1h0m0s, the most that metadata.annotations[pumice.dev/max-runtime] "
        "allows"
    )
    (event,) = (e for e in cluster.told if e.reason == "JobDeadlineExceeded")
    assert event.warning
    assert event.message == state.message
    assert cluster.pods == {}


def test_the_next_pass_is_due_at_the_deadline() -> None:
    cluster = limited(max_runtime="1h")
    controller = Controller(cluster)
    controller.settle()
    assert controller.look().reconcile_at == START_S + HOUR_S


@pytest.mark.parametrize(
    ("own", "queue", "limit_s"),
    [
        ("", {keys.DEFAULT_MAX_RUNTIME: "30m", keys.MAX_RUNTIME: "1h"}, 1800.0),
        ("", {keys.MAX_RUNTIME: "3600"}, HOUR_S),
        ("2h", {keys.MAX_RUNTIME: "1h"}, HOUR_S),
        ("soon", {keys.MAX_RUNTIME: "1h"}, HOUR_S),
        ("", {keys.MAX_RUNTIME: "soon"}, None),
        ("", {}, None),
    ],
)
def test_a_job_that_admission_did_not_see_gets_the_limit_of_its_queue(
    own: str, queue: dict[str, str], limit_s: float | None
) -> None:
    cluster = limited(queue=queue, **({"max_runtime": own} if own else {}))
    if limit_s is None:
        assert at(cluster, 1e6) == JobPhase.RUNNING
        return
    assert at(cluster, limit_s - 1.0) == JobPhase.RUNNING
    assert at(cluster, limit_s) == JobPhase.TERMINATED


def test_a_limit_that_a_queue_gets_later_ends_no_job_that_runs() -> None:
    cluster = limited()
    annotations = {keys.MAX_RUNTIME: "1h"}
    cluster.queue = Queue(metadata=ObjectMeta(name="default", uid="q", annotations=annotations))
    assert at(cluster, 100 * HOUR_S) == JobPhase.RUNNING


def test_the_group_of_a_job_shows_its_limit_and_follows_a_change() -> None:
    cluster = limited(queue={keys.MAX_RUNTIME: "1h"})
    assert cluster.group is not None
    assert cluster.group.metadata.annotations[keys.MAX_RUNTIME] == "1h"
    notes = {**cluster.job.metadata.annotations, keys.MAX_RUNTIME: "30m"}
    meta = msgspec.structs.replace(
        cluster.job.metadata, annotations=notes, resource_version=cluster.rv()
    )
    cluster.job = msgspec.structs.replace(cluster.job, metadata=meta)
    Controller(cluster).settle()
    assert cluster.group.metadata.annotations[keys.MAX_RUNTIME] == "30m"


@pytest.mark.parametrize(
    ("action", "phase"),
    [
        ("AbortJob", JobPhase.ABORTED),
        ("CompleteJob", JobPhase.COMPLETED),
        ("TerminateJob", JobPhase.TERMINATED),
        ("RestartPod", JobPhase.TERMINATED),
        ("Dance", JobPhase.TERMINATED),
    ],
)
def test_an_annotation_says_what_happens_at_the_deadline(action: str, phase: JobPhase) -> None:
    assert at(limited(max_runtime="1h", deadline_action=action), HOUR_S) == phase


def test_a_policy_about_any_event_counts_and_does_not_postpone_the_deadline() -> None:
    policy = {"event": "*", "action": "AbortJob", "timeout": "1h"}
    assert at(limited(max_runtime="1h", spec={"policies": [policy]}), HOUR_S) == JobPhase.ABORTED


def test_a_restarted_job_has_its_whole_time_again() -> None:
    cluster = limited(max_runtime="1h", deadline_action="RestartJob")
    at(cluster, HOUR_S)
    assert cluster.job.status.retry_count == 1
    assert cluster.job.status.state.phase == JobPhase.PENDING
    start(cluster, "train-w-0", START_S + HOUR_S + 10.0)
    start(cluster, "train-w-1", START_S + HOUR_S + 10.0)
    assert at(cluster, 2 * HOUR_S + 9.0) == JobPhase.RUNNING
    assert at(cluster, 2 * HOUR_S + 10.0) == JobPhase.PENDING
    assert cluster.job.status.retry_count == 2


def test_a_pod_that_has_ended_counts_for_the_start() -> None:
    cluster = limited(max_runtime="1h")
    cluster.change_pod("train-w-0", "Succeeded")
    pod = cluster.pods["train-w-0"]
    status = msgspec.structs.replace(pod.status, start_time=format_seconds(START_S))
    cluster.pods["train-w-0"] = msgspec.structs.replace(pod, status=status)
    assert at(cluster, HOUR_S) == JobPhase.TERMINATED


def test_a_start_that_is_no_time_does_not_count() -> None:
    cluster = limited(max_runtime="1h")
    pod = cluster.pods["train-w-0"]
    broken = msgspec.structs.replace(pod.status, start_time="soon")
    found = pod_view(msgspec.structs.replace(pod, status=broken))
    assert found is not None
    assert found[1].started == 0.0


@pytest.mark.laws
@settings(max_examples=60)
@given(
    limit_s=st.integers(1, 7200),
    looks=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 12)), max_size=4),
)
def test_controllers_that_die_at_any_moment_end_a_job_at_its_deadline_and_not_before(
    limit_s: int, looks: list[tuple[int, int]]
) -> None:
    cluster = limited(max_runtime=f"{limit_s}s")
    for after_s, dies_after in sorted(looks):
        cluster.now = START_S + after_s
        controller = Controller(cluster, dies_after=dies_after)
        try:
            controller.settle()
        except Crash:
            continue
        ended = cluster.job.status.state.phase == JobPhase.TERMINATED
        assert ended == (after_s >= limit_s)
    assert at(cluster, max(10_000, limit_s)) == JobPhase.TERMINATED
    assert len({e.occasion for e in cluster.told if e.reason == "JobDeadlineExceeded"}) <= 1
    assert cluster.job.status.state.reason == "JobDeadlineExceeded"
