"""Publishes the facts of the publish queue to STATE, and markers, while this process leads.

Second step of the flow "watch event → scheduler". A term starts by reading STATE up to the leader's
own fencing message (`PublishedFacts`). Then the differences are published, many in flight, each
with the fencing token. A `WrongSequence` from NATS ends the term: another process leads, or the
stream was recreated.

A marker each second names the kinds that are current in this term. Readers trust a kind only with a
marker, because the objects of a process that was frozen may be old.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from prometheus_client import Counter

from services.cache.adapters.published import PublishedFacts
from services.cache.adapters.stream_audit import StreamAudit
from services.cache.fold.objects import cause_of
from services.cache.fold.publish_queue import PublishQueue, without_body
from services.cache.metrics import CacheMetrics
from shared.bus.errors import TooLarge
from shared.bus.nats import NatsBus
from shared.bus.seal import Seal
from shared.bus.values import Ack, FencingToken
from shared.contracts import codec
from shared.contracts.messages import Fact, Marker, Op
from shared.contracts.streams import TOMBSTONE_TTL_S, streams
from shared.contracts.subjects import Subjects
from shared.election.installation_elector import InstallationElector
from shared.election.leader_elector import LeadershipTerm
from shared.runtime.env import Env
from shared.runtime.errors import Rejected, Retryable
from shared.runtime.tasks import TaskGroup, sleep_or_event

_STAGE: Final = "publish"
_SUBMIT: Final = "submit"
MARKER_S: Final = 1.0
RETRY_S: Final = 0.1
BATCH_S: Final = 0.01
"""Minimum seconds between two batches of facts.

Watch events of a burst arrive a few milliseconds apart. Without this pause each one would wake NATS
and all readers of STATE for a single message."""
IN_FLIGHT: Final = 2048
"""Most facts in flight. More wait in the queue, where versions of one object coalesce."""
_YIELD_EVERY: Final = 64
"""Facts sent between two yields to the event loop, so a burst cannot delay lease renewals."""

_Submitted = tuple[Fact, Awaitable[Ack], float]


class LeaderDuties(msgspec.Struct, frozen=True, kw_only=True):
    """What a leader does beside publishing."""

    published: PublishedFacts
    """Returns the facts of STATE when a term starts."""
    revalidate: Callable[[], None]
    """Has the watchers confirm that the observed objects are current."""
    leases: InstallationElector
    """Holds the installation's Leases during a term."""
    audit: StreamAudit
    """Compares STATE with what was published."""


class StatePublisher:
    """Publishes the queue during a leadership term."""

    def __init__(
        self,
        bus: NatsBus,
        queue: PublishQueue,
        env: Env,
        *,
        subjects: Subjects,
        duties: LeaderDuties,
        seal: Seal,
        metrics: CacheMetrics,
    ) -> None:
        self._queue = queue
        self._stream = streams(subjects.cluster).state.name
        self._publisher = bus.publisher(self._stream)
        self._subjects = subjects
        self._duties = duties
        self._instance = env.instance
        self._clock = env.clock
        self._faults = env.faults
        self._quarantine = env.quarantine
        self._seal = seal
        self._metrics = metrics
        self._spans = env.spans
        self._log = env.log.bind(stream=self._stream)
        self._work = asyncio.Event()
        self._marker_due = asyncio.Event()
        self._complete: tuple[str, ...] = ()
        self._counters: dict[tuple[str, Op], Counter] = {}
        self._failing = ""
        self.leads = False
        """Whether this replica leads."""

    @property
    def complete(self) -> bool:
        """Return whether this leader has published all objects of all kinds."""
        return self._complete == self._queue.kinds

    def changed(self) -> None:
        """Look at the queue again; watchers call this after each change."""
        self._work.set()
        self._note_completeness()

    async def lead(self, term: LeadershipTerm) -> None:
        """Publish until the term ends. Raises `WrongSequence` when NATS refuses the token."""
        token = term.token(self._stream)
        replies: asyncio.Queue[_Submitted] = asyncio.Queue(IN_FLIGHT)
        self.leads = True
        self._metrics.leads.set(1)
        async with TaskGroup() as group:
            keeping_leases = group.create_task(
                self._duties.leases.keep(changed=self._marker_due.set), name="cluster-leases"
            )
            try:
                await self._publish_all(term, token, replies)
            finally:
                keeping_leases.cancel()

    async def _publish_all(
        self, term: LeadershipTerm, token: FencingToken, replies: "asyncio.Queue[_Submitted]"
    ) -> None:
        try:
            self._queue.end()
            self._duties.revalidate()
            published = await self._duties.published.at(term)
            self._log.info("stream_read_back", facts=len(published), term=term.number)
            self._queue.begin(published.items())
            self.changed()  # ⚠ the lists may have come before, and nothing changes after them
            async with TaskGroup() as group:
                group.create_task(self._publish(token, replies), name="state-publish")
                group.create_task(self._collect(replies), name="state-replies")
                group.create_task(self._mark(token), name="state-marker")
                group.create_task(self._duties.audit.run(self._queue), name="state-audit")
        finally:
            self._queue.end()
            self._duties.published.resume()
            for stage in (_STAGE, _SUBMIT):
                self._quarantine.begin_anew(stage=stage)
            self._complete = ()
            self.leads = False
            self._metrics.leads.set(0)
            self._metrics.waiting.set(0)

    async def _publish(self, token: FencingToken, replies: asyncio.Queue[_Submitted]) -> None:
        sent = 0
        next_batch_at = self._clock.monotonic()
        while True:
            fact = self._queue.next()
            if fact is None:
                self._work.clear()
                await self._work.wait()
                # The first fact after a quiet time goes at once; those after it go together.
                if (early_s := next_batch_at - self._clock.monotonic()) > 0:
                    await self._clock.sleep(early_s)
                next_batch_at = self._clock.monotonic() + BATCH_S
                continue
            self._faults.point("cache.before-publish")
            started = self._clock.monotonic()
            kind, key = fact.kind, fact.key
            try:
                with self._quarantine.isolate(kind, key, stage=_SUBMIT) as isolated:
                    fact, reply = await self._submit(fact, token)
            except Retryable as exc:
                self._submit_failed(fact, exc)
                await self._clock.sleep(RETRY_S)
                continue
            except Rejected as exc:
                self._quarantine_fact(fact, exc)
                continue
            if isolated.error is not None:
                self._queue.quarantine(fact)
                continue
            await replies.put((fact, reply, started))
            sent += 1
            if sent % _YIELD_EVERY == 0:
                await asyncio.sleep(0)

    async def _submit(self, fact: Fact, token: FencingToken) -> tuple[Fact, Awaitable[Ack]]:
        """Send a fact; send one that is too large without its body, and log it."""
        ttl_s = TOMBSTONE_TTL_S if fact.op is Op.DELETE else None
        kind, key = fact.kind, fact.key
        subject = self._subjects.state(kind, key)
        try:
            reply = await self._publisher.submit(
                subject,
                codec.encode(self._seal.close(fact)),
                fence=token,
                ttl_s=ttl_s,
            )
        except TooLarge as exc:
            self._metrics.oversized.labels(kind).inc()
            self._log.error("object_oversized", kind=kind, key=key, reason=str(exc))
            self._quarantine.failed(kind, key, stage=_STAGE, error=str(exc), uid=fact.uid)
            fact = without_body(fact)
            reply = await self._publisher.submit(
                subject, codec.encode(fact), fence=token, ttl_s=ttl_s
            )
        return fact, reply

    async def _collect(self, replies: asyncio.Queue[_Submitted]) -> None:
        while True:
            fact, reply, started = await replies.get()
            try:
                await reply
            except Retryable as exc:
                self._submit_failed(fact, exc)
                continue
            except Rejected as exc:
                self._quarantine_fact(fact, exc)
                continue
            self._faults.point("cache.after-publish")
            self._queue.confirmed(fact)
            self._failing = ""
            kind, op = fact.kind, fact.op
            if op is not Op.OVERSIZED:
                self._quarantine.handled(kind, fact.key, stage=_STAGE)
            self._counter(kind, op).inc()
            took_s = self._clock.monotonic() - started
            self._metrics.latency.observe(took_s)
            if self._spans.is_on and (cause := cause_of(fact)):
                begun = self._clock.now() - took_s
                self._spans.add(cause, f"publish {kind}", begun=begun, key=fact.key)
            self.changed()

    def _counter(self, kind: str, op: Op) -> Counter:
        """Return the counter of published facts, cached because there are many facts."""
        counter = self._counters.get((kind, op))
        if counter is None:
            counter = self._counters[kind, op] = self._metrics.published.labels(kind, op.value)
        return counter

    def _quarantine_fact(self, fact: Fact, exc: Rejected) -> None:
        """Quarantine a fact that NATS refuses even without its body."""
        kind, key = fact.kind, fact.key
        self._quarantine.failed(kind, key, stage=_SUBMIT, error=str(exc), uid=fact.uid)
        self._queue.quarantine(fact)
        self.changed()

    def _submit_failed(self, fact: Fact, exc: Retryable) -> None:
        self._queue.failed(fact)
        self._metrics.failed.labels(type(exc).__name__).inc()
        if type(exc).__name__ != self._failing:  # one line for each run of the same error
            self._failing = type(exc).__name__
            self._log.warning("publish_failed", key=fact.key, reason=str(exc))
        self._work.set()

    def _note_completeness(self) -> None:
        complete = self._queue.complete()
        if complete != self._complete:
            if complete == self._queue.kinds:
                self._log.info("state_completed", kinds=len(complete))
            self._complete = complete
            self._marker_due.set()

    async def _mark(self, token: FencingToken) -> None:
        while True:
            self._marker_due.clear()
            marker = Marker(
                complete=self._queue.complete(),
                bookmarks=self._queue.published_versions(),
                time=self._clock.now(),
                instance=self._instance,
                leases=self._duties.leases.statuses(),
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
