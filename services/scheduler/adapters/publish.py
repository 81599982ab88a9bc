"""Publishes plans: intents with the leader's fence, desired statuses; and why gangs wait.

An intent that was sent and not answered is sent again under its own id until it is (the server
drops duplicates); one that the server refuses for lack of room is withdrawn, so that the next
cycle decides anew. What can never be sent, because it is too large, is quarantined by itself: the
pods of such an intent are held back, such a status waits until another one is wanted.

No cycle waits for explanations (`WaitPublisher`). A newer one of a gang takes the place of one that
is not published yet, so that there are no more of them than gangs that wait.
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
from shared.runtime.clock import Clock
from shared.runtime.errors import PumiceError, Rejected
from shared.runtime.logs import Logger
from shared.runtime.quarantine import Quarantine, bounded

_STAGE: Final = "publish"
_BATCH: Final = 200
"""Explanations that are published at once."""
_REST_S: Final = 0.1
"""Between two batches of them: binds and statuses go before."""
_Sent = Awaitable[Ack] | PumiceError
"""The answer to a message, or why it was not sent."""


class PublishResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of publishing a decision."""

    refused: list[UnstoredIntent]
    """Intents that the server did not store."""
    statuses: bool
    """Whether all desired statuses were stored, or are such that they never can be."""
    usurped: WrongSequence | None
    """Set when the server refused because another scheduler leads now."""


class PlanPublisher:
    """Publishes the decisions of one scheduler."""

    def __init__(
        self,
        bus: NatsBus,
        *,
        streams: Streams,
        subjects: Subjects,
        partitions: int,
        quarantine: Quarantine,
        log: Logger,
    ) -> None:
        self._bus = bus
        self._streams = streams
        self._subjects = subjects
        self._partitions = partitions
        self._quarantine = quarantine
        self._log = log
        self._unsent: set[tuple[str, str]] = set()
        """Kind and key of the objects that something could not be sent about."""
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
        """Return the sequence of the last outcome."""
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
        """Publish everything at once, decided in `installation_term`, and wait for all answers."""
        fence = term.token(self._streams.command.name)
        decided = term_headers(installation_term)
        sent = [(c, await self._send(c, fence, decided)) for c in decision.commands]
        statuses = [
            (status, await self._send_status(status, decided)) for status in decision.statuses
        ]
        refused: list[UnstoredIntent] = []
        usurped: WrongSequence | None = None
        for command, awaited in sent:
            try:
                await _acknowledged(awaited)
            except WrongSequence as error:
                refused.append(UnstoredIntent(command))
                usurped = error
            except PumiceError as error:
                refused.append(self._refused(command, error))
            else:
                self._handled(*_about(command)[:2])
        stored = await self._all_stored(statuses)
        return PublishResult(refused=refused, statuses=stored, usurped=usurped)

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
    """Return kind, key and uid of what an intent is about: its PodGroup, or its first victim."""
    if isinstance(command, BindGang):
        return PODGROUP.token, command.job, command.job_uid
    return POD.token, command.victims[0].pod, command.victims[0].uid


async def _submitted(sending: Awaitable[Awaitable[Ack]]) -> _Sent:
    """Hand a message to the server; why it was not sent counts as its answer."""
    try:
        return await sending
    except PumiceError as error:
        return error


async def _acknowledged(sent: _Sent) -> Ack:
    """Wait for the answer to a message, or raise why it was not sent."""
    if isinstance(sent, PumiceError):
        raise sent
    return await sent


class WaitPublisher:
    """Publishes the last explanation of each gang in the background; a part of the scheduler."""

    name: Final = "wait-explanations"

    def __init__(
        self,
        publisher: Publisher,
        *,
        subjects: Subjects,
        clock: Clock,
        backoff: Backoff,
        log: Logger,
    ) -> None:
        self._publisher = publisher
        self._subjects = subjects
        self._clock = clock
        self._backoff = backoff
        self._log = log
        self._due: dict[str, WaitExplained] = {}
        self._filled = asyncio.Event()

    def enqueue(self, messages: Iterable[WaitExplained]) -> None:
        """Take the messages of a cycle."""
        for message in messages:
            self._due[message.gang] = message
        if self._due:
            self._filled.set()

    def forget(self) -> None:
        """Publish nothing more of what was decided: another scheduler leads."""
        self._due.clear()

    async def run(self) -> None:
        """Publish what is there, for ever."""
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
        """Publish at once; return those that have to be published again."""
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
