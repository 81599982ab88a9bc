"""The OUTCOME stream: publishes outcomes of intents, and knows the intents that have one.

An intent has exactly one outcome. Within the dedupe window, NATS drops a second one by its message
id. Beyond it, `FinishedIntents` finds the first one before a redelivered intent is executed again,
which would use room that the scheduler may have given to other pods. It also knows the pods that
are bound or deleted, whose desired statuses are void: pods of this process at once, those of other
binders from their outcomes.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import Final

import msgspec

from shared.bus.errors import TooLarge
from shared.bus.nats import NatsBus
from shared.bus.publisher import Publisher
from shared.bus.values import CaughtUp, FromTime, Reset
from shared.contracts.codec import encode, unpack
from shared.contracts.messages import (
    Bind,
    BindGang,
    Evict,
    ItemOutcome,
    Outcome,
    Poison,
    Result,
    Victim,
)
from shared.contracts.streams import OUTCOME_AGE_S
from shared.contracts.subjects import Subjects
from shared.runtime.backoff import Backoff
from shared.runtime.env import Env
from shared.runtime.errors import Retryable
from shared.runtime.health import ReadinessGate

_REMEMBERED: Final = 200_000
"""Intents whose end is remembered; an hour of OUTCOME at 50 intents/s."""
_PODS_REMEMBERED: Final = 100_000
"""Pods whose end is remembered: those of which a desired status may still be on its way."""
_ITEMS_MAX: Final = 100
_ENDED: Final = frozenset({Result.BOUND, Result.EVICTED, Result.CONFLICT, Result.GONE})


class Outcomes:
    """Publishes outcomes, and messages that were quarantined, until the server has them."""

    def __init__(
        self,
        publisher: Publisher,
        *,
        subjects: Subjects,
        env: Env,
    ) -> None:
        self._publisher = publisher
        self._subjects = subjects
        self._clock = env.clock
        self._backoff = Backoff(first_s=0.1, cap_s=2.0, rng=env.rng)
        self._log = env.log

    async def publish(self, partition: int, outcome: Outcome) -> None:
        """Return once the server has stored the outcome; retries as long as it takes.

        One that is too large is shortened: the scheduler needs each result, but not the messages.
        Raises Rejected if the server accepts no form of it.
        """
        identity = f"outcome-{outcome.intent}"
        await self._send_one_of(self._subjects.outcome(partition), shorter(outcome), identity)

    async def quarantined(self, stream: str, poison: Poison) -> None:
        """Store an unreadable message where a person can inspect it; or that there was one."""
        identity = f"poison-{stream}-{poison.sequence}-{poison.time:.0f}"
        forms = (poison, msgspec.structs.replace(poison, payload=b""))
        await self._send_one_of(self._subjects.poison, forms, identity)

    async def _send_one_of(
        self, subject: str, messages: Iterable[msgspec.Struct], identity: str
    ) -> None:
        """Send the first of several messages that is not too large."""
        refusal: TooLarge | None = None
        for message in messages:
            try:
                await self._send(subject, encode(message), identity)
            except TooLarge as error:
                self._log.warning("message_shortened", id=identity[:100], reason=str(error))
                refusal = error
            else:
                return
        if refusal is not None:
            raise refusal

    async def _send(self, subject: str, payload: bytes, identity: str) -> None:
        attempt = 0
        while True:
            try:
                await self._publisher.publish(subject, payload, msg_id=identity)
            except Retryable as error:
                self._log.warning("outcome_delayed", id=identity, reason=str(error))
                await self._clock.sleep(self._backoff.delay_s(attempt))
                attempt += 1
            else:
                return


def shorter(outcome: Outcome) -> Iterator[Outcome]:
    """Yield an outcome, then shorter forms of it, which leave out what decides nothing.

    Without messages it is hardly larger than its command. Items are left out only for a command
    that no scheduler of ours has sent: those are bounded.
    """
    yield outcome
    bare = tuple(
        ItemOutcome(
            pod=item.pod,
            uid=item.uid,
            result=item.result,
            node=item.node if item.result is Result.BOUND else "",
            retry=item.retry,
        )
        for item in outcome.items
    )
    yield msgspec.structs.replace(outcome, items=bare)
    yield msgspec.structs.replace(outcome, items=bare[:_ITEMS_MAX], job="")
    yield msgspec.structs.replace(outcome, items=(), job="")


class _Item(msgspec.Struct, frozen=True, gc=False):
    uid: str
    result: Result


class _OutcomeSummary(msgspec.Struct, frozen=True):
    """The part of an outcome that is needed here; the rest is not decoded."""

    intent: str
    items: tuple[_Item, ...] = ()


class FinishedIntents:
    """Follows the outcomes of all binders, and records its own at once; a part of the service."""

    name: Final = "finished"

    def __init__(
        self,
        bus: NatsBus,
        *,
        stream: str,
        subjects: Sequence[str],
        env: Env,
        gate: ReadinessGate,
    ) -> None:
        self._bus = bus
        self._stream = stream
        self._subjects = tuple(subjects)
        self._clock = env.clock
        self._gate = gate
        self._log = env.log
        self._intents: dict[str, None] = {}
        self._pods: dict[str, None] = {}
        self._caught_up = asyncio.Event()
        self._decoder = msgspec.json.Decoder(_OutcomeSummary)

    async def has(self, intent: str) -> bool:
        """Return whether an outcome of `intent` is out, once all stored ones have been read."""
        await self._caught_up.wait()
        return intent in self._intents

    def is_settled(self, uid: str) -> bool:
        """Return whether a pod is known to have a node, or to be leaving or gone."""
        return uid in self._pods

    def bound(self, gang: BindGang, item: Bind) -> None:  # noqa: ARG002 - of a listener
        """Record that a pod is bound."""
        self._note_pod(item.uid)

    def evicted(self, intent: Evict, victim: Victim) -> None:  # noqa: ARG002 - of a listener
        """Record that a pod is being evicted."""
        self._note_pod(victim.uid)

    async def run(self) -> None:
        """Follow OUTCOME forever, from as far back as it is kept."""
        start = FromTime(self._clock.now() - OUTCOME_AGE_S)
        items = self._bus.follow(self._stream, self._subjects, start=start)
        async with aclosing(items):
            async for item in items:
                if isinstance(item, list):
                    for message in item:
                        self._note(message.payload)
                elif isinstance(item, CaughtUp):
                    self._caught_up.set()
                    self._gate.set(True)
                elif isinstance(item, Reset):
                    self._log.warning("outcomes_read_again", reason=item.reason)
                    self._caught_up.clear()
                    self._gate.set(ok=False, reason=f"outcomes are read again: {item.reason}")

    def _note(self, payload: bytes) -> None:
        try:
            summary = self._decoder.decode(unpack(payload))
        except ValueError as error:
            self._log.warning("outcome_unreadable", reason=str(error))
            return
        _remember(self._intents, summary.intent, most=_REMEMBERED)
        for item in summary.items:
            if item.result in _ENDED:
                self._note_pod(item.uid)

    def _note_pod(self, uid: str) -> None:
        _remember(self._pods, uid, most=_PODS_REMEMBERED)


def _remember(known: dict[str, None], name: str, *, most: int) -> None:
    """Add a name, and forget the oldest one where they are more than `most`."""
    known[name] = None
    if len(known) > most:
        del known[next(iter(known))]
