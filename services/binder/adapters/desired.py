"""DESIRED: one shared durable consumer per partition; each wanted status until the world has it.

Last finisher wins: a message may be superseded while it is applied, by another binder even. Who
writes asks for the subject's last message before and after, and goes on with that one, so that
whoever finishes last leaves the newest status. (Before, because who dies in between leaves a
superseded status that no redelivery repairs.) Nothing is given up: trouble means a later
redelivery.
"""

import asyncio
from contextlib import aclosing
from typing import Protocol

from services.binder.adapters.commands import NEWER_DELAY_S
from services.binder.adapters.hold import Holder
from services.binder.adapters.statuses import KIND_OF, Change, Nothing, Statuses
from services.binder.metrics import BinderMetrics
from shared.bus.port import Delivery, Message, Puller, Reset, Started
from shared.contracts.codec import decode_desired
from shared.contracts.messages import Desired
from shared.contracts.versions import CURRENT, ContractError, UnknownVersion
from shared.runtime.backoff import Backoff
from shared.runtime.errors import Conflict, PumiceError, Rejected, Retryable
from shared.runtime.health import Gate
from shared.runtime.logs import Logger


class DesiredBus(Protocol):
    """What is needed of the bus besides the deliveries."""

    async def last(self, stream: str, subject: str) -> Message | None:
        """Return the last message of a subject."""
        ...

    async def purge(self, stream: str, subject: str, *, before_seq: int = 0) -> int:
        """Remove the messages of a subject with sequences below `before_seq` (0: all)."""
        ...


class DesiredStatuses:
    """Consumes one partition of DESIRED; a part of the service."""

    def __init__(
        self,
        puller: Puller,
        *,
        partition: int,
        stream: str,
        bus: DesiredBus,
        statuses: Statuses,
        holder: Holder,
        hands: asyncio.Semaphore,
        backoff: Backoff,
        metrics: BinderMetrics,
        gate: Gate,
        log: Logger,
    ) -> None:
        self.name = f"desired-{partition}"
        self._puller = puller
        self._stream = stream
        self._bus = bus
        self._statuses = statuses
        self._holder = holder
        self._hands = hands
        self._backoff = backoff
        self._metrics = metrics
        self._gate = gate
        self._log = log.bind(partition=partition)

    async def run(self) -> None:
        """Take deliveries for ever, as many at once as the hands allow."""
        async with asyncio.TaskGroup() as group, aclosing(self._puller.deliveries()) as items:
            async for item in items:
                if isinstance(item, Started):
                    self._gate.set(True)
                elif isinstance(item, Reset):
                    self._log.warning("desired_stream_made_anew", reason=item.reason)
                else:
                    await self._hands.acquire()
                    name = f"{self.name} {item.message.sequence}"
                    group.create_task(self._hold(group, item), name=name)

    async def _hold(self, group: asyncio.TaskGroup, delivery: Delivery) -> None:
        try:
            async with self._holder.held(group, delivery):
                await self._handle(delivery)
        except (Retryable, Conflict) as error:
            await self._later(delivery, error)
        finally:
            self._hands.release()

    async def _handle(self, delivery: Delivery) -> None:
        message: Message | None = delivery.message
        while message is not None:
            wanted = await self._read(message, delivery)
            if wanted is None:
                return
            message = await self._apply(message, wanted)
        await delivery.ack()

    async def _apply(self, message: Message, wanted: Desired) -> Message | None:
        """Make the world so, and return the message that supersedes this one if there is one."""
        kind = KIND_OF[type(wanted)].token
        try:
            change = await self._statuses.compare(wanted)
            if isinstance(change, Change):
                if newer := await self._newer(message):
                    return newer
                await self._statuses.write(change)
        except Rejected as error:
            self._metrics.statuses.labels(kind, "refused").inc()
            self._log.error("status_refused", kind=kind, object=wanted.key, reason=str(error))
            return None
        if isinstance(change, Change):
            self._metrics.statuses.labels(kind, "written").inc()
            self._log.info("status_written", kind=kind, object=wanted.key, cycle=wanted.cycle)
            return await self._newer(message)
        self._metrics.statuses.labels(kind, change.value).inc()
        if change is Nothing.OVER:
            subject, end = message.subject, message.sequence + 1
            await self._bus.purge(self._stream, subject, before_seq=end)
        return None

    async def _newer(self, than: Message) -> Message | None:
        last = await self._bus.last(self._stream, than.subject)
        return last if last is not None and last.sequence > than.sequence else None

    async def _read(self, message: Message, delivery: Delivery) -> Desired | None:
        """Return what is wanted; None when it cannot be read and the delivery is answered."""
        try:
            return decode_desired(message.payload)
        except UnknownVersion as error:
            if error.version > CURRENT:
                self._metrics.newer.labels(self._stream).inc()
                await delivery.nak(NEWER_DELAY_S)
                return None
            reason = str(error)
        except ContractError as error:
            reason = str(error)
        self._metrics.set_aside.labels(self._stream).inc()
        self._log.error(
            "desired_set_aside",
            subject=message.subject,
            sequence=message.sequence,
            reason=reason,
        )
        await delivery.term(reason)
        return None

    async def _later(self, delivery: Delivery, error: PumiceError) -> None:
        self._log.info("status_postponed", subject=delivery.message.subject, reason=str(error))
        asked_s = error.retry_after_s if isinstance(error, Retryable) else None
        delay_s = self._backoff.delay_s(delivery.attempt - 1) if asked_s is None else asked_s
        try:
            await delivery.nak(delay_s)
        except Retryable as lost:
            self._log.info("answer_lost", reason=str(lost))
