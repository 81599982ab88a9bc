"""The facts that STATE holds, followed while another replica leads.

A new leader publishes the differences between the API server and STATE. Reading a hundred thousand
facts takes seconds, so a standby follows STATE all the time. Per object it keeps what a comparison
needs: uid, version and a digest.

A term begins when the leader has read its own fencing message: all messages of earlier leaders are
before it. The message is recognized by sequence, instance and time, because a recreated stream may
have another message at that sequence. During a term nothing is followed, because only the leader
publishes.
"""

import asyncio
from contextlib import aclosing
from typing import Final, NamedTuple

from services.cache.fold.objects import Published, digest, tombstone_body_of
from services.cache.fold.publish_queue import Slot
from shared.api.kinds import POD
from shared.bus.errors import WrongSequence
from shared.bus.nats import NatsBus
from shared.bus.seal import Seal
from shared.bus.values import CaughtUp, FollowItem, Message, Reset, Started
from shared.contracts import codec
from shared.contracts.messages import Op
from shared.contracts.subjects import Subjects, key_of, unescape
from shared.contracts.versions import ContractError
from shared.election.leader_elector import LeadershipTerm
from shared.runtime.clock import Clock
from shared.runtime.logs import Logger
from shared.runtime.tasks import TaskGroup, sleep_or_event

CHECK_S: Final = 1.0
"""How often a leader that waits for its own message asks whether it is still the last one."""


class LeaderMessage(NamedTuple):
    """A leader's fencing message."""

    sequence: int
    instance: str
    time: float


class PublishedFacts:
    """Follows the facts of all kinds (a part of the service)."""

    name: Final = "published"

    def __init__(
        self,
        bus: NatsBus,
        *,
        stream: str,
        subjects: Subjects,
        kinds: tuple[str, ...],
        instance: str,
        seal: Seal,
        clock: Clock,
        log: Logger,
    ) -> None:
        self._bus = bus
        self._stream = stream
        self._subjects = subjects
        self._leader = subjects.leader("state")
        self._followed = [*(subjects.state_kind(kind) for kind in kinds), self._leader]
        self._instance = instance
        self._seal = seal
        self._clock = clock
        self._log = log.bind(stream=stream)
        self._facts: dict[Slot, Published] = {}
        self._last_leader: LeaderMessage | None = None
        """The last fencing message that was read."""
        self._is_replayed = False
        """Whether the replay is over."""
        self._received = asyncio.Event()
        self._leading = asyncio.Event()
        """Set while this replica leads."""
        self._standing_by = asyncio.Event()
        self._standing_by.set()

    async def run(self) -> None:
        """Follow whenever this replica does not lead until cancelled."""
        while True:
            await self._standing_by.wait()
            async with TaskGroup() as group:
                following = group.create_task(self._follow(), name="published-follow")
                await self._leading.wait()
                following.cancel()

    async def at(self, term: LeadershipTerm) -> dict[Slot, Published]:
        """Return the facts of STATE at the beginning of a term, and stop following.

        Raises WrongSequence when the leader's message is no longer the last one: another replica
        leads, or the stream was recreated.
        """
        mine = LeaderMessage(term.token(self._stream).sequence, self._instance, term.time)
        while not (self._is_replayed and self._last_leader == mine):
            self._received.clear()
            if not await sleep_or_event(self._clock, CHECK_S, self._received):
                await self._check(mine)
        self._standing_by.clear()
        self._leading.set()
        facts, self._facts = self._facts, {}
        return facts

    def resume(self) -> None:
        """Follow again from the beginning, because another replica may lead."""
        if self._leading.is_set():
            self._leading.clear()
            self._standing_by.set()

    async def _follow(self) -> None:
        self._forget()
        async with aclosing(self._bus.follow(self._stream, self._followed)) as items:
            async for item in items:
                self._handle(item)

    def _handle(self, item: FollowItem) -> None:
        match item:
            case Started():
                self._is_replayed = False
            case Reset():
                self._forget()
            case list(messages):
                for message in messages:
                    self._read(message)
            case CaughtUp():
                self._is_replayed = True
                self._received.set()
            case _:
                pass

    def _forget(self) -> None:
        self._facts.clear()
        self._last_leader, self._is_replayed = None, False

    def _read(self, message: Message) -> None:
        if message.subject == self._leader:
            self._last_leader = _leader_message(message)
            self._received.set()
            return
        try:
            fact = self._seal.open(codec.decode_fact(message.payload))
        except ContractError as exc:
            self._log.warning("fact_unreadable", subject=message.subject, reason=str(exc))
            self._facts[self._slot(message.subject)] = Published(uid="", rv="")
            return
        slot = (fact.kind, fact.key)
        if fact.op is Op.DELETE:
            self._facts.pop(slot, None)
            return
        body = bytes(fact.body) if fact.op is Op.PUT else b""
        seen = digest(body, fact.rv) if body else b""
        succeeded_body = tombstone_body_of(body) if fact.kind == POD.token else b""
        self._facts[slot] = Published(
            uid=fact.uid, rv=fact.rv, digest=seen, succeeded_body=succeeded_body
        )

    def _slot(self, subject: str) -> Slot:
        kind, namespace, name = subject.removeprefix(f"{self._subjects.prefix}.state.").split(".")
        return kind, key_of(unescape(namespace), unescape(name))

    async def _check(self, mine: LeaderMessage) -> None:
        last = await self._bus.last(self._stream, self._leader)
        if last is None or _leader_message(last) != mine:
            raise WrongSequence(f"{self._stream} has another leader, or was recreated")


def _leader_message(message: Message) -> LeaderMessage | None:
    try:
        leader = codec.decode_leader(message.payload)
    except ContractError:
        return None
    return LeaderMessage(message.sequence, leader.instance, leader.time)
