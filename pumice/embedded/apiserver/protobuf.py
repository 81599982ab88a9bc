"""Reads bodies in Kubernetes' protobuf, which kubectl sends for built-in kinds, as JSON objects.

A body is `k8s`, a zero byte, and a `runtime.Unknown` around the object. The numbers of fields and
their names in JSON come from `protobuf.json`, which `tools.write_protobuf` makes from the Go types.
Go writes the zero values of all plain fields; those that it leaves out of JSON are left out here,
too. Answers are JSON, which every client accepts.
"""

import base64
import datetime as dt
import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

CONTENT_TYPE: Final = "application/vnd.kubernetes.protobuf"
MAGIC: Final = b"k8s\0"
TABLE: Final = Path(__file__).with_name("protobuf.json")
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT: Final = 70
_DEEPEST: Final = 100
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_TYPE_META, _RAW = 1, 2


class BadProtobufError(ValueError):
    """The bytes are not of the kind that they claim to be."""


class _Field(msgspec.Struct, frozen=True, array_like=True):
    name: str
    """In JSON."""
    type: str
    """A scalar, or the name of a message."""
    letters: str
    """i inlined, m map, o left out when zero, r repeated."""


class _Table(msgspec.Struct, frozen=True):
    kinds: Mapping[str, str]
    messages: Mapping[str, Mapping[int, _Field]]


@cache
def _table() -> _Table:
    return msgspec.json.decode(TABLE.read_bytes(), type=_Table)


def decode(body: bytes) -> dict[str, Any]:
    """Return the object of a body. Raises BadProtobufError."""
    if not body.startswith(MAGIC):
        raise BadProtobufError("it does not begin with k8s")
    head: dict[int, bytes] = dict(_parts(body[len(MAGIC) :]))
    kind = {
        number: value.decode(errors="replace")
        for number, value in _parts(head.get(_TYPE_META, b""))
    }
    api_version, name = kind.get(1, ""), kind.get(2, "")
    message = _table().kinds.get(f"{api_version} {name}")
    if name == "DeleteOptions":  # each group has its own name for the same thing
        message = _table().kinds["v1 DeleteOptions"]
    if message is None:
        raise BadProtobufError(f"{name} of {api_version} is not known in protobuf; send JSON")
    return {"apiVersion": api_version, "kind": name, **_message(head.get(_RAW, b""), message, 0)}


def _parts(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the members of a message that have bytes."""
    return ((number, value) for number, value in _wire(data) if isinstance(value, bytes))


def _message(data: bytes, name: str, depth: int) -> dict[str, Any]:
    if depth > _DEEPEST:
        raise BadProtobufError("it is nested too deeply")
    fields = _table().messages[name]
    found: dict[str, Any] = {}
    for number, value in _wire(data):
        field = fields.get(number)
        if field is None:
            continue
        if "m" in field.letters:
            key, item = _entry(value, field, depth)
            found.setdefault(field.name, {})[key] = item
        elif "r" in field.letters:
            found.setdefault(field.name, []).extend(_items(value, field, depth))
        elif "i" in field.letters:
            found |= _message(_bytes(value), field.type, depth + 1)
        else:
            item = _value(value, field.type, depth)
            if item is not None and not ("o" in field.letters and _is_zero(item)):
                found[field.name] = item
    return found


def _is_zero(item: object) -> bool:
    """Return whether Go's `omitempty` omits a value; it omits no struct."""
    return not isinstance(item, dict) and not item


def _entry(value: int | bytes, field: _Field, depth: int) -> tuple[str, Any]:
    parts = dict(_wire(_bytes(value)))
    key = _bytes(parts.get(1, b"")).decode()
    empty: int | bytes = 0 if field.type in ("int", "bool") else b""
    return key, _value(parts.get(2, empty), field.type, depth)


def _items(value: int | bytes, field: _Field, depth: int) -> list[Any]:
    """Return one item, or the numbers of a packed list."""
    if field.type in ("int", "bool") and isinstance(value, bytes):
        numbers, at = [], 0
        while at < len(value):
            number, at = _varint(value, at)
            numbers.append(_value(number, field.type, depth))
        return numbers
    return [_value(value, field.type, depth)]


def _value(value: int | bytes, kind: str, depth: int) -> Any:  # noqa: ANN401 - any JSON
    read = _SCALARS.get(kind)
    if read is not None:
        return read(value)
    return _message(_bytes(value), kind, depth + 1)


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise BadProtobufError("a number stands where bytes belong")
    return value


def _number(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise BadProtobufError("bytes stand where a number belongs")
    return value - (1 << 64) if value >> 63 else value


def _text(value: int | bytes) -> str:
    return _bytes(value).decode()


def _members(value: int | bytes) -> dict[int, int | bytes]:
    return dict(_wire(_bytes(value)))


def _quantity(value: int | bytes) -> str:
    return _text(_members(value).get(1, b"")) or "0"


def _moment(value: int | bytes) -> dt.datetime | None:
    """Return a point in time; an empty one stands for none."""
    members = _members(value)
    if not members:
        return None
    seconds, nanos = _number(members.get(1, 0)), _number(members.get(2, 0))
    try:
        return _EPOCH + dt.timedelta(seconds=seconds, microseconds=nanos // 1000)
    except OverflowError as exc:
        raise BadProtobufError("a time is too far away") from exc


def _time(value: int | bytes) -> str | None:
    moment = _moment(value)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ") if moment else None


def _micro_time(value: int | bytes) -> str | None:
    moment = _moment(value)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ") if moment else None


def _int_or_string(value: int | bytes) -> int | str:
    members = _members(value)
    return _text(members.get(3, b"")) if members.get(1) else _number(members.get(2, 0))


def _json(value: int | bytes) -> Any:  # noqa: ANN401 - any JSON
    raw = _bytes(_members(value).get(1, b""))
    try:
        return json.loads(raw) if raw else None
    except RecursionError as exc:
        raise BadProtobufError("it is nested too deeply") from exc


_SCALARS: Final[Mapping[str, Callable[[int | bytes], Any]]] = {
    "string": _text,
    "bool": lambda value: bool(_number(value)),
    "int": _number,
    "bytes": lambda value: base64.b64encode(_bytes(value)).decode(),
    "quantity": _quantity,
    "time": _time,
    "microtime": _micro_time,
    "intstr": _int_or_string,
    "json": _json,
}


def _wire(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each member, in the order on the wire."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, form = key >> 3, key & 7
        if form == _VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        if form == _BYTES:
            length, at = _varint(data, at)
        elif form in (_FIXED32, _FIXED64):
            length = 4 if form == _FIXED32 else 8
        else:
            raise BadProtobufError(f"there is no form {form}")
        if at + length > len(data):
            raise BadProtobufError("it ends too early")
        yield number, data[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data):
            raise BadProtobufError("it ends too early")
        value |= (data[at] & 0x7F) << shift
        at += 1
        if not data[at - 1] & 0x80:
            return value, at
        shift += 7
        if shift >= _LONGEST_VARINT:
            raise BadProtobufError("a number is too long")
