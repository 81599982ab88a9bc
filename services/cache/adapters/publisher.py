"""The leader's work: make the stream say what the queue holds, and mark how far it does.

A term begins with what the stream says as of the leader's own fencing message (`published`). Then
the differences go out, many in flight, each fenced; a refusal (`WrongSequence`) means that another
leads, or that the stream was made anew, and ends the term. Facts go out at once, since each is true
as of its version. Markers name the kinds that were shown to be current in the term, so that they
vouch for the world and not for what a frozen process remembers.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from prometheus_client import Counter

from services.cache.adapters.published import PublishedFacts
from services.cache.adapters.stream_audit import StreamAudit
from services.cache.fold.objects import cause_of
from services.cache.fold.publish_queue import Publication, PublishQueue
from services.cache.metrics import CacheMetrics
from shared.bus.errors import TooLarge
from shared.bus.nats import NatsBus
from shared.bus.seal import Seal
from shared.bus.values import Ack, FencingToken
from shared.contracts import codec
from shared.contracts.messages import Marker, Op
from shared.contracts.streams import TOMBSTONE_TTL_S
from shared.contracts.subjects import Subjects
from shared.election.installation_elector import InstallationElector
from shared.election.leader_elector import LeadershipTerm
from shared.runtime.clock import Clock
from shared.runtime.errors import Rejected, Retryable
from shared.runtime.faults import Faults
from shared.runtime.logs import Logger
from shared.runtime.quarantine import Quarantine
from shared.runtime.spans import Spans
from shared.runtime.tasks import TaskGroup, sleep_or_event

_STAGE: Final = "publish"
_SUBMIT: Final = "submit"
MARKER_S: Final = 1.0
RETRY_S: Final = 0.1
BATCH_S: Final = 0.01
"""Least time from one batch of facts to the next. Watch events of a burst arrive a few milliseconds
apart. Without it each one wakes NATS and every reader of STATE for a single message."""
IN_FLIGHT: Final = 2048
"""Facts whose answers are awaited; what is beyond waits in the queue, where it coalesces."""
_YIELD_EVERY: Final = 64
"""Facts sent between two yields to the event loop: leases and pings must not wait for a burst."""

_Answer = tuple[Publication, Awaitable[Ack], float]


class StatePublisher:
    """Publishes the queue for the length of a term."""

    def __init__(
        self,
        bus: NatsBus,
        queue: PublishQueue,
        *,
        stream: str,
        subjects: Subjects,
        kinds: Sequence[str],
        published: PublishedFacts,
        revalidate: Callable[[], None],
        leases: InstallationElector,
        audit: StreamAudit,
        instance: str,
        clock: Clock,
        faults: Faults,
        quarantine: Quarantine,
        seal: Seal,
        metrics: CacheMetrics,
        spans: Spans,
        log: Logger,
    ) -> None:
        self._queue = queue
        self._publisher = bus.publisher(stream)
        self._stream = stream
        self._subjects = subjects
        self._kinds = tuple(sorted(kinds))
        self._published = published
        self._revalidate = revalidate
        self._leases = leases
        self._audit = audit
        self._instance = instance
        self._clock = clock
        self._faults = faults
        self._quarantine = quarantine
        self._seal = seal
        self._metrics = metrics
        self._spans = spans
        self._log = log.bind(stream=stream)
        self._work = asyncio.Event()
        self._marker_due = asyncio.Event()
        self._complete: tuple[str, ...] = ()
        self._counters: dict[tuple[str, Op], Counter] = {}
        self._failing = ""
        self.leads = False
        """Whether a term of this replica is under way."""

    @property
    def complete(self) -> bool:
        """Return whether this leader has published every kind's list wholly."""
        return self._complete == self._kinds

    def changed(self) -> None:
        """Check the queue again (watchers call this)."""
        self._work.set()
        self._note_completeness()

    async def lead(self, term: LeadershipTerm) -> None:
        """Publish until the term ends. Raises WrongSequence when the server refuses us."""
        token = term.token(self._stream)
        answers: asyncio.Queue[_Answer] = asyncio.Queue(IN_FLIGHT)
        self.leads = True
        self._metrics.leads.set(1)
        async with TaskGroup() as group:
            claiming = group.create_task(
                self._leases.keep(changed=self._marker_due.set), name="cluster-leases"
            )
            try:
                await self._publish_all(term, token, answers)
            finally:
                claiming.cancel()

    async def _publish_all(
        self, term: LeadershipTerm, token: FencingToken, answers: "asyncio.Queue[_Answer]"
    ) -> None:
        try:
            self._queue.end()
            self._revalidate()
            published = await self._published.at(term)
            self._log.info("stream_read_back", facts=len(published), term=term.number)
            self._queue.begin(published.items())
            self.changed()  # ⚠ the lists may have come before, and nothing changes after them
            async with TaskGroup() as group:
                group.create_task(self._publish(token, answers), name="state-publish")
                group.create_task(self._collect(answers), name="state-answers")
                group.create_task(self._mark(token), name="state-marker")
                group.create_task(self._audit.run(self._queue), name="state-audit")
        finally:
            self._queue.end()
            self._published.resume()
            for stage in (_STAGE, _SUBMIT):
                self._quarantine.begin_anew(stage=stage)
            self._complete = ()
            self.leads = False
            self._metrics.leads.set(0)
            self._metrics.waiting.set(0)

    async def _publish(self, token: FencingToken, answers: asyncio.Queue[_Answer]) -> None:
        sent = 0
        next_batch_at = self._clock.monotonic()
        while True:
            publication = self._queue.next()
            if publication is None:
                self._work.clear()
                await self._work.wait()
                # The first fact after a quiet time goes at once; those after it go together.
                if (early_s := next_batch_at - self._clock.monotonic()) > 0:
                    await self._clock.sleep(early_s)
                next_batch_at = self._clock.monotonic() + BATCH_S
                continue
            self._faults.point("cache.before-publish")
            started = self._clock.monotonic()
            kind, key = publication.slot
            try:
                with self._quarantine.isolate(kind, key, stage=_SUBMIT) as isolated:
                    publication, answer = await self._submit(publication, token)
            except Retryable as exc:
                self._submit_failed(publication, exc)
                await self._clock.sleep(RETRY_S)
                continue
            except Rejected as exc:
                self._park(publication, exc)
                continue
            if isolated.error is not None:
                self._queue.quarantine(publication)
                continue
            await answers.put((publication, answer, started))
            sent += 1
            if sent % _YIELD_EVERY == 0:
                await asyncio.sleep(0)

    async def _submit(
        self, publication: Publication, token: FencingToken
    ) -> tuple[Publication, Awaitable[Ack]]:
        """Send a fact; one that is too large goes without its body, and is logged."""
        ttl_s = TOMBSTONE_TTL_S if publication.is_tombstone else None
        kind, key = publication.slot
        subject = self._subjects.state(kind, key)
        try:
            answer = await self._publisher.submit(
                subject,
                codec.encode(self._seal.close(publication.fact)),
                fence=token,
                ttl_s=ttl_s,
            )
        except TooLarge as exc:
            self._metrics.oversized.labels(kind).inc()
            self._log.error("object_oversized", kind=kind, key=key, reason=str(exc))
            self._quarantine.failed(
                kind, key, stage=_STAGE, error=str(exc), uid=publication.fact.uid
            )
            publication = publication.without_body()
            answer = await self._publisher.submit(
                subject, codec.encode(publication.fact), fence=token, ttl_s=ttl_s
            )
        return publication, answer

    async def _collect(self, answers: asyncio.Queue[_Answer]) -> None:
        while True:
            publication, answer, started = await answers.get()
            try:
                await answer
            except Retryable as exc:
                self._submit_failed(publication, exc)
                continue
            except Rejected as exc:
                self._park(publication, exc)
                continue
            self._faults.point("cache.after-publish")
            self._queue.confirmed(publication)
            self._failing = ""
            kind, op = publication.slot[0], publication.fact.op
            if op is not Op.OVERSIZED:
                self._quarantine.handled(kind, publication.slot[1], stage=_STAGE)
            self._counter(kind, op).inc()
            took_s = self._clock.monotonic() - started
            self._metrics.latency.observe(took_s)
            if self._spans.is_on and (cause := cause_of(publication.fact)):
                begun = self._clock.now() - took_s
                self._spans.add(cause, f"publish {kind}", begun=begun, key=publication.slot[1])
            self.changed()

    def _counter(self, kind: str, op: Op) -> Counter:
        """Return the counter of published facts; looked up once, for there are many facts."""
        counter = self._counters.get((kind, op))
        if counter is None:
            counter = self._counters[kind, op] = self._metrics.published.labels(kind, op.value)
        return counter

    def _park(self, publication: Publication, exc: Rejected) -> None:
        """Leave out a fact that the server refuses in any form, so that the others go on."""
        kind, key = publication.slot
        self._quarantine.failed(kind, key, stage=_SUBMIT, error=str(exc), uid=publication.fact.uid)
        self._queue.quarantine(publication)
        self.changed()

    def _submit_failed(self, publication: Publication, exc: Retryable) -> None:
        self._queue.failed(publication)
        self._metrics.failed.labels(type(exc).__name__).inc()
        if type(exc).__name__ != self._failing:  # one line for each run of the same trouble
            self._failing = type(exc).__name__
            self._log.warning("publish_failed", key=publication.slot[1], reason=str(exc))
        self._work.set()

    def _note_completeness(self) -> None:
        complete = self._queue.complete()
        if complete != self._complete:
            if complete == self._kinds:
                self._log.info("state_completed", kinds=len(complete))
            self._complete = complete
            self._marker_due.set()

    async def _mark(self, token: FencingToken) -> None:
        while True:
            self._marker_due.clear()
            marker = Marker(
                complete=self._queue.complete(),
                bookmarks=self._queue.covered(),
                time=self._clock.now(),
                instance=self._instance,
                leases=self._leases.statuses(),
                digests=self._queue.digests(),
            )
            try:
                await self._publisher.publish(
                    self._subjects.marker, codec.encode(marker), fence=token
                )
            except Retryable as exc:
                self._log.debug("marker_failed", reason=str(exc))
            self._metrics.waiting.set(self._queue.waiting)
            self._metrics.ignored.set(self._queue.ignored)
            await sleep_or_event(self._clock, MARKER_S, self._marker_due)
