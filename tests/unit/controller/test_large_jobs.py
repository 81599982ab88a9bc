"""A job of many pods costs each change of a pod the same, however many there are.

Measured in calls of Python functions and not in seconds, so that a busy machine changes nothing.
"""

import sys

from services.controller.adapters.records import JobRecord
from services.controller.job.facts import PodView
from shared.api.batch import Job, JobPhase, JobSpec, JobState, JobStatus, TaskSpec
from shared.api.core import PodPhase
from shared.api.meta import ObjectMeta

PODS = 3_000


def view(index: int, phase: PodPhase, **more) -> PodView:
    return PodView(name=f"j-w-{index}", uid=f"u{index}", task="w", index=index, phase=phase, **more)


def record_of(phase: PodPhase, **more) -> JobRecord:
    meta = ObjectMeta(name="j", namespace="ns", uid="j", resource_version="1")
    spec = JobSpec(tasks=(TaskSpec(name="w", replicas=PODS),))
    pods = {f"j-w-{index}": view(index, phase, **more) for index in range(PODS)}
    return JobRecord(
        Job(metadata=meta, spec=spec, status=JobStatus(state=JobState(phase=JobPhase.RUNNING))),
        pods,
        scheduler_name="volcano",
    )


class Steps:
    """Counts lines of Python that run in a block: its work, whatever the machine does besides."""

    def __init__(self) -> None:
        self.lines = 0

    def _line(self, *_):
        self.lines += 1
        return self._line

    def __enter__(self):
        sys.settrace(self._line)
        return self

    def __exit__(self, *_):
        sys.settrace(None)


def test_a_process_that_begins_to_own_a_job_looks_at_each_pod_a_few_times() -> None:
    for phase, more in (
        (PodPhase.SUCCEEDED, {}),
        (PodPhase.FAILED, {}),
        (PodPhase.RUNNING, {"restarts": 1}),
    ):
        record = record_of(phase, **more)
        with Steps() as steps:
            record.acquire()
        assert steps.lines < 250 * PODS, phase


def test_the_end_and_the_restart_of_a_pod_cost_no_walk_over_all_pods() -> None:
    record = record_of(PodPhase.RUNNING)
    record.acquire()
    with Steps() as steps:
        for index in range(PODS):
            before = record.pods[f"j-w-{index}"]
            for after in (
                view(index, PodPhase.RUNNING, restarts=1),
                view(index, PodPhase.SUCCEEDED, restarts=1),
            ):
                record.changed(before, after)
                before = after
    assert steps.lines < 400 * PODS
    events = [request.event for request in record.requests.values()]
    assert events.count("TaskCompleted") == 1
