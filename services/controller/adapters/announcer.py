"""Tells subscribers when a job changes its phase (design §7): bounded, never in the way."""

import asyncio
from typing import Final, Protocol

from shared.api.batch import Job, JobStatus
from shared.bus.port import Publisher
from shared.contracts.subjects import Subjects
from shared.runtime.clock import Clock
from shared.runtime.errors import Rejected, Retryable
from shared.runtime.logs import Logger

_WAITING_MAX: Final = 10_000
_RETRY_S: Final = 0.5


class Encode(Protocol):
    """Makes the CloudEvent of a job's new phase; `app` gives the one of `pumice.events`."""

    def __call__(self, job: Job, *, was: str, status: JobStatus, now: float) -> tuple[str, bytes]:
        """Return (event type, payload)."""
        ...


class Announcer:
    """Publishes job events on EVENTS; a part of the service."""

    name: Final = "announcer-of-jobs"

    def __init__(
        self,
        publisher: Publisher,
        *,
        subjects: Subjects,
        encode: Encode,
        clock: Clock,
        log: Logger,
    ) -> None:
        self._publisher = publisher
        self._subjects = subjects
        self._encode = encode
        self._clock = clock
        self._log = log
        self._waiting: asyncio.Queue[tuple[str, bytes, str]] = asyncio.Queue(_WAITING_MAX)

    def phase(self, job: Job, *, was: str, status: JobStatus) -> None:
        """Take the news; never waits."""
        kind, payload = self._encode(job, was=was, status=status, now=self._clock.now())
        subject = self._subjects.event(kind, job.metadata.key)
        phase = status.state.phase.value if status.state.phase is not None else ""
        # The same change told twice (a look that was repeated) is stored once.
        msg_id = f"{job.metadata.uid}-{status.version}-{phase}-{status.state.last_transition_time}"
        try:
            self._waiting.put_nowait((subject, payload, msg_id))
        except asyncio.QueueFull:
            self._log.warning("job_event_dropped", job=job.metadata.key, phase=phase)

    async def run(self) -> None:
        """Publish for ever."""
        while True:
            subject, payload, msg_id = await self._waiting.get()
            await self._publish(subject, payload, msg_id)

    async def _publish(self, subject: str, payload: bytes, msg_id: str) -> None:
        while True:
            try:
                await self._publisher.publish(subject, payload, msg_id=msg_id)
            except Retryable:
                await self._clock.sleep(_RETRY_S)
            except Rejected as error:
                self._log.warning("job_event_refused", subject=subject, reason=str(error))
                return
            else:
                return
