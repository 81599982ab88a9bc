"""Consumes DESIRED: one shared durable consumer per partition; writes the last desired statuses.

The newest status of an object wins, even if an older one is handled later or by another binder: a
write names one resourceVersion, so the API server refuses the second of two racing writes. A binder
that is refused reads the object, and then checks whether its message is still the last one of its
subject. If not, it continues with the last one, or stops. So without a race a status costs one
request to the API server and none to NATS. An error leads to a later redelivery.

The first write of a status may be deferred, so that it is combined with a newer one (ADR 35). The
message is then delivered again after that time, unless the stream holds a newer one by then. While
many statuses wait, the time grows, because the pods of many jobs start later too. A status that
keeps changing is written at the latest `LONGEST_S` after the first message that was deferred.

A void status is only acknowledged: one of a pod that is bound or deleted, of a deleted object, or
from before another installation held the cluster's Lease. It expires from the stream.
"""

import asyncio
from contextlib import aclosing
from typing import Final

from services.binder.adapters.deliveries import NEWER_DELAY_S, PartitionSource, redeliver_later
from services.binder.adapters.outcomes import FinishedIntents
from services.binder.adapters.statuses import KIND_OF, NoPatch, Statuses, StatusPatch
from services.binder.intents.bounds import breach_of_desired
from services.binder.metrics import BinderMetrics
from shared.bus.puller import Delivery
from shared.bus.values import Message, Reset, Started
from shared.contracts.codec import decode_desired, deferral_s
from shared.contracts.messages import Desired, DesiredPod
from shared.contracts.versions import CURRENT, ContractError, UnknownVersion
from shared.election.installation import InstallationLeadership, term_of
from shared.model.delayed_status import BacklogDelay, ExpiringStatuses
from shared.runtime.backoff import Backoff
from shared.runtime.env import Env
from shared.runtime.errors import Conflict, Gone, Rejected, Retryable
from shared.runtime.tasks import TaskGroup

_STAGE: Final = "status"
SHORT_S: Final = 1
"""A deferral of at most this, such as that of a phase, does not grow with the others."""
DOUBLED_BY: Final = 25
LONGEST_S: Final = 20.0


class DesiredStatuses:
    """Consumes one partition of DESIRED; a part of the service."""

    def __init__(
        self,
        source: PartitionSource,
        *,
        statuses: Statuses,
        ended: FinishedIntents,
        installation: InstallationLeadership,
        slots: asyncio.Semaphore,
        delayed: ExpiringStatuses,
        env: Env,
        metrics: BinderMetrics,
    ) -> None:
        self.name = f"desired-{source.partition}"
        self._source = source
        self._statuses = statuses
        self._ended = ended
        self._installation = installation
        self._slots = slots
        self._quarantine = env.quarantine
        self._backoff = Backoff(first_s=0.2, cap_s=10.0, rng=env.rng)
        self._written = 0
        self._delayed = delayed
        self._clock = env.clock
        self._metrics = metrics
        self._log = env.log.bind(partition=source.partition)

    async def run(self) -> None:
        """Process deliveries until cancelled, as many at once as the slots allow."""
        async with TaskGroup() as group, aclosing(self._source.puller.deliveries()) as items:
            async for item in items:
                if isinstance(item, Started):
                    self._source.gate.set(True)
                elif isinstance(item, Reset):
                    self._log.warning("desired_stream_recreated", reason=item.reason)
                else:
                    await self._slots.acquire()
                    name = f"{self.name} {item.message.sequence}"
                    group.create_task(self._process(group, item), name=name)

    async def _process(self, group: TaskGroup, delivery: Delivery) -> None:
        began, written = self._clock.monotonic(), self._written
        try:
            async with self._source.acks.extended(group, delivery):
                mark = term_of(delivery.message.headers)
                await self._installation.settled()
                began, written = self._clock.monotonic(), self._written
                if self._installation.refusal(mark):
                    await delivery.ack()
                    return
                if left_s := self._deferral_left_s(delivery):
                    await redeliver_later(delivery, left_s, self._log)
                    return
                with self._installation.working(mark):
                    await self._handle(delivery)
        except (Retryable, Conflict) as error:
            asked_s = error.retry_after_s if isinstance(error, Retryable) else None
            await self._retry_later(delivery, str(error), asked_s, self._cost_s(began, written))
        except Rejected as error:
            await self._retry_later(delivery, str(error), None, self._cost_s(began, written))
        finally:
            self._slots.release()

    def _deferral_left_s(self, delivery: Delivery) -> float:
        """Return for how many seconds a delivery is put off; a message is put off once.

        When a newer status has come by then, the stream no longer holds this one.
        """
        if delivery.attempt > 1:
            return 0.0
        asked_s = deferral_s(delivery.message.headers)
        now = self._clock.monotonic()
        return deferral_left_s(self._delayed, delivery.message, asked_s=asked_s, now=now)

    async def _handle(self, delivery: Delivery) -> None:
        message: Message | None = delivery.message
        while message is not None:
            desired = await self._read(message, delivery)
            if desired is None:
                return
            kind = KIND_OF[type(desired)].token
            with self._quarantine.isolate(
                kind, desired.key, stage=_STAGE, uid=desired.uid
            ) as isolated:
                message = await self._apply(message, desired)
            if isolated.error is not None:
                if await self._statuses.is_gone(desired):
                    self._quarantine.gone(kind, desired.key)
                    break
                await self._retry_later(delivery, str(isolated.error), None)
                return
        await delivery.ack()

    async def _apply(self, message: Message, desired: Desired) -> Message | None:
        """Write the desired status; return the message that supersedes this one if there is one."""
        kind = KIND_OF[type(desired)].token
        if isinstance(desired, DesiredPod) and self._ended.is_settled(desired.uid):
            self._metrics.statuses.labels(kind, "void").inc()
            return None
        try:
            if desired.rv and await self._write_as_decided(kind, desired):
                return None
            change = await self._statuses.compare(desired)
            if isinstance(change, StatusPatch):
                last = await self._source.last(message.subject)
                if last is None or last.sequence != message.sequence:
                    self._metrics.statuses.labels(kind, "superseded").inc()
                    return last
                await self._write(kind, change)
            else:
                self._metrics.statuses.labels(kind, change.value).inc()
        except Gone:
            self._metrics.statuses.labels(kind, NoPatch.OVER.value).inc()
        except Rejected as error:
            self._metrics.statuses.labels(kind, "refused").inc()
            self._log.error("status_refused", kind=kind, object=desired.key, reason=str(error))
        return None

    async def _write_as_decided(self, kind: str, desired: Desired) -> bool:
        """Write without reading the object; return False when it is not as it was decided on."""
        try:
            await self._write(kind, self._statuses.decided(desired))
        except Gone:
            raise
        except Conflict:
            self._metrics.statuses.labels(kind, "conflict").inc()
            return False
        return True

    async def _write(self, kind: str, change: StatusPatch) -> None:
        await self._statuses.write(change)
        self._written += 1
        desired = change.desired
        self._metrics.statuses.labels(kind, "written").inc()
        self._log.info("status_written", kind=kind, object=desired.key, cycle=desired.cycle)

    async def _read(self, message: Message, delivery: Delivery) -> Desired | None:
        """Return what is desired; None when it is quarantined or left: the delivery is answered."""
        try:
            desired = decode_desired(message.payload)
        except UnknownVersion as error:
            if error.version > CURRENT:
                self._metrics.newer.labels(self._source.stream).inc()
                await delivery.nak(NEWER_DELAY_S)
                return None
            reason = str(error)
        except ContractError as error:
            reason = str(error)
        else:
            reason = breach_of_desired(desired)
            if not reason:
                return desired
        self._metrics.quarantined.labels(self._source.stream).inc()
        self._log.error(
            "desired_status_quarantined",
            subject=message.subject,
            sequence=message.sequence,
            reason=reason,
        )
        await delivery.term(reason)
        return None

    def _cost_s(self, began: float, written: int) -> float:
        """Return how long an attempt took; 0 where nothing else was written meanwhile."""
        return self._clock.monotonic() - began if self._written > written else 0.0

    async def _retry_later(
        self, delivery: Delivery, reason: str, asked_s: float | None, took_s: float = 0.0
    ) -> None:
        self._log.info("status_postponed", subject=delivery.message.subject, reason=reason)
        own_s = self._backoff.delay_s(delivery.attempt - 1, took_s=took_s)
        await redeliver_later(delivery, own_s if asked_s is None else asked_s, self._log)


def deferral_left_s(
    delayed: ExpiringStatuses, message: Message, *, asked_s: int, now: float
) -> float:
    """Return for how many seconds the first write of a message is deferred; 0.0 if it is due.

    `delayed` holds the deferred messages of this process, by subject. `asked_s` is the deferral
    that the message asks for, and `now` is monotonic.
    """
    delayed.forget_due(now=now)
    if asked_s <= SHORT_S:
        return asked_s
    delay = BacklogDelay(first_s=asked_s, doubled_by=DOUBLED_BY, longest_s=LONGEST_S)
    left_s = delayed.hold(
        message.subject,
        message.sequence,
        now=now,
        delay_s=delay.behind(len(delayed)),
        longest_s=LONGEST_S,
    )
    if not left_s:
        delayed.forget(message.subject)
    return left_s
