"""CronJobs: what one look makes of a CronJob and its jobs (X01 to X04).

Volcano's function returns an error where ours says that the look failed or that the spec is
invalid; their words are its own business. So are the texts of events: compared are their types and
reasons, in order, but for the ones that delete old jobs, which we do last (the status has to know
of them first).
"""

from collections import Counter
from typing import Any

import msgspec

from services.controller.cronjob.steps import (
    CreateJob,
    DeleteJob,
    Failed,
    NameTaken,
    ReadJob,
    RecordCronJobEvent,
    Step,
    StepResult,
    SyncResult,
    WriteCronJobStatus,
)
from services.controller.cronjob.sync import sync
from shared.api import kinds, time
from shared.api.batch import Job
from shared.api.cron import CronJob
from tests.conformance.report import expect
from tests.unit.controller.reconcilers import played

_UID = "test-uid-123"
_WALL_CLOCK = 1_741_690_000.0
"""Any time will do where Volcano's test used the real one: the case must not depend on it."""


def check_sync(case: dict[str, Any]) -> None:
    """`syncCronJob`: status, jobs made and deleted, events, and when to look again."""
    given = case["given"]
    cron: CronJob = _decode(kinds.CRONJOB, given["cronJob"])
    jobs = [_decode(kinds.JOB, job) for job in given.get("jobs") or ()]
    now = time.parse(given["now"]) if "now" in given else _WALL_CLOCK
    api = _RecordedApi(given)
    outcome = played(sync(cron, jobs, now=now), api.answer)
    _compare(case["actual"], cron, api, outcome)
    _compare_expected(case.get("expect", {}), api, outcome)


class _RecordedApi:
    """Answers as Volcano's fake API server did, and notes what it was asked."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._job = given.get("jobInApiServer")
        self._get_error = given.get("getJobError", "")
        self._create_error = given.get("createJobError", "")
        self.created: list[dict[str, Any]] = []
        self.deleted: list[str] = []
        self.events: list[str] = []
        self.status: dict[str, Any] | None = None

    def answer(self, ask: Step) -> StepResult:
        match ask:
            case RecordCronJobEvent():
                kind = "Warning" if ask.warning else "Normal"
                self.events.append(f"{kind} {ask.reason} {ask.message}")
            case ReadJob():
                return self._read()
            case CreateJob():
                return self._make(ask.job)
            case DeleteJob():
                return self._remove(ask.job)
            case WriteCronJobStatus():
                self.status = _plain(ask.status)
        return None

    def _read(self) -> StepResult:
        if self._get_error:
            return None if "not found" in self._get_error else Failed(reason=self._get_error)
        return None if self._job is None else _decode(kinds.JOB, self._job)

    def _make(self, job: Job) -> StepResult:
        if "already exists" in self._create_error:
            return NameTaken()
        if self._create_error:
            ends = "terminat" in self._create_error
            return Failed(reason=self._create_error, namespace_ends=ends)
        meta = msgspec.structs.replace(job.metadata, uid=_UID, namespace="")
        made = msgspec.structs.replace(job, metadata=meta)
        self.created.append(_without_empty(msgspec.json.decode(kinds.encode(kinds.JOB, made))))
        return made

    def _remove(self, job: Job) -> StepResult:
        if self._get_error:
            return Failed(reason=self._get_error)
        self.deleted.append(job.metadata.name)
        return None


def _compare(actual: dict[str, Any], cron: CronJob, api: _RecordedApi, outcome: SyncResult) -> None:
    expect("error", bool(outcome.failed or outcome.invalid), bool(actual.get("error")))
    expect("updateStatus", api.status is not None, actual["updateStatus"])
    status = api.status if api.status is not None else _plain(cron.status)
    expect("status", status, actual.get("status") or {})
    expect(
        "requeueAfterSeconds",
        _rounded(outcome.requeue_after_s),
        _rounded(actual.get("requeueAfterSeconds")),
    )
    expect("createdJobs", api.created, actual.get("createdJobs") or [])
    expect("deletedJobs", sorted(api.deleted), sorted(actual.get("deletedJobs") or []))
    expect("events", _heads(api.events), _heads(actual.get("events") or []))


def _compare_expected(expected: dict[str, Any], api: _RecordedApi, outcome: SyncResult) -> None:
    """Compare the counts that Volcano's own test asserts."""
    counts = {"createJobNum": len(api.created), "deleteJobNum": len(api.deleted)}
    counts |= {"eventsNum": len(api.events)}
    if "requeueAfterSeconds" in expected:
        expect(
            "requeue", _rounded(outcome.requeue_after_s), _rounded(expected["requeueAfterSeconds"])
        )
    for name, count in counts.items():
        expect(name, count, expected.get(name, count))


def _heads(events: list[str]) -> list[tuple[str, int]]:
    """Return type and reason of events; deletions are counted, the others stay in their order."""
    heads = [" ".join(event.split(" ", 2)[:2]) for event in events]
    last = Counter(head for head in heads if head.endswith("Delete"))
    ordered = [(head, 1) for head in heads if not head.endswith("Delete")]
    return ordered + sorted(last.items())


def _without_empty(plain: dict[str, Any]) -> dict[str, Any]:
    """Leave empty members out, as the cases do."""
    return {name: member for name, member in plain.items() if member not in ({}, [])}


def _decode(kind: kinds.Kind, plain: dict[str, Any]) -> Any:
    return kinds.decode(kind, msgspec.json.encode(plain))


def _plain(view: object) -> dict[str, Any]:
    return msgspec.json.decode(msgspec.json.encode(view))


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
