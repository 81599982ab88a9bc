"""What is heard on EVENTS about admissions, whatever its numbers look like (ADR 35)."""

import datetime as dt
from collections.abc import AsyncGenerator, Sequence

import pytest
import structlog

from pumice.events import GangAdmitted, encode
from services.controller.adapters.feed import AdmissionFeed
from services.controller.adapters.store import Identity
from shared.contracts.subjects import Subjects


class Heard:
    """Takes admissions in place of the informers."""

    def __init__(self) -> None:
        self.groups: list[Identity] = []

    def admitted(self, group: Identity) -> None:
        self.groups.append(group)


class Told:
    """A bus on which these payloads come."""

    def __init__(self, payloads: Sequence[bytes]) -> None:
        self._payloads = payloads

    async def listen(self, subject: str) -> AsyncGenerator[bytes, None]:
        assert subject == Subjects(cluster="local").admissions
        for payload in self._payloads:
            yield payload


def admission(version: str) -> bytes:
    event = GangAdmitted(gang="ns/g", uid="u", queue="q", job="ns/j", resource_version=version)
    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC).timestamp()
    return encode(event, id="1", time=now, source="/pumice/c/scheduler/s")


@pytest.mark.parametrize("odd", ["", "x", "-1", "9" * 5000, "²"])
async def test_an_admission_without_a_readable_version_is_left_to_the_status(odd: str) -> None:
    heard, told = Heard(), Told([admission(odd), b"no event", admission("7")])
    log = structlog.get_logger()
    subject = Subjects(cluster="local").admissions
    await AdmissionFeed(told, heard, subject=subject, log=log).run()
    assert heard.groups == [Identity("ns/g", "u", 7)]


def test_the_controller_listens_for_the_subject_of_the_events():
    subjects = Subjects(cluster="local")
    assert subjects.admissions == subjects.republished(subjects.events_about(GangAdmitted.topic))
