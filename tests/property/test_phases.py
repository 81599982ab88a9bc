"""Laws of phases: no group is completed, and no job runs, while all that is left of it waits."""

from hypothesis import given
from hypothesis import strategies as st

from pumice.testing import Cluster
from services.controller.job.facts import Counts
from services.controller.job.phases import TABLE
from services.scheduler.engine.status.statuses import phase_of
from shared.api.batch import JobPhase, JobSpec, JobStatus, TaskSpec

few = st.integers(0, 4)


@given(
    minimum=few,
    shown=st.sampled_from(["", "Pending", "Inqueue", "Running", "Unknown", "Completed"]),
    states=st.lists(st.sampled_from(["", "Running", "Succeeded", "Failed"]), max_size=5),
)
def test_a_group_is_completed_only_when_no_pod_waits_beside_those_that_ended(
    minimum: int, shown: str, states: list[str]
) -> None:
    world = Cluster().node("n1").group("g", min_member=minimum, phase=shown)
    for number, state in enumerate(states):
        node = "n1" if state else ""
        world.pod(f"p-{number}", "g", cpu="1", node=node, phase=state)
    phase = phase_of(world.job("g"), unschedulable=False)
    ended = sum(state in {"Succeeded", "Failed"} for state in states)
    if "" in states:
        assert phase != "Completed"
    if states and ended == len(states) and ended >= minimum:
        assert phase == "Completed"


@given(minimum=few, pending=few, running=few, succeeded=few, failed=few)
def test_a_job_runs_once_a_pod_has_started_and_its_counts_do_not_move_it_to_and_fro(
    minimum: int, pending: int, running: int, succeeded: int, failed: int
) -> None:
    replicas = pending + running + succeeded + failed
    spec = JobSpec(
        min_available=min(minimum, replicas), tasks=(TaskSpec(name="a", replicas=replicas),)
    )
    counts = Counts(pending=pending, running=running, succeeded=succeeded, failed=failed)
    runs = _next(JobPhase.PENDING, spec, counts) is JobPhase.RUNNING
    assert runs == (running + succeeded + failed >= max(spec.min_available, min(1, replicas)))
    assert not (runs and _next(JobPhase.RUNNING, spec, counts) is JobPhase.PENDING)


def _next(phase: JobPhase, spec: JobSpec, counts: Counts) -> JobPhase | None:
    rule = TABLE[phase][None].then
    assert rule is not None
    return rule.decide(spec, JobStatus(), counts)
