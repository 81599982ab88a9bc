"""The envelope: CloudEvents 1.0 in structured JSON, and the NATS subject of each event."""

import datetime as dt
from typing import Final

import msgspec
from typing_extensions import override

from pumice.events.errors import EventsError
from pumice.events.types import CATALOGUE, Event

TYPE_PREFIX: Final = "io.pumice."
"""Type of a CloudEvent: this prefix and the event's topic, for example `io.pumice.job.phase`."""

NO_NAMESPACE: Final = "_"
_RESERVED: Final = frozenset(".*>% \t\r\n")
_BY_TYPE: Final = {TYPE_PREFIX + each.topic: each for each in CATALOGUE}


class Unknown(Event, frozen=True, kw_only=True):
    """An event of a type that this version of the client does not know, or that breaks its type."""

    raw: bytes
    """The event's `data`, or the whole payload when it is no CloudEvent."""
    problem: str = ""
    """Why it cannot be read; empty if only its type is not known."""
    about: str
    """The CloudEvent's `subject`."""

    @property
    @override
    def key(self) -> str:
        """Return the key of the object, which is the CloudEvent's `subject`."""
        return self.about


class CloudEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event with its envelope."""

    id: str
    """Unique within `source`; the same again is the same event."""
    source: str
    """The process that published it: `/pumice/<cluster>/<service>/<instance>`."""
    type: str
    subject: str
    """Key of the object."""
    time: dt.datetime
    """When it happened, in UTC."""
    data: Event
    """One of the catalogue, or `Unknown`."""


class _Wire(msgspec.Struct, frozen=True, kw_only=True):
    specversion: str
    id: str
    source: str
    type: str
    subject: str = ""
    time: dt.datetime
    datacontenttype: str = "application/json"
    data: msgspec.Raw


_encoder: Final = msgspec.json.Encoder()
_wire: Final = msgspec.json.Decoder(_Wire)
_data: Final = {name: msgspec.json.Decoder(each) for name, each in _BY_TYPE.items()}


def source(*, cluster: str, service: str, instance: str) -> str:
    """Return the `source` of the events of one process."""
    return f"/pumice/{cluster}/{service}/{instance}"


def type_of(event: Event | type[Event]) -> str:
    """Return the CloudEvent type of an event or of its class."""
    return TYPE_PREFIX + event.topic


def subject(event: Event, *, cluster: str) -> str:
    """Return the NATS subject of an event: its type and the namespace of its object."""
    namespace, slash, _ = event.key.rpartition("/")
    where = escape(namespace if slash else "")
    return f"pumice.{escape(cluster)}.events.{event.topic}.{where}"


def encode(event: Event, *, id: str, time: float, source: str) -> bytes:  # noqa: A002
    """Return the payload of an event that happened at `time` (Unix seconds).

    `id` must be the same when the same event is published again; it is also a good message id.
    """
    return _encoder.encode(
        _Wire(
            specversion="1.0",
            id=id,
            source=source,
            type=type_of(event),
            subject=event.key,
            time=dt.datetime.fromtimestamp(time, tz=dt.UTC),
            data=msgspec.Raw(_encoder.encode(event)),
        )
    )


def decode(payload: bytes) -> CloudEvent:
    """Read a payload. Raises EventsError when it is no CloudEvent or breaks its type's schema."""
    try:
        wire = _wire.decode(payload)
        decoder = _data.get(wire.type)
        data = (
            Unknown(raw=bytes(wire.data), about=wire.subject)
            if decoder is None
            else decoder.decode(wire.data)
        )
    except msgspec.DecodeError as exc:
        raise EventsError(f"not a CloudEvent of the catalogue: {exc}") from exc
    return CloudEvent(
        id=wire.id,
        source=wire.source,
        type=wire.type,
        subject=wire.subject,
        time=wire.time,
        data=data,
    )


def decode_any(payload: bytes) -> CloudEvent:
    """Read a payload as `decode` does; an unreadable one becomes `Unknown` with its problem."""
    try:
        return decode(payload)
    except EventsError as exc:
        return CloudEvent(
            id="",
            source="",
            type="",
            subject="",
            time=dt.datetime.fromtimestamp(0, tz=dt.UTC),
            data=Unknown(raw=payload, about="", problem=str(exc)),
        )


def escape(name: str) -> str:
    """Return a name as one token of a NATS subject (a dot becomes `%2E`)."""
    if name == "":
        return NO_NAMESPACE
    return "".join(f"%{ord(c):02X}" if c in _RESERVED else c for c in name)
