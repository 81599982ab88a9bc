"""COMMAND: one shared durable consumer per partition, each delivery to exactly one outcome.

The order is the promise: writes, then OUTCOME stored, then the ack. A crash in between leads to a
redelivery, which finds the outcome (`Finished`) or a world that already is as wanted. What cannot
be read never blocks the others: it is set aside with its reason.
"""

import asyncio
from contextlib import aclosing
from typing import Final

import msgspec

from services.binder.adapters.execute import Executor
from services.binder.adapters.hold import Holder
from services.binder.adapters.outcomes import IntentFinished, Outcomes
from services.binder.metrics import BinderMetrics
from shared.bus.port import Delivery, Puller, Reset, Started
from shared.contracts.codec import decode_command, unpack
from shared.contracts.messages import (
    BindGang,
    Evict,
    ItemOutcome,
    Outcome,
    Poison,
    Result,
    Retry,
)
from shared.contracts.versions import CURRENT, ContractError, UnknownVersion
from shared.runtime.clock import Clock
from shared.runtime.errors import Retryable
from shared.runtime.faults import Faults
from shared.runtime.health import Gate
from shared.runtime.logs import Logger

NEWER_DELAY_S: Final = 5.0
"""How long a message of a version that this process does not know is left to newer binders."""
POISON_BYTES: Final = 256 * 1024
"""How much of an unreadable message is kept: base64 of a whole one could be too large."""


class Hands(msgspec.Struct, frozen=True, kw_only=True):
    """What all partitions share: how many intents are held, and worked on, at once."""

    held: asyncio.Semaphore
    active: asyncio.Semaphore


class Commands:
    """Consumes one partition of COMMAND; a part of the service."""

    def __init__(
        self,
        puller: Puller,
        *,
        partition: int,
        stream: str,
        executor: Executor,
        outcomes: Outcomes,
        finished: IntentFinished,
        hands: Hands,
        holder: Holder,
        clock: Clock,
        faults: Faults,
        metrics: BinderMetrics,
        gate: Gate,
        instance: str,
        log: Logger,
    ) -> None:
        self.name = f"commands-{partition}"
        self._puller = puller
        self._partition = partition
        self._stream = stream
        self._executor = executor
        self._outcomes = outcomes
        self._finished = finished
        self._hands = hands
        self._holder = holder
        self._clock = clock
        self._faults = faults
        self._metrics = metrics
        self._gate = gate
        self._instance = instance
        self._log = log.bind(partition=partition)
        self._epoch = 0

    async def run(self) -> None:
        """Take deliveries for ever, as many at once as the hands allow."""
        async with asyncio.TaskGroup() as group, aclosing(self._puller.deliveries()) as items:
            async for item in items:
                if isinstance(item, Started):
                    self._gate.set(True)
                elif isinstance(item, Reset):
                    self._log.warning("commands_dropped_with_their_stream", reason=item.reason)
                    self._epoch += 1
                else:
                    await self._hands.held.acquire()
                    name = f"{self.name} {item.message.sequence}"
                    group.create_task(self._hold(group, item, self._epoch), name=name)

    async def _hold(self, group: asyncio.TaskGroup, delivery: Delivery, epoch: int) -> None:
        try:
            async with self._holder.held(group, delivery):
                await self._handle(delivery, epoch)
        finally:
            self._hands.held.release()

    async def _handle(self, delivery: Delivery, epoch: int) -> None:
        try:
            intent = decode_command(delivery.message.payload)
        except UnknownVersion as error:
            await self._unknown(delivery, error)
        except ContractError as error:
            await self._poison(delivery, str(error))
        else:
            await self._end(delivery, intent, epoch)

    async def _end(self, delivery: Delivery, intent: BindGang | Evict, epoch: int) -> None:
        if not await self._finished.has(intent.id):
            ended = {} if delivery.exhausted else await self._executor.prepare(intent)
            async with self._hands.active:
                if epoch != self._epoch:
                    return
                if delivery.exhausted:
                    outcome = await self._executor.report(intent)
                else:
                    outcome = await self._executor.run(intent, ended)
            self._faults.point("binder.after-write")
            await self._outcomes.publish(self._partition, outcome)
            self._tell(delivery, intent, outcome)
            self._faults.point("binder.after-outcome")
        await self._answer(delivery)

    def _tell(self, delivery: Delivery, intent: BindGang | Evict, outcome: Outcome) -> None:
        kind = "bind" if isinstance(intent, BindGang) else "evict"
        took_s = self._clock.now() - delivery.message.time
        self._metrics.intent_seconds.labels(kind).observe(max(took_s, 0.0))
        results: dict[str, int] = {}
        for item in outcome.items:
            results[item.result.value] = results.get(item.result.value, 0) + 1
        self._log.info(
            "intent_ended",
            kind=kind,
            intent=intent.id,
            cycle=intent.cycle,
            job=outcome.job,
            attempt=delivery.attempt,
            **results,
        )

    async def _unknown(self, delivery: Delivery, error: UnknownVersion) -> None:
        """Leave a newer version to newer binders; an older one is beyond anybody's reading."""
        if error.version <= CURRENT:
            await self._poison(delivery, str(error))
            return
        self._metrics.newer.labels(self._stream).inc()
        self._log.warning("newer_command_delayed", reason=str(error), attempt=delivery.attempt)
        try:
            await delivery.nak(NEWER_DELAY_S)
        except Retryable as lost:
            self._log.info("answer_lost", reason=str(lost))

    async def _poison(self, delivery: Delivery, reason: str) -> None:
        message = delivery.message
        self._metrics.set_aside.labels(self._stream).inc()
        self._log.error("command_set_aside", sequence=message.sequence, reason=reason)
        await self._outcomes.set_aside(
            self._stream,
            Poison(
                subject=message.subject,
                sequence=message.sequence,
                reason=reason,
                payload=message.payload[:POISON_BYTES],
                time=message.time,
            ),
        )
        outcome = salvage(message.payload, reason, instance=self._instance, now=self._clock.now())
        if outcome is not None:
            await self._outcomes.publish(self._partition, outcome)
        await self._answer(delivery, poison=reason)

    async def _answer(self, delivery: Delivery, *, poison: str = "") -> None:
        """Acknowledge; a lost answer only means a redelivery, which finds the outcome."""
        try:
            if poison:
                await delivery.term(poison)
            else:
                await delivery.ack()
        except Retryable as error:
            self._log.info("answer_lost", reason=str(error))


class _LooseItem(msgspec.Struct, frozen=True):
    pod: str = ""
    uid: str = ""


class _Loose(msgspec.Struct, frozen=True):
    """What can be read of a command that breaks the contract."""

    id: str
    job: str = ""
    binds: tuple[_LooseItem, ...] = ()
    victims: tuple[_LooseItem, ...] = ()


def salvage(payload: bytes, reason: str, *, instance: str, now: float) -> Outcome | None:
    """Return the outcome `failed` of an unreadable command, or None if not even its id is clear."""
    try:
        loose = msgspec.json.decode(unpack(payload), type=_Loose)
    except (msgspec.DecodeError, ContractError):
        return None
    items = tuple(
        ItemOutcome(
            pod=item.pod, uid=item.uid, result=Result.FAILED, retry=Retry.NEVER, message=reason
        )
        for item in (*loose.binds, *loose.victims)
    )
    return Outcome(intent=loose.id, job=loose.job, items=items, instance=instance, time=now)
