"""Consumes COMMAND: one shared durable consumer per partition, one outcome per intent.

Second step of the flow "bind → POST": `Commands` → `IntentExecutor` → `ApiServerClient`. The order
is: write to the API server, store the OUTCOME, acknowledge the delivery. After a crash in between
the intent is delivered again. The binder then finds its outcome (`FinishedIntents`), or objects
that are already as desired. A message that cannot be decoded is quarantined with its reason, so
that it blocks no other.

No intent is executed before it is known that this installation holds the cluster's Lease. An intent
from before another installation held it fails, so that the scheduler decides again.
"""

import asyncio
from contextlib import aclosing
from typing import Final

import msgspec

from services.binder.adapters.deliveries import NEWER_DELAY_S, PartitionSource, redeliver_later
from services.binder.adapters.execute import IntentExecutor
from services.binder.adapters.outcomes import FinishedIntents, Outcomes
from services.binder.intents.bounds import breach
from services.binder.metrics import BinderMetrics
from shared.bus.puller import Delivery
from shared.bus.values import Reset, Started
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
from shared.election.installation import InstallationLeadership, term_of
from shared.runtime.env import Env
from shared.runtime.errors import Rejected, Retryable
from shared.runtime.tasks import TaskGroup

_STAGE: Final = "execute"
POISON_BYTES: Final = 256 * 1024
"""Bytes of an unreadable message that are kept; base64 of all of it could be too large."""
_ID_MAX: Final = 128


class IntentSlots(msgspec.Struct, frozen=True, kw_only=True):
    """Limits how many intents are received, and executed, at once; shared by all partitions."""

    received: asyncio.Semaphore
    executing: asyncio.Semaphore


class Commands:
    """Consumes one partition of COMMAND; a part of the service."""

    def __init__(
        self,
        source: PartitionSource,
        *,
        executor: IntentExecutor,
        outcomes: Outcomes,
        finished: FinishedIntents,
        installation: InstallationLeadership,
        slots: IntentSlots,
        env: Env,
        metrics: BinderMetrics,
    ) -> None:
        self.name = f"commands-{source.partition}"
        self._source = source
        self._executor = executor
        self._outcomes = outcomes
        self._finished = finished
        self._installation = installation
        self._slots = slots
        self._quarantine = env.quarantine
        self._clock = env.clock
        self._faults = env.faults
        self._metrics = metrics
        self._instance = env.instance
        self._spans = env.spans
        self._log = env.log.bind(partition=source.partition)
        self._epoch = 0

    async def run(self) -> None:
        """Process deliveries until cancelled, as many at once as the slots allow."""
        async with TaskGroup() as group, aclosing(self._source.puller.deliveries()) as items:
            async for item in items:
                if isinstance(item, Started):
                    self._source.gate.set(True)
                elif isinstance(item, Reset):
                    self._log.warning("commands_dropped_with_their_stream", reason=item.reason)
                    self._epoch += 1
                else:
                    await self._slots.received.acquire()
                    name = f"{self.name} {item.message.sequence}"
                    group.create_task(self._process(group, item, self._epoch), name=name)

    async def _process(self, group: TaskGroup, delivery: Delivery, epoch: int) -> None:
        key = f"{self._source.partition}/{delivery.message.sequence}"
        try:
            async with self._source.acks.extended(group, delivery):
                with self._quarantine.isolate("intent", key, stage=_STAGE) as isolated:
                    await self._handle(delivery, epoch)
                if isolated.error is not None:
                    await redeliver_later(delivery, NEWER_DELAY_S, self._log)
        except Rejected as error:
            self._quarantine.failed("intent", key, stage=_STAGE, error=str(error))
            await redeliver_later(delivery, NEWER_DELAY_S, self._log)
        finally:
            self._slots.received.release()

    async def _handle(self, delivery: Delivery, epoch: int) -> None:
        try:
            intent = decode_command(delivery.message.payload)
        except UnknownVersion as error:
            await self._unknown(delivery, error)
        except ContractError as error:
            await self._poison(delivery, str(error))
        else:
            if not self._source.is_fenced(delivery.message):
                await self._poison(delivery, "published without the token of a leader")
            elif not is_identity(intent.id):
                await self._poison(delivery, "its id is not one that a header can carry")
            elif reason := breach(intent):
                await self._poison(delivery, reason)
            else:
                await self._execute(delivery, intent, epoch)

    async def _execute(self, delivery: Delivery, intent: BindGang | Evict, epoch: int) -> None:
        if not await self._finished.has(intent.id):
            mark = term_of(delivery.message.headers)
            await self._installation.settled()
            if refusal := self._installation.refusal(mark):
                outcome = self._executor.refuse(intent, refusal)
            else:
                with self._installation.working(mark):
                    worked = await self._work(delivery, intent, epoch)
                if worked is None:
                    return
                outcome = worked
            self._faults.point("binder.after-write")
            await self._outcomes.publish(self._source.partition, outcome)
            self._report(delivery, intent, outcome)
            self._faults.point("binder.after-outcome")
        await self._acknowledge(delivery)

    async def _work(
        self, delivery: Delivery, intent: BindGang | Evict, epoch: int
    ) -> Outcome | None:
        """Execute an intent; None if its stream was recreated in the meantime."""
        ended = {} if delivery.exhausted else await self._executor.prepare(intent)
        async with self._slots.executing:
            if epoch != self._epoch:
                return None
            if delivery.exhausted:
                return await self._executor.report(intent)
            return await self._executor.run(intent, ended)

    def _report(self, delivery: Delivery, intent: BindGang | Evict, outcome: Outcome) -> None:
        kind = "bind" if isinstance(intent, BindGang) else "evict"
        took_s = self._clock.now() - delivery.message.time
        self._metrics.intent_seconds.labels(kind).observe(max(took_s, 0.0))
        results: dict[str, int] = {}
        for item in outcome.items:
            results[item.result.value] = results.get(item.result.value, 0) + 1
        if self._spans.is_on:
            for cause in _causes(intent):
                self._spans.add(cause, kind, begun=delivery.message.time, **results)
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
        """Leave a newer version to newer binders; quarantine an older one, which none reads."""
        if error.version <= CURRENT:
            await self._poison(delivery, str(error))
            return
        self._metrics.newer.labels(self._source.stream).inc()
        self._log.warning("newer_command_delayed", reason=str(error), attempt=delivery.attempt)
        await redeliver_later(delivery, NEWER_DELAY_S, self._log)

    async def _poison(self, delivery: Delivery, reason: str) -> None:
        message = delivery.message
        self._metrics.quarantined.labels(self._source.stream).inc()
        self._log.error("command_quarantined", sequence=message.sequence, reason=reason)
        await self._outcomes.quarantined(
            self._source.stream,
            Poison(
                subject=message.subject,
                sequence=message.sequence,
                reason=reason,
                payload=message.payload[:POISON_BYTES],
                time=message.time,
            ),
        )
        outcome = failed_outcome(
            message.payload, reason, instance=self._instance, now=self._clock.now()
        )
        if outcome is not None:
            await self._outcomes.publish(self._source.partition, outcome)
        await self._acknowledge(delivery, poison=reason)

    async def _acknowledge(self, delivery: Delivery, *, poison: str = "") -> None:
        """Acknowledge. If that is lost, the redelivery finds the stored outcome."""
        try:
            if poison:
                await delivery.term(poison)
            else:
                await delivery.ack()
        except Retryable as error:
            self._log.info("answer_lost", reason=str(error))


def _causes(intent: BindGang | Evict) -> set[str]:
    """Return the keys of the PodGroups whose pods an intent is about."""
    if isinstance(intent, BindGang):
        return {intent.job}
    return {victim.job for victim in intent.victims if victim.job}


def is_identity(text: str) -> bool:
    """Return whether a text is a valid intent id; ids travel in message headers."""
    return 0 < len(text) <= _ID_MAX and text.isascii() and text.isprintable()


class _PartialItem(msgspec.Struct, frozen=True):
    pod: str = ""
    uid: str = ""


class _PartialCommand(msgspec.Struct, frozen=True):
    """The readable part of a command that breaks the contract."""

    id: str
    job: str = ""
    binds: tuple[_PartialItem, ...] = ()
    victims: tuple[_PartialItem, ...] = ()


def failed_outcome(payload: bytes, reason: str, *, instance: str, now: float) -> Outcome | None:
    """Return the outcome `failed` of an unreadable command; None if its id is unreadable too."""
    try:
        partial = msgspec.json.decode(unpack(payload), type=_PartialCommand)
    except (ValueError, RecursionError):
        return None
    if not is_identity(partial.id):
        return None
    items = tuple(
        ItemOutcome(
            pod=item.pod, uid=item.uid, result=Result.FAILED, retry=Retry.NEVER, message=reason
        )
        for item in (*partial.binds, *partial.victims)
    )
    return Outcome(intent=partial.id, job=partial.job, items=items, instance=instance, time=now)
