"""Lives of jobs: what is said of one whose objects are there no more."""

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from pumice.events import CloudEvent, GangAdmitted, JobPhaseChanged
from services.visibility.timelines import KnownJob, timeline

AT_S = 1e9
LATE_S = AT_S + 60


def phases(*names: str) -> list[CloudEvent]:
    """Return the events of a job that went through these phases, a second each, until `AT_S`."""
    return [
        CloudEvent(
            id=name,
            source="test",
            type="dev.pumice.job.phase",
            subject="ns/train",
            time=datetime.fromtimestamp(AT_S - number, tz=UTC),
            data=JobPhaseChanged(job="ns/train", uid="u1", phase=name, queue="q"),
        )
        for number, name in enumerate(reversed(names))
    ]


@pytest.mark.parametrize("last", ["Pending", "Running"])
def test_a_job_that_was_deleted_while_it_waited_or_ran_is_said_to_be_gone(last: str) -> None:
    found = timeline("ns", "train", phases("Pending", last), KnownJob(), LATE_S)
    assert found is not None
    assert (found.gone, found.phase) == (True, last)


def test_a_job_that_is_there_is_not_gone() -> None:
    known = KnownJob(group="ns/train-u1", uid="u1", posted_s=AT_S, queue="q")
    found = timeline("ns", "train", phases("Pending"), known, LATE_S)
    assert found is not None
    assert not found.gone


def test_a_job_whose_group_is_about_to_be_made_is_not_gone() -> None:
    found = timeline("ns", "train", phases("Pending"), KnownJob(), AT_S + 1)
    assert found is not None
    assert not found.gone


def test_a_job_whose_claim_is_missing_has_no_group_and_is_not_gone() -> None:
    (new,) = phases("Pending")
    refused = replace(new.data, reason="PVCError", message="no claim 'data'")
    found = timeline("ns", "train", [replace(new, data=refused)], KnownJob(), LATE_S)
    assert found is not None
    assert not found.gone


@pytest.mark.parametrize(
    ("is_admitted", "now_s", "goes_on"),
    [(False, AT_S + 1, True), (True, AT_S + 1, False), (False, LATE_S, False)],
    ids=["it waits", "it was admitted at once", "it is gone"],
)
def test_a_wait_goes_on_until_its_end_or_that_of_the_job(
    is_admitted: bool, now_s: float, goes_on: bool
) -> None:
    (new,) = phases("Pending")
    gang = GangAdmitted(gang="ns/train-u1", uid="g1", queue="q", job="ns/train")
    events = [new, *([replace(new, data=gang)] if is_admitted else [])]
    found = timeline("ns", "train", events, KnownJob(), now_s)
    assert found is not None
    (wait,) = (entry for entry in found.entries if entry.what == "Waits")
    assert (wait.seconds, wait.goes_on) == (None, goes_on)


@pytest.mark.parametrize("last", ["Completed", "Aborted", "Restarting"])
def test_a_phase_without_a_group_says_nothing_of_whether_the_job_is_gone(last: str) -> None:
    found = timeline("ns", "train", phases("Running", last), KnownJob(), LATE_S)
    assert found is not None
    assert not found.gone
