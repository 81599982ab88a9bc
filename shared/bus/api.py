"""JetStream's API: one request and one JSON response per call.

Errors of the server become the kinds of `shared.bus.errors` here and nowhere else. `ApiError`
keeps the server's code for the few callers that must tell one refusal from another.
"""

import base64
import datetime as dt
from typing import Any, Final, TypeVar

import msgspec

from shared.bus.errors import (
    LimitReached,
    SequenceInFlight,
    StreamFull,
    StreamMissing,
    WrongSequence,
)
from shared.bus.replies import Outgoing, Replies, Reply
from shared.bus.values import Message, StreamInfo
from shared.runtime.errors import PumiceError, Rejected, Retryable

API_S: Final = 2.0
"""Time for one answer of the API."""
BATCH_S: Final = 5.0
"""Time for an answer of many messages."""

WRONG_LAST_SEQUENCE: Final = 10071
SEQUENCE_IN_FLIGHT: Final = 10164
ID_IN_FLIGHT: Final = 10158
"""The same message is still being replicated: it may be stored later."""
ATOMIC_DISABLED: Final = 10174
STORE_FAILED: Final = 10077
STREAM_NOT_FOUND: Final = 10059
CONSUMER_NOT_FOUND: Final = 10014
NAME_IN_USE: Final = 10058
BAD_UPDATE: Final = 10052
NO_MESSAGE: Final = 10037
LIMITS: Final = frozenset({10002, 10005, 10023, 10026, 10027, 10028, 10047, 10120})
"""Errors for lack of resources: account, peers, server, consumers, streams, memory, disk, and no
limits. Several have the HTTP code of a bad request.
"""
SERVER_ERROR: Final = 500
"""Codes from here on are failures of the server, those below of the request."""


class ApiError(msgspec.Struct, frozen=True):
    """A refusal of the server."""

    code: int = 0
    err_code: int = 0
    description: str = ""


class _Failed(msgspec.Struct, frozen=True):
    error: ApiError | None = None


class _State(msgspec.Struct, frozen=True):
    messages: int = 0
    bytes: int = 0
    first_seq: int = 0
    last_seq: int = 0


class StreamReply(msgspec.Struct, frozen=True):
    """Answer about a stream."""

    created: str
    state: _State
    config: dict[str, Any]

    @property
    def replicas(self) -> int:
        """Return the configured number of replicas."""
        return int(self.config.get("num_replicas", 1))

    @property
    def info(self) -> StreamInfo:
        """Return the part that callers of the bus see."""
        return StreamInfo(
            created=self.created,
            first_seq=self.state.first_seq,
            last_seq=self.state.last_seq,
            messages=self.state.messages,
            bytes=self.state.bytes,
        )


class ConsumerReply(msgspec.Struct, frozen=True):
    """Answer about a consumer."""

    name: str
    num_pending: int = 0
    num_ack_pending: int = 0
    num_redelivered: int = 0
    config: dict[str, Any] = {}


class _Stored(msgspec.Struct, frozen=True):
    subject: str
    seq: int
    time: str
    data: str = ""
    hdrs: str = ""


class _Got(msgspec.Struct, frozen=True):
    message: _Stored


class _Purged(msgspec.Struct, frozen=True):
    purged: int = 0


_T = TypeVar("_T")


def failure(error: ApiError, *, about: str) -> PumiceError:
    """Return the exception for a refusal: by err_code where we know it, else by the HTTP code."""
    text = f"{about}: {error.description}"
    if error.err_code == WRONG_LAST_SEQUENCE:
        return WrongSequence(text)
    if error.err_code == SEQUENCE_IN_FLIGHT:
        return SequenceInFlight(text)
    if error.err_code == STORE_FAILED and "maximum" in error.description:
        return StreamFull(text)
    if error.err_code in LIMITS:
        return LimitReached(text)
    if error.err_code in (STREAM_NOT_FOUND, CONSUMER_NOT_FOUND):
        return StreamMissing(text)
    if error.err_code == BAD_UPDATE:
        return Rejected(text)
    if error.code >= SERVER_ERROR or error.err_code == ID_IN_FLIGHT:
        return Retryable(text)
    return Rejected(text)


class Api:
    """Calls of the JetStream API over the owned inbox."""

    def __init__(self, replies: Replies) -> None:
        self._replies = replies

    async def call(
        self,
        operation: str,
        body: object,
        answer: type[_T],
        *,
        about: str,
        timeout_s: float = API_S,
    ) -> _T | ApiError:
        """Call `$JS.API.<operation>`; a refusal is a value, since some are expected.

        Raises NoReply, StreamMissing (JetStream is off) or NotPermitted.
        """
        payload = msgspec.json.encode(body) if body is not None else b""
        message = Outgoing(f"$JS.API.{operation}", payload)
        future = await self._replies.request(message, timeout_s=timeout_s)
        reply = await future
        failed = msgspec.json.decode(reply.payload, type=_Failed)
        if failed.error is not None:
            return failed.error
        try:
            return msgspec.json.decode(reply.payload, type=answer)
        except ValueError as exc:
            raise Retryable(f"{about}: answer cannot be read: {exc}") from exc

    async def _must(self, operation: str, body: object, answer: type[_T], *, about: str) -> _T:
        result = await self.call(operation, body, answer, about=about)
        if isinstance(result, ApiError):
            raise failure(result, about=about)
        return result

    async def jetstream(self) -> None:
        """Raise StreamMissing or NoReply unless JetStream works."""
        await self._must("INFO", None, dict[str, Any], about="JetStream")

    async def stream(self, name: str) -> StreamReply:
        """Return a stream's configuration and state."""
        return await self._must(f"STREAM.INFO.{name}", None, StreamReply, about=f"stream {name}")

    async def make_consumer(self, stream: str, name: str, config: dict[str, Any]) -> ConsumerReply:
        """Create a consumer, or update it to `config`."""
        body = {"stream_name": stream, "config": {**config, "name": name}, "action": ""}
        return await self._must(
            f"CONSUMER.CREATE.{stream}.{name}",
            body,
            ConsumerReply,
            about=f"consumer {name} of {stream}",
        )

    async def consumer(self, stream: str, name: str) -> ConsumerReply:
        """Return a consumer's state."""
        return await self._must(
            f"CONSUMER.INFO.{stream}.{name}",
            None,
            ConsumerReply,
            about=f"consumer {name} of {stream}",
        )

    async def message(self, stream: str, **selector: str | int) -> Message | None:
        """Return the message that `selector` names (seq, last_by_subj, next_by_subj), or None."""
        about = f"message of {stream}"
        got = await self.call(f"STREAM.MSG.GET.{stream}", selector, _Got, about=about)
        if isinstance(got, ApiError):
            if got.err_code == NO_MESSAGE:
                return None
            raise failure(got, about=about)
        stored = got.message
        return Message(
            subject=stored.subject,
            sequence=stored.seq,
            payload=base64.b64decode(stored.data),
            time=_unix(stored.time),
            headers=_headers(base64.b64decode(stored.hdrs)) if stored.hdrs else None,
        )

    async def last_messages(self, stream: str, subjects: list[str]) -> list[Message]:
        """Return the last message of each matching subject, taken at one moment.

        Raises Retryable.
        """
        subject = f"$JS.API.DIRECT.GET.{stream}"
        body = msgspec.json.encode({"multi_last": subjects})
        future = await self._replies.request(Outgoing(subject, body), timeout_s=API_S, many=True)
        reply = await future
        status = (reply.headers or {}).get("Status", "")
        if status == "404":
            return []
        if status != "204":
            raise Retryable(f"last messages of {stream}: {_described(reply)}")
        return [_direct(part) for part in reply.parts]

    async def next_messages(
        self, stream: str, subject: str, where: dict[str, Any], *, batch: int, max_bytes: int
    ) -> tuple[list[Message], bool]:
        """Return the next messages of a subject, and whether they are the last ones.

        `where` is `seq` or `start_time` of the first one that may come. Raises Retryable.
        """
        body = {"next_by_subj": subject, "batch": batch, "max_bytes": max_bytes, **where}
        message = Outgoing(f"$JS.API.DIRECT.GET.{stream}", msgspec.json.encode(body))
        future = await self._replies.request(message, timeout_s=BATCH_S, many=True)
        reply = await future
        headers = reply.headers or {}
        status = headers.get("Status", "")
        if status == "404":
            return [], True
        if status != "204":
            raise Retryable(f"next messages of {stream}: {_described(reply)}")
        return [_direct(part) for part in reply.parts], headers.get("Nats-Num-Pending") == "0"

    async def purge(self, stream: str, subject: str, *, before_seq: int) -> int:
        """Remove the messages of a subject, those below `before_seq` if it is not 0."""
        body: dict[str, Any] = {"filter": subject}
        if before_seq:
            body["seq"] = before_seq
        purged = await self._must(
            f"STREAM.PURGE.{stream}", body, _Purged, about=f"purge of {subject}"
        )
        return purged.purged


def _described(reply: Reply) -> str:
    headers = reply.headers or {}
    return f"{headers.get('Status', '')} {headers.get('Description', '')}".strip()


def _direct(reply: Reply) -> Message:
    headers = dict(reply.headers or {})
    headers.pop("Nats-Num-Pending", None)
    headers.pop("Nats-Last-Sequence", None)
    headers.pop("Nats-Stream", None)
    return Message(
        subject=headers.pop("Nats-Subject"),
        sequence=int(headers.pop("Nats-Sequence")),
        time=_unix(headers.pop("Nats-Time-Stamp")),
        payload=reply.payload,
        headers=headers or None,
    )


def _headers(raw: bytes) -> dict[str, str]:
    pairs = (line.partition(b":") for line in raw.split(b"\r\n")[1:] if line)
    return {name.decode(): value.strip().decode("utf-8", "replace") for name, _, value in pairs}


def _unix(time: str) -> float:
    """Return the Unix time of an RFC 3339 stamp with nanoseconds."""
    return msgspec.convert(time, dt.datetime).timestamp()
