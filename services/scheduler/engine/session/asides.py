"""Jobs, queues and actions that a session left out because their handling raised an error.

Actions handle each job or queue inside `Session.isolate`: an exception ends the handling of that
one, and all others go on. Open trials are undone as the exception passes, decisions before it
stand, and the job has no further turn in this session. A change that broke off half-way
(`BrokenOff`) ends the session: neither its plan nor the cluster state can be trusted then.
"""

from types import TracebackType
from typing import NamedTuple, Self

from services.scheduler.engine.jobs.records import Job, Queue
from services.scheduler.engine.journal import BrokenOff

_MOST_LETTERS = 300


class Aside(NamedTuple):
    """One job, queue or action that was left out of a session."""

    kind: str
    """`podgroups` or `queues`, as kinds of objects are called, or `actions`."""
    key: str
    stage: str
    """The stage that failed: the name of an action, or `judge` for statuses."""
    error: Exception
    uid: str = ""

    @property
    def reason(self) -> str:
        """The error as one line for a person."""
        text = " ".join(str(self.error)[: 2 * _MOST_LETTERS].split())[:_MOST_LETTERS]
        return f"left out, {self.stage} failed: {type(self.error).__name__}: {text}"


class Asides:
    """Jobs, queues and actions that one session has left out."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, str], Aside] = {}
        self.unsound: Aside | None = None
        """The job that was handled when a change broke off half-way."""

    def note(self, aside: Aside) -> None:
        """Leave something out; the first error counts."""
        self.found.setdefault((aside.kind, aside.key), aside)

    def has(self, job: Job) -> bool:
        """Tell whether a job was left out."""
        return bool(self.found) and ("podgroups", job.key) in self.found

    def job(self, job: Job) -> Aside | None:
        """Return why a job was left out."""
        return self.found.get(("podgroups", job.key))


class StageIsolation:
    """The handling of one job, queue or action: an exception is noted and goes no further."""

    __slots__ = ("_asides", "_stage", "_subject", "failed")

    def __init__(self, asides: Asides, stage: str, subject: Job | Queue | None) -> None:
        self._asides = asides
        self._stage = stage
        self._subject = subject
        self.failed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> bool:
        if not isinstance(error, Exception) or self._asides.unsound is not None:
            return False
        self.failed = True
        subject = self._subject
        if isinstance(subject, Job):
            aside = Aside("podgroups", subject.key, self._stage, error, subject.uid)
        elif isinstance(subject, Queue):
            aside = Aside("queues", subject.name, self._stage, error, subject.uid)
        else:
            aside = Aside("actions", self._stage, self._stage, error)
        self._asides.note(aside)
        if isinstance(error, BrokenOff):
            self._asides.unsound = aside
            error.job = aside.key if aside.kind == "podgroups" else ""
            return False
        return True
