"""Events of a job's phases say what it was made from, and how long it ran."""

import pytest

from pumice.events import Event, JobPhaseChanged
from services.controller.adapters.recorder import ControllerEvents
from services.controller.job.status import entered
from shared.api import keys
from shared.api.batch import Job, JobPhase, JobStatus
from shared.api.meta import ObjectMeta
from shared.api.scheduling import PodGroup, PodGroupSpec, PodGroupStatus


class _Announced:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def publish(self, event: Event, _: str) -> None:
        self.events.append(event)


def event_of(*phases: tuple[JobPhase, float], was: JobPhase, says: str = "") -> JobPhaseChanged:
    """Return the event of the last of the phases that a job has entered at these times."""
    said = {keys.EXPECTED_DURATION: says} if says else {}
    meta = ObjectMeta(name="nightly-28912345", namespace="ns", uid="u", annotations=said)
    job = Job(metadata=meta)
    status = JobStatus()
    for phase, now in phases:
        status = entered(job, status, phase, now=now)
    announced = _Announced()
    ControllerEvents(announced).phase(job, was=was, status=status, group=None)
    (event,) = announced.events
    assert isinstance(event, JobPhaseChanged)
    return event


@pytest.mark.parametrize("end", [JobPhase.COMPLETED, JobPhase.FAILED, JobPhase.RESTARTING])
def test_a_job_that_leaves_running_says_how_long_it_ran(end: JobPhase) -> None:
    phases = ((JobPhase.PENDING, 0.0), (JobPhase.RUNNING, 100.0), (end, 160.0))
    event = event_of(*phases, was=JobPhase.RUNNING)
    assert (event.seconds_running, event.template) == (60.0, "ns/nightly")


def test_a_job_that_enters_running_has_not_run_yet() -> None:
    phases = ((JobPhase.PENDING, 0.0), (JobPhase.RUNNING, 100.0))
    assert event_of(*phases, was=JobPhase.PENDING).seconds_running == 0.0


def test_a_run_is_told_once_by_the_phase_that_follows_it() -> None:
    phases = ((JobPhase.RUNNING, 5.0), (JobPhase.COMPLETING, 9.0), (JobPhase.COMPLETED, 12.0))
    assert event_of(*phases, was=JobPhase.COMPLETING).seconds_running == 0.0


def test_a_job_that_leaves_running_says_how_long_it_had_stated_to_run() -> None:
    phases = ((JobPhase.RUNNING, 5.0), (JobPhase.COMPLETED, 9.0))
    event = event_of(*phases, was=JobPhase.RUNNING, says="1h30m")
    assert (event.seconds_stated, event.stated_by) == (5400.0, "annotation")
    event = event_of(*phases, was=JobPhase.RUNNING)
    assert (event.seconds_stated, event.stated_by) == (0.0, "")


def test_the_stated_duration_is_told_with_the_run_that_it_was_for() -> None:
    event = event_of((JobPhase.RUNNING, 5.0), was=JobPhase.PENDING, says="1h30m")
    assert (event.seconds_stated, event.stated_by) == (0.0, "")


def test_an_event_says_what_the_gang_needs() -> None:
    announced = _Announced()
    job = Job(metadata=ObjectMeta(name="a", namespace="ns", uid="u"))
    spec = PodGroupSpec(min_resources={"cpu": "4", "pods": 2})
    group = PodGroup(metadata=job.metadata, spec=spec, status=PodGroupStatus())
    for known in (group, None):
        ControllerEvents(announced).phase(job, was="", status=JobStatus(), group=known)
    said = [e.min_resources for e in announced.events if isinstance(e, JobPhaseChanged)]
    assert said == [{"cpu": "4", "pods": "2"}, {}]
