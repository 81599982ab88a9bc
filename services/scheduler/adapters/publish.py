"""Publishes decisions: intents to COMMAND, desired statuses to DESIRED, explanations to WAITING.

First step of the flow "bind → POST". Intents carry the leader's fencing token. An intent without an
acknowledgement is sent again under the same id until it has one; NATS drops duplicates. An intent
that NATS refuses because the stream is full is withdrawn, so that the next cycle decides again. An
intent or status that is too large to be sent is quarantined: the pods of the intent back off, and
the object keeps its status until another one is desired.

Cycles do not wait for explanations (`WaitPublisher`). A newer explanation replaces one of the same
gang that is not published yet, so at most one per waiting gang is queued.
"""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from services.scheduler.decision import Decision, UnstoredIntent
from services.scheduler.desired import DesiredStatus
from services.scheduler.messages import key_of
from shared.api.kinds import POD, PODGROUP
from shared.bus.errors import WrongSequence
from shared.bus.nats import NatsBus
from shared.bus.publisher import Publisher
from shared.bus.values import Ack, FencingToken
from shared.contracts import codec
from shared.contracts.messages import BindGang, Command, Fact, Op, WaitExplained
from shared.contracts.streams import WAITED_TTL_S, WAITING_TTL_S, Streams
from shared.contracts.subjects import Subjects, partition_of
from shared.contracts.versions import CURRENT, ContractError, UnknownVersion
from shared.election.installation import term_headers
from shared.election.leader_elector import LeadershipTerm
from shared.runtime.backoff import Backoff
from shared.runtime.env import Env
from shared.runtime.errors import PumiceError, Rejected
from shared.runtime.quarantine import bounded

_STAGE: Final = "publish"
_BATCH: Final = 200
"""Explanations per batch."""
_REST_S: Final = 0.1
"""Seconds between two batches, so that binds and statuses go first."""
_Sent = Awaitable[Ack] | PumiceError
"""The acknowledgement of a message to come, or the error for which it was not sent."""


class PublishResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of publishing a decision."""

    refused: list[UnstoredIntent]
    """Intents that NATS did not store."""
    statuses: bool
    """Whether all desired statuses were stored or quarantined."""
    superseded: WrongSequence | None
    """The refusal by which NATS showed that another scheduler leads; None without one."""


class PlanPublisher:
    """Publishes the decisions of one scheduler."""

    def __init__(
        self,
        bus: NatsBus,
        *,
        streams: Streams,
        subjects: Subjects,
        partitions: int,
        env: Env,
    ) -> None:
        self._bus = bus
        self._streams = streams
        self._subjects = subjects
        self._partitions = partitions
        self._quarantine = env.quarantine
        self._log = env.log
        self._unsent: set[tuple[str, str]] = set()
        """(Kind, key) of the objects whose last message could not be sent."""
        self._commands = bus.publisher(streams.command.name)
        self._desired = bus.publisher(streams.desired.name)

    async def unfinished(self) -> list[Command]:
        """Return the intents that COMMAND still holds, in order per partition.

        Raises UnknownVersion for an intent that only a newer binder will execute. One that cannot
        be read is left out: the binder sets it aside.
        """
        found = []
        for partition in range(self._partitions):
            subject = self._subjects.command(partition)
            async for message in self._bus.scan(self._streams.command.name, subject):
                try:
                    found.append(codec.decode_command(message.payload))
                except ContractError as error:
                    if isinstance(error, UnknownVersion) and error.version > CURRENT:
                        raise
                    self._log.error(
                        "command_unreadable", sequence=message.sequence, reason=str(error)
                    )
        return found

    async def last_outcome(self) -> int:
        """Return the stream sequence of the last message on OUTCOME."""
        return (await self._bus.info(self._streams.outcome.name)).last_seq

    def folded(self, facts: Sequence[Fact]) -> None:
        """Release the objects that are gone."""
        if not self._unsent:
            return
        gone = {(fact.kind, fact.key) for fact in facts if fact.op is Op.DELETE}
        for kind, key in sorted(self._unsent & gone):
            self._unsent.discard((kind, key))
            self._quarantine.gone(kind, key)

    async def publish(
        self, decision: Decision, term: LeadershipTerm, installation_term: str
    ) -> PublishResult:
        """Publish a decision made in `installation_term`, and wait for all acknowledgements."""
        fence = term.token(self._streams.command.name)
        decided = term_headers(installation_term)
        sent = [(c, await self._send(c, fence, decided)) for c in decision.commands]
        statuses = [
            (status, await self._send_status(status, decided)) for status in decision.statuses
        ]
        refused: list[UnstoredIntent] = []
        superseded: WrongSequence | None = None
        for command, awaited in sent:
            try:
                await _acknowledged(awaited)
            except WrongSequence as error:
                refused.append(UnstoredIntent(command))
                superseded = error
            except PumiceError as error:
                refused.append(self._refused(command, error))
            else:
                self._handled(*_about(command)[:2])
        stored = await self._all_stored(statuses)
        return PublishResult(refused=refused, statuses=stored, superseded=superseded)

    async def _send(
        self, command: Command, fence: FencingToken, decided: Mapping[str, str]
    ) -> _Sent:
        partition = partition_of(key_of(command), self._partitions)
        return await _submitted(
            self._commands.submit(
                self._subjects.command(partition),
                codec.encode(command),
                msg_id=command.id,
                fence=fence,
                headers=decided,
            )
        )

    async def _send_status(self, status: DesiredStatus, decided: Mapping[str, str]) -> _Sent:
        key = status.message.key
        subject = self._subjects.desired(partition_of(key, self._partitions), status.kind, key)
        return await _submitted(
            self._desired.submit(
                subject,
                codec.encode(status.message),
                ttl_s=status.ttl_s,
                headers={**decided, **codec.deferral(status.deferral_s)},
            )
        )

    def _refused(self, command: Command, error: PumiceError) -> UnstoredIntent:
        self._log.error("intent_refused", intent=command.id, reason=str(error))
        if not isinstance(error, Rejected):
            return UnstoredIntent(command)
        kind, key, uid = _about(command)
        self._quarantine_object(kind, key, uid, error)
        return UnstoredIntent(command, why=bounded(str(error)))

    async def _all_stored(self, sent: Sequence[tuple[DesiredStatus, _Sent]]) -> bool:
        stored = True
        for status, awaited in sent:
            try:
                await _acknowledged(awaited)
            except Rejected as error:
                self._quarantine_object(status.kind, status.message.key, status.message.uid, error)
            except PumiceError as error:
                stored = False
                self._log.warning("status_not_stored", reason=str(error))
            else:
                self._handled(status.kind, status.message.key)
        return stored

    def _quarantine_object(self, kind: str, key: str, uid: str, error: Rejected) -> None:
        self._unsent.add((kind, key))
        self._quarantine.failed(kind, key, stage=_STAGE, error=str(error), uid=uid)

    def _handled(self, kind: str, key: str) -> None:
        if (kind, key) in self._unsent:
            self._unsent.discard((kind, key))
            self._quarantine.handled(kind, key, stage=_STAGE)


def _about(command: Command) -> tuple[str, str, str]:
    """Return kind, key and uid of the object of an intent: its PodGroup, or its first victim."""
    if isinstance(command, BindGang):
        return PODGROUP.token, command.job, command.job_uid
    return POD.token, command.victims[0].pod, command.victims[0].uid


async def _submitted(sending: Awaitable[Awaitable[Ack]]) -> _Sent:
    """Send a message; return its acknowledgement to come, or why it was not sent."""
    try:
        return await sending
    except PumiceError as error:
        return error


async def _acknowledged(sent: _Sent) -> Ack:
    """Wait for the acknowledgement of a message; raise the error if it was not sent."""
    if isinstance(sent, PumiceError):
        raise sent
    return await sent


class WaitPublisher:
    """Publishes the last explanation of each gang in the background; a part of the scheduler."""

    name: Final = "wait-explanations"

    def __init__(self, publisher: Publisher, *, subjects: Subjects, env: Env) -> None:
        self._publisher = publisher
        self._subjects = subjects
        self._clock = env.clock
        self._backoff = Backoff(first_s=0.2, rng=env.rng)
        self._log = env.log
        self._due: dict[str, WaitExplained] = {}
        self._filled = asyncio.Event()

    def enqueue(self, messages: Iterable[WaitExplained]) -> None:
        """Queue the explanations of a cycle."""
        for message in messages:
            self._due[message.gang] = message
        if self._due:
            self._filled.set()

    def forget(self) -> None:
        """Drop all queued explanations, because another scheduler leads."""
        self._due.clear()

    async def run(self) -> None:
        """Publish queued explanations until cancelled."""
        while True:
            await self._filled.wait()
            batch = [self._due.pop(key) for key in list(self._due)[:_BATCH]]
            if not batch:
                self._filled.clear()
                continue
            left = await self._publish(batch)
            for message in left:
                self._due.setdefault(message.gang, message)
            if not left:
                self._backoff.reset()
            await self._clock.sleep(self._backoff.next_s() if left else _REST_S)

    async def _publish(self, batch: list[WaitExplained]) -> list[WaitExplained]:
        """Publish a batch; return the messages that have to be published again."""
        left = []
        for message, sent in [(message, await self._send(message)) for message in batch]:
            try:
                await _acknowledged(sent)
            except Rejected as error:
                self._log.warning("wait_not_published", gang=message.gang, reason=str(error))
            except PumiceError as error:
                self._log.debug("wait_delayed", gang=message.gang, reason=str(error))
                left.append(message)
        return left

    async def _send(self, message: WaitExplained) -> _Sent:
        return await _submitted(
            self._publisher.submit(
                self._subjects.waiting(message.gang),
                codec.encode(message),
                ttl_s=WAITING_TTL_S if message.gate else WAITED_TTL_S,
            )
        )
