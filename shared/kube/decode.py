"""Decodes lists and watches into views: whole pages at once, or object by object where that fails.

Usually one call into msgspec decodes a page or a block of lines into views
(`benchmarks/kube_decode.py` has the figures). If that call fails, each object is decoded by itself,
so that an object that cannot be read is reported by name (`Malformed`) and hides no other. That
includes objects that are nested too deeply and bytes that are no JSON or no text; their ends are
found by brackets alone (`shared.api.nesting.extract`).
"""

import enum
import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from shared.api import kinds
from shared.api.base import View
from shared.api.kinds import Kind
from shared.api.meta import ObjectMeta
from shared.api.nesting import TOO_DEEP, cut, elements, extract, is_cut
from shared.kube.errors import Status, Unreachable

INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"


class ChangeOp(enum.Enum):
    """Kind of change of an object; ADDED may also be news of an old one."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class Changed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One object changed; `object` is its view, the last one for a deletion."""

    op: ChangeOp
    object: Any


class Malformed(msgspec.Struct, frozen=True, kw_only=True):
    """An object that does not fit its view: it exists, but cannot be read."""

    metadata: ObjectMeta
    error: str
    """The fault, with the path of the field."""
    op: ChangeOp = ChangeOp.ADDED


class Bookmark(msgspec.Struct, frozen=True, kw_only=True):
    """All changes up to `resource_version` have been delivered."""

    resource_version: str
    initial_end: bool = False
    """This one ends the initial state of a streamed list."""


class WatchError(msgspec.Struct, frozen=True, kw_only=True):
    """The server ends the watch for a reason."""

    status: Status


WatchEvent = Changed | Malformed | Bookmark | WatchError


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a list."""

    items: Sequence[Any]
    malformed: Sequence[Malformed] = ()
    resource_version: str
    continue_token: str = ""


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """The whole state as of `resource_version`; what is not in it does not exist."""

    items: list[Any]
    malformed: list[Malformed]
    resource_version: str


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _RawPage(msgspec.Struct, frozen=True):
    """A page without its items."""

    metadata: _ListMeta
    items: None = None


class _RawEvent(msgspec.Struct, frozen=True):
    """An event without its object."""

    type: str
    object: None


class PartialObject(msgspec.Struct, frozen=True, gc=False):
    """Any object, of which only the metadata are read or kept."""

    metadata: ObjectMeta = ObjectMeta()


_raw_page: Final = msgspec.json.Decoder(_RawPage)
_raw_event: Final = msgspec.json.Decoder(_RawEvent)
_partial: Final = msgspec.json.Decoder(PartialObject)
_status: Final = msgspec.json.Decoder(Status)
_IDENTITY: Final = ("name", "namespace", "uid", "resourceVersion")
_OPS: Final = {op.value: op for op in ChangeOp}


def partial_object(body: bytes) -> PartialObject:
    """Return the metadata of an answer. Raises Unreachable when it is no object."""
    try:
        return _partial.decode(body)
    except ValueError as exc:
        raise Unreachable(f"the answer is no object: {exc}") from exc


class KindDecoder:
    """The decoders of one kind; build one and keep it."""

    def __init__(self, kind: Kind) -> None:
        view = kind.type or View
        self._kind = kind
        page = msgspec.defstruct("_Page", [("metadata", _ListMeta), ("items", list[view] | None)])  # type: ignore[valid-type]
        event = msgspec.defstruct("_Event", [("type", str), ("object", view)], gc=False)
        self._page: msgspec.json.Decoder[Any] = msgspec.json.Decoder(page)
        self._event: msgspec.json.Decoder[Any] = msgspec.json.Decoder(event)

    def page(self, body: bytes) -> Page:
        """Decode one answer to a list. Raises Unreachable when it is not a list at all."""
        try:
            page = self._page.decode(body)
        except RecursionError:
            return self._page_one_by_one(cut(body))
        except ValueError:  # bytes that are no text are none of msgspec's own errors
            return self._page_one_by_one(body)
        return Page(
            items=page.items or (),
            resource_version=page.metadata.resource_version,
            continue_token=page.metadata.continue_,
        )

    def events(self, lines: bytes) -> Sequence[WatchEvent]:
        """Decode whole lines of a watch. Raises Unreachable when they are not events."""
        try:
            decoded = self._event.decode_lines(lines)
            return [Changed(op=_OPS[event.type], object=event.object) for event in decoded]
        except (ValueError, KeyError, RecursionError):  # a bookmark, an error, an odd one
            return [self._event_alone(line) for line in lines.split(b"\n") if line.strip()]

    def _page_one_by_one(self, body: bytes) -> Page:
        listed, rest = extract(body, b"items")
        try:
            page = _raw_page.decode(rest)
        except ValueError as exc:
            raise Unreachable(f"the list of {self._kind.plural} is no list: {exc}") from exc
        items: list[Any] = []
        malformed: list[Malformed] = []
        for raw in elements(listed):
            match self._object(raw, ChangeOp.ADDED):
                case Malformed() as odd:
                    malformed.append(odd)
                case item:
                    items.append(item.object)
        return Page(
            items=items,
            malformed=malformed,
            resource_version=page.metadata.resource_version,
            continue_token=page.metadata.continue_,
        )

    def _event_alone(self, line: bytes) -> WatchEvent:
        try:
            obj, rest = extract(line, b"object")
            event = _raw_event.decode(rest)
            if event.type == "BOOKMARK":
                meta = _partial.decode(obj).metadata
                return Bookmark(
                    resource_version=meta.resource_version,
                    initial_end=meta.annotations.get(INITIAL_EVENTS_END) == "true",
                )
            if event.type == "ERROR":
                return WatchError(status=_status.decode(obj))
            return self._object(obj, _OPS[event.type])
        except RecursionError:
            return self._event_alone(cut(line))
        except (ValueError, KeyError) as exc:
            start = line[:120].decode(errors="replace")
            raise Unreachable(f"no watch event of {self._kind.plural}: {start!r} ({exc})") from exc

    def _object(self, raw: bytes, op: ChangeOp) -> Changed | Malformed:
        if is_cut(raw):
            return Malformed(metadata=readable_metadata(raw), error=TOO_DEEP, op=op)
        try:
            return Changed(op=op, object=kinds.decode(self._kind, raw))
        except RecursionError:
            return Malformed(metadata=readable_metadata(cut(raw)), error=TOO_DEEP, op=op)
        except ValueError as exc:
            return Malformed(metadata=readable_metadata(raw), error=str(exc), op=op)


def readable_metadata(raw: bytes) -> ObjectMeta:
    """Return the metadata of an object that does not decode, as far as they can be read."""
    with suppress(ValueError, RecursionError):
        return _partial.decode(raw).metadata
    alone = extract(raw, b"metadata")[0] or b"{}"
    with suppress(ValueError, RecursionError):
        return msgspec.json.decode(alone, type=ObjectMeta)
    try:
        loose = json.loads(alone.decode(errors="replace"), strict=False)
    except (ValueError, RecursionError):
        return ObjectMeta()
    identity = {
        name: value.encode(errors="replace").decode()
        for name in _IDENTITY
        if isinstance(value := loose.get(name), str)
    }
    return msgspec.convert(identity, ObjectMeta)
