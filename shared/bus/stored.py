"""Reading what a stream holds without a consumer: batches by direct get.

nats-server limits the consumers of a stream, and on EVENTS subscribers create them. A service reads
EVENTS here, so that no subscriber can keep it from reading (ADR 45). Each call of `new` reads what
was stored since the last one. Where a stream has replicas, the server that replies may be a moment
behind: of several subjects that are read together, a message may then be missed.
"""

from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from typing import Any, Final, TypeVar

from shared.api.time import format_micro
from shared.bus.api import Api
from shared.bus.values import FromSequence, FromTime, Message, Reset
from shared.runtime.clock import Clock
from shared.runtime.errors import Retryable
from shared.runtime.logs import Logger

BATCH: Final = 512
BATCH_BYTES: Final = 1024 * 1024
RETRY_S: Final = 0.2

_T = TypeVar("_T")


class StoredMessages:
    """Reads some subjects of a stream for one reader, each message once, in order."""

    def __init__(
        self,
        stream: str,
        subjects: Sequence[str],
        *,
        start: FromSequence | FromTime,
        api: Api,
        clock: Clock,
        log: Logger,
    ) -> None:
        self._stream = stream
        self._subjects = tuple(subjects)
        self._start = start
        self._next = start
        self._api = api
        self._clock = clock
        self._log = log
        self._created = ""
        self._last_seq = 0
        """The sequence of the last message that was yielded."""

    async def new(self) -> AsyncGenerator[list[Message] | Reset, None]:
        """Yield the messages that were stored since the last call, in order; then end.

        `Reset`: the stream was created anew, and its messages follow from the start. Waits for a
        server that cannot be reached. Leave it early under `contextlib.aclosing`: the next call
        continues behind the last batch.
        """
        info = (await self._retried(lambda: self._api.stream(self._stream))).info
        if self._created and (info.created != self._created or info.last_seq < self._last_seq):
            self._next, self._last_seq = self._start, 0
            yield Reset(f"stream was made anew (created {info.created}, before {self._created})")
        self._created = info.created
        async with aclosing(self._batches(info.last_seq)) as batches:
            async for messages in batches:
                self._last_seq = messages[-1].sequence
                self._next = FromSequence(self._last_seq + 1)
                yield messages

    async def _batches(self, last_seq: int) -> AsyncGenerator[list[Message], None]:
        """Yield the messages of all subjects in the order of the stream, at least to `last_seq`."""
        if self._last_seq >= last_seq:
            return
        places: dict[str, FromSequence | FromTime] = dict.fromkeys(self._subjects, self._next)
        ahead: dict[str, deque[Message]] = {subject: deque() for subject in self._subjects}
        unfinished = set(self._subjects)
        while unfinished:
            for subject in sorted(unfinished):
                if ahead[subject]:
                    continue
                messages, is_end = await self._fetch(subject, places[subject])
                if messages:
                    places[subject] = FromSequence(messages[-1].sequence + 1)
                    ahead[subject].extend(messages)
                if is_end or messages[-1].sequence >= last_seq:
                    unfinished.discard(subject)
            # The next batch of one subject may be older than messages that another one has read.
            horizon = min((ahead[subject][-1].sequence for subject in unfinished), default=None)
            if ready := _taken(ahead.values(), horizon):
                yield ready

    async def _fetch(
        self, subject: str, place: FromSequence | FromTime
    ) -> tuple[list[Message], bool]:
        """Return the next messages of a subject, and whether they are the last ones."""
        where: dict[str, Any]
        match place:
            case FromSequence(sequence):
                where = {"seq": max(sequence, 1)}
            case FromTime(unix_s):
                where = {"start_time": format_micro(unix_s)}
        return await self._retried(
            lambda: self._api.next_messages(
                self._stream, subject, where, batch=BATCH, max_bytes=BATCH_BYTES
            )
        )

    async def _retried(self, request: Callable[[], Awaitable[_T]]) -> _T:
        while True:
            try:
                return await request()
            except Retryable as error:
                self._log.debug("reading_delayed", stream=self._stream, reason=str(error))
                await self._clock.sleep(RETRY_S)


def _taken(queues: Iterable[deque[Message]], horizon: int | None) -> list[Message]:
    """Take the messages up to the sequence `horizon` (None: all), and return them in order."""
    taken = []
    for queue in queues:
        while queue and (horizon is None or queue[0].sequence <= horizon):
            taken.append(queue.popleft())
    return sorted(taken, key=lambda message: message.sequence)
