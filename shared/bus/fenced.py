"""A leader's publishes to one stream: in order, and in batches where the stream supports them.

Each publish of a leader names the same expected sequence: its fencing token. A stream on one server
checks it for any number of publishes in flight. A replicated stream refuses a publish while another
one with the same expected sequence is being replicated. So publishes wait for each other there, and
those that are queued meanwhile go as one atomic batch with one acknowledgement (ADR 38).
"""

import asyncio
import enum
from asyncio import Future
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from shared.bus.api import Api
from shared.bus.errors import NoReply, SequenceInFlight, WrongSequence
from shared.bus.replies import Outgoing
from shared.bus.sender import LAST, LAST_OF, StreamSender, timeout_of
from shared.bus.values import Ack
from shared.runtime.clock import Clock
from shared.runtime.errors import PumiceError
from shared.runtime.tasks import TaskGroup

RETRY_S: Final = 0.01
GIVE_UP_S: Final = 2.0
BATCH: Final = 128
"""Most messages in a batch; the server's limit is 1,000."""
BATCH_BYTES: Final = 512 * 1024
MODE_CHECK_S: Final = 10.0
"""Seconds after which a stream in mode `ONE_BY_ONE` is checked for another mode."""


class PublishMode(enum.Enum):
    """How to publish to a stream that checks an expected sequence.

    The server decides which mode it supports (`allow_atomic`, number of replicas).
    """

    AT_ONCE = "at once"
    """Any number of messages is in flight."""
    ONE_BY_ONE = "one by one"
    """Each message is sent after the acknowledgement of the one before."""
    IN_BATCHES = "in batches"
    """Like `ONE_BY_ONE`, but the messages that wait go as one atomic batch."""


class _Queued(msgspec.Struct, eq=False):
    """A publish that has not been answered."""

    message: Outgoing
    deadline: float
    """When to give up if it has not been sent, monotonic."""
    reply: Future[Ack]

    def settle(self, ack: Ack) -> None:
        if not self.reply.done():
            self.reply.set_result(ack)

    def fail(self, error: PumiceError) -> None:
        if not self.reply.done():
            self.reply.set_exception(error)
            self.reply.exception()  # a caller may leave it alone


class FencedPublishes:
    """The fenced publishes of this process to one stream; `run` must be running."""

    def __init__(
        self, sender: StreamSender, api: Api, *, clock: Clock, unique_name: Callable[[str], str]
    ) -> None:
        """`unique_name` returns a name with a prefix that no other process uses."""
        self._sender = sender
        self._api = api
        self._clock = clock
        self._unique_name = unique_name
        self._queue: deque[_Queued] = deque()
        self._filled = asyncio.Event()
        self._mode: PublishMode | None = None
        self._checked_at = 0.0

    async def submit(self, message: Outgoing) -> Awaitable[Ack]:
        """Publish after what was submitted before; the answer is awaited later.

        Raises TooLarge, and NoReply at once where the stream takes publishes at once and there is
        no connection.
        """
        if (
            self._mode is PublishMode.AT_ONCE
            and not self._filled.is_set()
            and not self._sender.stale
        ):
            return await self._sender.send_with_room(message)
        self._sender.refuse_oversized(message)
        room, size = self._sender.room, len(message.payload)
        await room.take(size)
        queued = _Queued(
            message,
            self._clock.monotonic() + timeout_of(message),
            asyncio.get_running_loop().create_future(),
        )
        queued.reply.add_done_callback(lambda _: room.give(size))
        self._queue.append(queued)
        self._filled.set()
        return queued.reply

    async def run(self) -> None:
        """Publish what is submitted until cancelled."""
        while True:
            await self._filled.wait()
            while group := self._next_group():
                await self._publish(group)
            self._filled.clear()

    def _next_group(self) -> list[_Queued]:
        """Take the next publishes with one expected sequence that fit into a batch."""
        group: list[_Queued] = []
        size, now = 0, self._clock.monotonic()
        while self._queue and len(group) < BATCH:
            queued = self._queue[0]
            if group and (
                _expected(queued.message) != _expected(group[0].message)
                or size + len(queued.message.payload) > BATCH_BYTES
            ):
                break
            self._queue.popleft()
            if queued.reply.done():
                continue  # its caller was cancelled
            if queued.deadline <= now:
                queued.fail(NoReply(f"{queued.message.subject}: those before have no answer"))
                continue
            group.append(queued)
            size += len(queued.message.payload)
        return group

    async def _publish(self, group: Sequence[_Queued]) -> None:
        mode = await self._current_mode()
        if mode is PublishMode.IN_BATCHES and len(group) > 1:
            group = await self._as_batch(group)
        for queued in group:
            await self._alone(queued)

    async def _current_mode(self) -> PublishMode:
        """Return the mode of the stream; `ONE_BY_ONE` if the server does not reply."""
        now = self._clock.monotonic()
        slow = self._mode is PublishMode.ONE_BY_ONE and now >= self._checked_at + MODE_CHECK_S
        if self._mode is None or self._sender.stale or slow:
            self._sender.stale = False
            self._checked_at = now
            try:
                reply = await self._api.stream(self._sender.stream)
            except PumiceError:
                self._sender.stale = True
                return PublishMode.ONE_BY_ONE
            if reply.config.get("allow_atomic"):
                self._mode = PublishMode.IN_BATCHES
            else:
                self._mode = PublishMode.ONE_BY_ONE if reply.replicas > 1 else PublishMode.AT_ONCE
        return self._mode

    async def _as_batch(self, group: Sequence[_Queued]) -> Sequence[_Queued]:
        """Publish all or none; return the publishes that have to be sent one by one.

        A batch that is refused for one of its messages stores none. Whether a batch without a reply
        was stored is unknown, so only messages with an id may be sent again.
        """
        give_up_at = self._clock.monotonic() + GIVE_UP_S
        messages = [queued.message for queued in group]
        while True:
            try:
                acks = await self._sender.send_batch(self._unique_name("batch"), messages)
            except SequenceInFlight as error:
                if self._clock.monotonic() >= give_up_at:
                    return _failed(group, error)
            except WrongSequence as error:
                return _failed(group, error)
            except NoReply as error:
                _failed([queued for queued in group if not queued.message.repeatable], error)
                return [queued for queued in group if queued.message.repeatable]
            except PumiceError:
                return group
            else:
                for queued, ack in zip(group, acks, strict=True):
                    queued.settle(ack)
                return ()
            await self._clock.sleep(RETRY_S)

    async def _alone(self, queued: _Queued) -> None:
        """Publish one message; retry while a publish of another process is being replicated."""
        give_up_at = self._clock.monotonic() + GIVE_UP_S
        while True:
            left_s = max(0.0, queued.deadline - self._clock.monotonic())
            try:
                queued.settle(await (await self._sender.send(queued.message, timeout_s=left_s)))
            except SequenceInFlight as error:
                if self._clock.monotonic() < give_up_at:
                    await self._clock.sleep(RETRY_S)
                    continue
                queued.fail(error)
            except PumiceError as error:
                queued.fail(error)
            return


def _expected(message: Outgoing) -> tuple[str | None, str | None]:
    """Return the subject and the last sequence that a publish expects."""
    headers = message.headers or {}
    return headers.get(LAST_OF), headers.get(LAST)


def _failed(group: Sequence[_Queued], error: PumiceError) -> Sequence[_Queued]:
    for queued in group:
        queued.fail(error)
    return ()


class FencedStreams:
    """The fenced publishes of this process to all streams; a part of its bus."""

    def __init__(self, make: Callable[[str], FencedPublishes]) -> None:
        """`make` makes the publishes of one stream."""
        self._make = make
        self._streams: dict[str, FencedPublishes] = {}
        self._waiting: list[FencedPublishes] = []
        self._added = asyncio.Event()

    def of(self, stream: str) -> FencedPublishes:
        """Return the fenced publishes to `stream`."""
        if stream not in self._streams:
            self._streams[stream] = made = self._make(stream)
            self._waiting.append(made)
            self._added.set()
        return self._streams[stream]

    async def run(self) -> None:
        """Publish until cancelled."""
        async with TaskGroup() as tasks:
            while True:
                while self._waiting:
                    tasks.create_task(self._waiting.pop().run(), name="bus-fenced-stream")
                self._added.clear()
                await self._added.wait()
