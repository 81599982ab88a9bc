"""A server that is cut off from the two others of its cluster, as its clients see it.

It does not know for a while. Where it led, it goes on as leader: it tells the state of a stream as
it was, takes publishes and never acknowledges them. It reads from its copy, which is old. Consumers
that live on it send heartbeats and nothing else. After ten to twenty seconds it says of most
questions that JetStream is not available; clients that ask nothing are not told.
"""

import copy
import random
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from pumice.embedded.memory_nats.api import DIRECT, JetStream, failed
from pumice.embedded.memory_nats.consumer import PullRequest
from pumice.embedded.memory_nats.link import Frame
from pumice.embedded.memory_nats.server import ServerConnection
from pumice.embedded.memory_nats.stream import NANO, MemoryStream, PublishRefusal

NOTICES_AFTER_S: Final = 10.0
"""After this long without a leader it says so."""
LEADS_FOR_S: Final = 19.0
"""After this long without the others a leader gives up."""
UNAVAILABLE: Final = PublishRefusal(503, 10008, "JetStream system temporarily unavailable")
_NO_RESPONDERS: Final = {"Status": "503"}
_NEXT: Final = "CONSUMER.MSG.NEXT."


class CutOffServer:
    """One server from the moment at which it was cut off."""

    def __init__(
        self,
        jetstream: JetStream,
        *,
        name: str,
        led: Iterable[str],
        leads_all: bool,
        silently: bool,
        now: float,
        rng: random.Random,
    ) -> None:
        """`led` are the streams that it leads; with `leads_all` it leads the cluster itself."""
        self.led: Final = frozenset(led)
        self.held: list[tuple[str, ServerConnection, Frame]] = []
        """What was published to streams that it led, in order."""
        self._old = JetStream()
        self._old.streams = {key: _copy(stream) for key, stream in jetstream.streams.items()}
        self._old.consumers = {key: {} for key in jetstream.streams}
        self._name = name
        self._leads_all = leads_all
        self._silently = silently
        self._since = now
        self._rng = rng
        self._readers: dict[tuple[str, str], list[PullRequest]] = {}

    def keep(self, stream: str, consumer: str, waiting: Iterable[PullRequest]) -> None:
        """Have a consumer of its own, whose readers wait."""
        self._readers[stream, consumer] = list(waiting)

    def beat(self) -> None:
        """Send a heartbeat to each reader."""
        for waiting in self._readers.values():
            waiting[:] = [one for one in waiting if one.send_status("100", "Idle Heartbeat")]

    def end(self) -> None:
        """Tell the readers that their consumers are gone: the others have made do without them."""
        for waiting in self._readers.values():
            for one in waiting:
                one.send_status("409", "Consumer Deleted")

    def refuse(self, connection: ServerConnection, frame: Frame) -> None:
        """Answer what is for a server that it does not know any more."""
        if frame.reply and not self._silently:
            connection.deliver(frame.reply, frame.reply, b"", headers=_NO_RESPONDERS)

    def ask(
        self, connection: ServerConnection, frame: Frame, operation: str, *, now: float, wall: float
    ) -> None:
        """Answer a question, or let it be unanswered."""
        if operation.startswith(_NEXT):
            self._next(connection, frame, operation.removeprefix(_NEXT))
        elif operation.startswith(DIRECT):
            if not self._silently or self._rng.random() < 0.5:
                self.read(connection, frame, operation, wall=wall)
        elif (answer := self._answer(operation, frame, now=now, wall=wall)) is not None:
            connection.deliver(frame.reply, frame.reply, answer)

    def read(
        self, connection: ServerConnection, frame: Frame, operation: str, *, wall: float
    ) -> bool:
        """Answer from the old copy; tell whether it has the stream."""
        stream = operation.removeprefix(DIRECT)
        for headers, payload in self._old.direct(stream, frame.payload, wall=wall):
            connection.deliver(frame.reply, frame.reply, payload, headers=headers)
        return stream in self._old.streams

    def _answer(self, operation: str, frame: Frame, *, now: float, wall: float) -> bytes | None:
        age = now - self._since
        stream = next((token for token in operation.split(".") if token in self._old.streams), "")
        is_info = operation.startswith("STREAM.INFO.")
        leads = stream in self.led if stream else self._leads_all
        reads = is_info or operation == "INFO" or operation.startswith("STREAM.MSG.GET.")
        if reads and leads and age < LEADS_FOR_S:
            return self._told(stream, operation, frame, age=age, leader=self._name, wall=wall)
        if age < (LEADS_FOR_S if self._leads_all else NOTICES_AFTER_S):
            return None
        if is_info and stream:
            return self._told(stream, operation, frame, age=age, leader="", wall=wall)
        return msgspec.json.encode(failed(UNAVAILABLE))

    def _told(
        self, stream: str, operation: str, frame: Frame, *, age: float, leader: str, wall: float
    ) -> bytes | None:
        if stream:
            copies = [{"name": f"other-{n}", "active": int(age * NANO)} for n in range(2)]
            self._old.streams[stream].cluster = {"leader": leader, "replicas": copies}
        return self._old.call(operation, frame.payload, now=self._since, wall=wall)

    def _next(self, connection: ServerConnection, frame: Frame, place: str) -> None:
        """Take a reader's request for messages of a consumer that lives here."""
        stream, consumer = place.split(".")
        waiting = self._readers.get((stream, consumer))
        if waiting is None:
            return
        body: dict[str, Any] = msgspec.json.decode(frame.payload)
        request = PullRequest(
            inbox=frame.reply,
            left=body["batch"],
            no_wait=body.get("no_wait", False),
            expires_at=0.0,
            heartbeat_s=1.0,
            last_request_at=0.0,
            deliver=connection.deliver,
        )
        if request.no_wait:
            request.send_status("404", "No Messages")
        else:
            waiting.append(request)


def _copy(stream: MemoryStream) -> MemoryStream:
    """Return a stream as it is at this moment; messages do not change and are shared."""
    return copy.deepcopy(stream, {id(m): m for m in stream.messages()})
