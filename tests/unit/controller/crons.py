"""A world for looks at CronJobs: an API server of one namespace, and a clock that a test sets."""

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
from shared.api.batch import Job, JobPhase, JobState, JobStatus
from shared.api.cron import CronJob
from tests.unit.controller.reconcilers import played


class _DeathError(Exception):
    """The controller dies in the midst of a look."""


class CronWorld:
    """One CronJob and the jobs of its namespace; `look` looks at it as the controller does."""

    def __init__(self, schedule: str = "*/5 * * * *", **spec: Any) -> None:
        body = {
            "metadata": {
                "name": "c",
                "namespace": "ns",
                "uid": "cron",
                "creationTimestamp": "2025-03-11T10:00:00Z",
            },
            "spec": {"schedule": schedule, "jobTemplate": {}, **spec},
        }
        self.cron: CronJob = kinds.decode(kinds.CRONJOB, msgspec.json.encode(body))
        self.jobs: dict[str, Job] = {}
        self.hidden: set[str] = set()
        """Jobs that the API server has and the controller does not know of yet."""
        self.failing: dict[type, Failed] = {}
        """Kind of ask → what the API server says to it."""
        self.told: list[str] = []
        self.asked: list[str] = []
        self.writes = 0
        self.made: list[str] = []
        """Names of all jobs that were ever made."""

    def look(self, clock: str, *, die_at: type | None = None) -> SyncResult:
        """Look once at a time of 11 March 2025; with `die_at` no further than such an ask."""
        now = time.parse(f"2025-03-11T{clock}Z") if "T" not in clock else time.parse(clock)
        known = [job for name, job in self.jobs.items() if name not in self.hidden]

        def answer(ask: Step) -> StepResult:
            if die_at is not None and isinstance(ask, die_at):
                raise _DeathError
            return self._answer(ask)

        try:
            return played(sync(self.cron, known, now=now), answer)
        except _DeathError:
            return SyncResult(failed="died")

    def enter(self, name: str, phase: JobPhase, clock: str = "10:59:00") -> None:
        """Have a job enter a phase."""
        state = JobState(phase=phase, last_transition_time=f"2025-03-11T{clock}Z")
        self.jobs[name] = msgspec.structs.replace(self.jobs[name], status=JobStatus(state=state))

    @property
    def active(self) -> list[str]:
        """Names of the jobs that the status calls active."""
        return [ref.name for ref in self.cron.status.active]

    def reasons(self) -> list[str]:
        """Return the reasons of the events so far, and forget them."""
        found, self.told = self.told, []
        return found

    def _answer(self, ask: Step) -> StepResult:
        self.asked.append(type(ask).__name__)
        if failed := self.failing.get(type(ask)):
            return failed
        match ask:
            case RecordCronJobEvent():
                self.told.append(ask.reason)
            case ReadJob():
                return self.jobs.get(ask.name)
            case CreateJob():
                return self._make(ask.job)
            case DeleteJob():
                self.jobs.pop(ask.job.metadata.name, None)
            case WriteCronJobStatus():
                self.cron = msgspec.structs.replace(self.cron, status=ask.status)
                self.writes += 1
        return None

    def _make(self, job: Job) -> StepResult:
        name = job.metadata.name
        if name in self.jobs:
            return NameTaken()
        self.made.append(name)
        meta = msgspec.structs.replace(
            job.metadata,
            uid=f"job-{len(self.made)}",
            creation_timestamp=f"2025-03-11T10:00:{len(self.made):02}Z",
        )
        self.jobs[name] = msgspec.structs.replace(job, metadata=meta)
        return self.jobs[name]


def name_at(clock: str) -> str:
    """Return the name of the job that is due at a time of that day."""
    return f"c-{int(time.parse(f'2025-03-11T{clock}Z')) // 60}"
