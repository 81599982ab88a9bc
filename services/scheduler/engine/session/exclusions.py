"""Jobs, queues and actions that a session excluded because their handling raised an error.

Actions handle each job or queue inside `Session.isolate`: an exception ends the handling of that
one alone. Trials that are open are undone, decisions that were committed stand, and the job is not
visited again in this session. A change of the journal that failed half-way (`BrokenOff`) ends the
session: neither its plan nor the cluster state can be trusted then.
"""

from types import TracebackType
from typing import NamedTuple, Self

from services.scheduler.engine.jobs.records import Job, Queue
from services.scheduler.engine.journal import BrokenOff
from services.scheduler.engine.progress import Progress, Step

_LETTERS_MAX = 300


class Quarantined(Exception):  # noqa: N818 - the fact
    """A job is excluded although it has not failed in this session; the text says why."""


class Exclusion(NamedTuple):
    """One job, queue or action that was excluded from a session."""

    kind: str
    """`podgroups` or `queues`, as kinds of objects are called, or `actions`."""
    key: str
    stage: str
    """The stage that failed: the name of an action, or `status`."""
    error: Exception
    uid: str = ""

    @property
    def reason(self) -> str:
        """The error as one line for a person."""
        text = " ".join(str(self.error)[: 2 * _LETTERS_MAX].split())[:_LETTERS_MAX]
        if isinstance(self.error, Quarantined):
            return text
        return f"left out, {self.stage} failed: {type(self.error).__name__}: {text}"


class Exclusions:
    """The exclusions of one session."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.found: dict[tuple[str, str], Exclusion] = {}
        self.unsound: Exclusion | None = None
        """The job that was handled when a change broke off half-way."""

    def note(self, exclusion: Exclusion) -> None:
        """Exclude a job, queue or action; the first error counts."""
        self.found.setdefault((exclusion.kind, exclusion.key), exclusion)

    def has(self, job: Job) -> bool:
        """Tell whether a job was excluded."""
        return bool(self.found) and ("podgroups", job.key) in self.found

    def is_quarantined(self, job: Job) -> bool:
        """Tell whether a job was excluded before it was handled."""
        found = self.job(job) if self.found else None
        return found is not None and isinstance(found.error, Quarantined)

    def job(self, job: Job) -> Exclusion | None:
        """Return why a job was excluded."""
        return self.found.get(("podgroups", job.key))


class StageIsolation:
    """The block in which one job, queue or action is handled; it notes and stops an exception."""

    __slots__ = ("_before", "_exclusions", "_stage", "_subject", "failed")

    def __init__(self, exclusions: Exclusions, stage: str, subject: Job | Queue | None) -> None:
        self._exclusions = exclusions
        self._stage = stage
        self._subject = subject
        self.failed = False

    def __enter__(self) -> Self:
        subject = self._subject
        if isinstance(subject, Job):
            step = Step(self._stage, "podgroups", subject.key, subject.uid)
        elif isinstance(subject, Queue):
            step = Step(self._stage, "queues", subject.name, subject.uid)
        else:
            step = Step(self._stage)
        self._before = self._exclusions.progress.begin(step)
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> bool:
        self._exclusions.progress.begin(self._before)
        if not isinstance(error, Exception) or self._exclusions.unsound is not None:
            return False
        self.failed = True
        subject = self._subject
        if isinstance(subject, Job):
            exclusion = Exclusion("podgroups", subject.key, self._stage, error, subject.uid)
        elif isinstance(subject, Queue):
            exclusion = Exclusion("queues", subject.name, self._stage, error, subject.uid)
        else:
            exclusion = Exclusion("actions", self._stage, self._stage, error)
        self._exclusions.note(exclusion)
        if isinstance(error, BrokenOff):
            self._exclusions.unsound = exclusion
            error.job = exclusion.key if exclusion.kind == "podgroups" else ""
            return False
        return True
