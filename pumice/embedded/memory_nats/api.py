"""JetStream's API on streams in memory: one request, one JSON reply, with the server's codes.

Synchronous: `server` brings the requests and sends what is returned. Only what the adapter
(`shared.bus.api`, `shared.bus.feed`) or a test requests is here; any other request is answered
as a server without that operation would: with no reply.
"""

import base64
import datetime as dt
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from pumice.embedded.memory_nats.consumer import Consumer
from pumice.embedded.memory_nats.stream import NANO, MemoryStream, PublishRefusal, StoredMessage
from pumice.embedded.memory_nats.subjects import Filter, overlap

API: Final = "$JS.API."
DIRECT: Final = "DIRECT.GET."
MOST_LASTS: Final = 1024
"""The server sends no more messages in reply to one request."""

_NO_TIME: Final = "0001-01-01T00:00:00Z"
"""The time of the first message where there is none."""
_NO_STREAM: Final = PublishRefusal(404, 10059, "stream not found")
_NO_CONSUMER: Final = PublishRefusal(404, 10014, "consumer not found")
_NO_MESSAGE: Final = PublishRefusal(404, 10037, "no message found")
_NAME_TAKEN: Final = PublishRefusal(
    400, 10058, "stream name already in use with a different configuration"
)
_OVERLAP: Final = PublishRefusal(400, 10100, "filtered consumer not unique on workqueue stream")
_MANY_CONSUMERS: Final = PublishRefusal(400, 10026, "maximum consumers limit reached")
_FIXED: Final = PublishRefusal(400, 10052, "stream configuration update can not change")

Answer = dict[str, Any] | PublishRefusal
Status = tuple[dict[str, str], bytes]
"""Headers and payload of one message of a reply that has several."""


class JetStream:
    """All streams and consumers. `now` is monotonic seconds, `wall` Unix seconds."""

    def __init__(self) -> None:
        self.streams: dict[str, MemoryStream] = {}
        self.consumers: dict[str, dict[str, Consumer]] = {}
        self._made = 0
        self._operations: dict[str, Callable[..., Answer]] = {
            "INFO": lambda *_, **__: {},
            "STREAM.INFO": self._stream_info,
            "STREAM.CREATE": self._stream_create,
            "STREAM.UPDATE": self._stream_update,
            "STREAM.DELETE": self._stream_delete,
            "STREAM.PURGE": self._stream_purge,
            "STREAM.MSG.GET": self._message,
            "CONSUMER.CREATE": self._consumer_create,
            "CONSUMER.INFO": self._consumer_info,
            "CONSUMER.DELETE": self._consumer_delete,
            "CONSUMER.NAMES": self._consumer_names,
        }

    def call(self, operation: str, payload: bytes, *, now: float, wall: float) -> bytes | None:
        """Return the reply to `$JS.API.<operation>`, None when there is no such operation."""
        tokens = operation.split(".")
        for length in (3, 2, 1):
            found = self._operations.get(".".join(tokens[:length]))
            if found is not None:
                body = msgspec.json.decode(payload) if payload else {}
                reply = found(body, *tokens[length:], now=now, wall=wall)
                return msgspec.json.encode(
                    failed(reply) if isinstance(reply, PublishRefusal) else reply
                )
        return None

    def direct(self, stream: str, payload: bytes, *, wall: float) -> Iterator[Status]:
        """Yield the messages of the reply to `DIRECT.GET`, including the end.

        It requests the last messages of subjects (`multi_last`), or the next ones of one subject.
        """
        found = self.streams.get(stream)
        if found is None:
            return
        found.expire(wall)
        request = msgspec.json.decode(payload)
        left = 0
        if "multi_last" in request:
            messages = found.lasts(Filter(request["multi_last"]))
        else:
            messages, left = _next_batch(found, request)
        if not messages:
            yield {"Status": "404", "Description": "No Results"}, b""
            return
        if len(messages) > MOST_LASTS:
            yield {"Status": "413", "Description": "Too Many Results"}, b""
            return
        for stored in messages:
            yield (
                {
                    **(stored.headers or {}),
                    "Nats-Stream": stream,
                    "Nats-Subject": stored.subject,
                    "Nats-Sequence": str(stored.sequence),
                    "Nats-Time-Stamp": stamp(stored.time),
                },
                stored.payload,
            )
        yield {"Status": "204", "Description": "EOB", "Nats-Num-Pending": str(left)}, b""

    def consumers_of(self, stream: str) -> list[Consumer]:
        """Return the consumers of a stream."""
        return list(self.consumers.get(stream, {}).values())

    def taking(self, subject: str) -> MemoryStream | None:
        """Return the stream that a subject belongs to."""
        return next((s for s in self.streams.values() if s.takes(subject)), None)

    def restart(self, *, now: float) -> None:
        """Lose what is in memory and keep what is in files, as a killed server does."""
        for name, stream in list(self.streams.items()):
            kept = self.consumers[name]
            for consumer in list(kept.values()):
                if consumer.durable and stream.is_file:
                    consumer.restart(now)
                else:
                    del kept[consumer.name]
            stream.restart()
            if not stream.is_file:
                self._drop(name)

    def _drop(self, name: str) -> None:
        del self.streams[name]
        for consumer in self.consumers.pop(name).values():
            consumer.end()

    def _stream_info(self, _: object, name: str, *, wall: float, **__: float) -> Answer:
        stream = self.streams.get(name)
        if stream is None:
            return _NO_STREAM
        stream.expire(wall)
        return described(stream)

    def _stream_create(
        self, body: dict[str, Any], name: str, *, wall: float, **__: float
    ) -> Answer:
        found = self.streams.get(name)
        if found is not None:
            return described(found) if found.config == body else _NAME_TAKEN
        self._made += 1
        created = f"{stamp(wall).removesuffix('Z')}{self._made % 1000:03d}Z"
        self.streams[name] = MemoryStream(body, created=created)
        self.consumers[name] = {}
        return described(self.streams[name])

    def _stream_update(self, body: dict[str, Any], name: str, **__: float) -> Answer:
        stream = self.streams.get(name)
        if stream is None:
            return _NO_STREAM
        if any(body[key] != stream.config[key] for key in ("storage", "retention")):
            return _FIXED
        stream.config = body
        return described(stream)

    def _stream_delete(self, _: object, name: str, **__: float) -> Answer:
        if name not in self.streams:
            return _NO_STREAM
        self._drop(name)
        return {"success": True}

    def _stream_purge(self, body: dict[str, Any], name: str, **__: float) -> Answer:
        stream = self.streams.get(name)
        if stream is None:
            return _NO_STREAM
        gone = stream.purge(body.get("filter", ">"), before=body.get("seq", 0))
        return {"success": True, "purged": gone}

    def _message(self, body: dict[str, Any], name: str, *, wall: float, **__: float) -> Answer:
        stream = self.streams.get(name)
        if stream is None:
            return _NO_STREAM
        stream.expire(wall)
        if "last_by_subj" in body:
            stored = stream.last_of(body["last_by_subj"])
        elif "next_by_subj" in body:
            stored = stream.next_from(body["seq"], Filter([body["next_by_subj"]]))
        else:
            stored = stream.get(body["seq"])
        return {"message": _shown(stored)} if stored is not None else _NO_MESSAGE

    def _consumer_create(
        self, body: dict[str, Any], name: str, consumer: str, *, now: float, **_: float
    ) -> Answer:
        stream = self.streams.get(name)
        if stream is None:
            return _NO_STREAM
        mine = self.consumers[name]
        config = body["config"]
        if "opt_start_time" in config:
            began = msgspec.convert(config["opt_start_time"], dt.datetime).timestamp()
            config = {**config, "opt_start_time": began}
        if consumer in mine:
            mine[consumer].config = config
            return _about(mine[consumer])
        if stream.is_queue and any(_overlapping(other, config) for other in mine.values()):
            return _OVERLAP
        self._forget_unused(mine, now)
        if 0 < stream.config.get("max_consumers", -1) <= len(mine):
            return _MANY_CONSUMERS
        made = Consumer(stream, consumer, config)
        made.used_at = now
        mine[consumer] = made
        return _about(made)

    def _forget_unused(self, consumers: dict[str, Consumer], now: float) -> None:
        for consumer in list(consumers.values()):
            threshold_s = consumer.config.get("inactive_threshold", 0) / NANO
            if threshold_s and consumer.idle and consumer.used_at + threshold_s < now:
                del consumers[consumer.name]

    def _consumer_info(self, _: object, name: str, consumer: str, **__: float) -> Answer:
        found = self.consumers.get(name, {}).get(consumer)
        return _about(found) if found is not None else _NO_CONSUMER

    def _consumer_delete(self, _: object, name: str, consumer: str, **__: float) -> Answer:
        found = self.consumers.get(name, {}).pop(consumer, None)
        if found is None:
            return _NO_CONSUMER
        found.end()
        return {"success": True}

    def _consumer_names(self, _: object, name: str, **__: float) -> Answer:
        return {"consumers": sorted(self.consumers.get(name, {}))}


def failed(refusal: Answer) -> dict[str, Any]:
    """Return a refusal in the form of the API."""
    assert isinstance(refusal, PublishRefusal)
    return {
        "error": {
            "code": refusal.code,
            "err_code": refusal.err_code,
            "description": refusal.description,
        }
    }


def described(stream: MemoryStream) -> dict[str, Any]:
    """Return the reply that describes a stream."""
    first = stream.get(stream.first_seq)
    copies = {"cluster": stream.cluster} if stream.cluster is not None else {}
    return {
        **copies,
        "created": stream.created,
        "config": stream.config,
        "state": {
            "messages": len(stream),
            "bytes": stream.bytes,
            "first_seq": stream.first_seq,
            "first_ts": stamp(first.time) if first is not None else _NO_TIME,
            "last_seq": stream.last_seq,
        },
    }


def stamp(unix_s: float) -> str:
    """Return an RFC 3339 stamp in UTC with six digits behind the second."""
    when = dt.datetime.fromtimestamp(unix_s, tz=dt.UTC)
    return when.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _next_batch(stream: MemoryStream, request: dict[str, Any]) -> tuple[list[StoredMessage], int]:
    """Return the next messages of a subject, and 0 if there are none behind them, else 1.

    nats-server also counts the messages behind them, which no caller here uses.
    """
    start = request.get("seq", 0)
    if "start_time" in request:
        began = msgspec.convert(request["start_time"], dt.datetime).timestamp()
        start = stream.first_since(began)
    filter_ = Filter([request["next_by_subj"]])
    found: list[StoredMessage] = []
    room = request["max_bytes"]
    for stored in stream.messages(start):
        if not filter_.takes(stored.subject):
            continue
        room -= stored.size
        if len(found) == request["batch"] or (found and room < 0):
            return found, 1
        found.append(stored)
    return found, 0


def _about(consumer: Consumer) -> dict[str, Any]:
    return {
        "name": consumer.name,
        "num_pending": consumer.pending(),
        "num_ack_pending": consumer.in_progress,
        "num_redelivered": consumer.redelivered,
        "config": consumer.config,
    }


def _overlapping(consumer: Consumer, config: dict[str, Any]) -> bool:
    return any(
        overlap(one, other)
        for one in consumer.filter.patterns
        for other in config.get("filter_subjects", ())
    )


def _shown(stored: StoredMessage) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "subject": stored.subject,
        "seq": stored.sequence,
        "time": stamp(stored.time),
        "data": base64.b64encode(stored.payload).decode(),
    }
    if stored.headers:
        lines = "".join(f"{name}: {value}\r\n" for name, value in stored.headers.items())
        shown["hdrs"] = base64.b64encode(f"NATS/1.0\r\n{lines}\r\n".encode()).decode()
    return shown
