"""Publishes plans: intents with the leader's fence, wanted statuses, and what must be read back.

An intent that was sent and not answered is sent again under its own id until it is (the server
drops duplicates); one that the server refuses for lack of room is withdrawn, so that the next
cycle decides anew.
"""

from collections.abc import Awaitable, Sequence
from typing import Final

import msgspec

from services.scheduler.messages import key_of
from services.scheduler.worker import Decision
from shared.bus.errors import WrongSequence
from shared.bus.leader import Term
from shared.bus.port import Ack, Bus, Token
from shared.contracts import codec
from shared.contracts.messages import Command
from shared.contracts.streams import Streams
from shared.contracts.subjects import Subjects, partition_of
from shared.contracts.versions import CURRENT, ContractError, UnknownVersion
from shared.runtime.errors import PumiceError, Retryable
from shared.runtime.logs import Logger

DESIRED_TTL_S: Final = 86_400
"""A status that nobody could apply for a day is wanted anew by the next cycle that sees it."""


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a decision's messages."""

    refused: list[Command]
    """Intents that the server did not store."""
    statuses: bool
    """Whether all wanted statuses were stored."""
    usurped: WrongSequence | None
    """Set when the server refused because somebody else leads now."""


class PlanPublisher:
    """Publishes the decisions of one scheduler."""

    def __init__(
        self, bus: Bus, *, streams: Streams, subjects: Subjects, partitions: int, log: Logger
    ) -> None:
        self._bus = bus
        self._streams = streams
        self._subjects = subjects
        self._partitions = partitions
        self._log = log
        self._commands = bus.publisher(streams.command.name)
        self._desired = bus.publisher(streams.desired.name)

    async def unfinished(self) -> list[Command]:
        """Return the intents that COMMAND still holds, in order per partition.

        Raises UnknownVersion for an intent that only a newer binder will execute. One that nobody
        can read is left out: the binder sets it aside.
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

    async def publish(self, decision: Decision, term: Term) -> Published:
        """Publish everything at once and wait for all answers."""
        fence = term.token(self._streams.command.name)
        sent = [(command, await self._send(command, fence)) for command in decision.commands]
        wanted = await self._send_statuses(decision)
        refused: list[Command] = []
        usurped: WrongSequence | None = None
        for command, answer in sent:
            try:
                await answer
            except WrongSequence as error:
                refused.append(command)
                usurped = error
            except PumiceError as error:
                refused.append(command)
                self._log.error("intent_refused", intent=command.id, reason=str(error))
        stored = await self._all_stored(wanted)
        return Published(refused=refused, statuses=stored, usurped=usurped)

    async def _send(self, command: Command, fence: Token) -> Awaitable[Ack]:
        partition = partition_of(key_of(command), self._partitions)
        return await self._commands.submit(
            self._subjects.command(partition),
            codec.encode(command),
            msg_id=command.id,
            fence=fence,
        )

    async def _send_statuses(self, decision: Decision) -> list[Awaitable[Ack]]:
        answers = []
        for kind, wanted in decision.desires:
            partition = partition_of(wanted.key, self._partitions)
            subject = self._subjects.desired(partition, kind, wanted.key)
            answers.append(
                await self._desired.submit(subject, codec.encode(wanted), ttl_s=DESIRED_TTL_S)
            )
        return answers

    async def _all_stored(self, answers: Sequence[Awaitable[Ack]]) -> bool:
        stored = True
        for answer in answers:
            try:
                await answer
            except Retryable as error:
                stored = False
                self._log.warning("status_not_stored", reason=str(error))
        return stored
