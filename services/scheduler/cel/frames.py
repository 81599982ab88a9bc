"""What the scheduler and the process that evaluates expressions send each other.

A question is an expression with devices. Each device is answered as soon as it is evaluated: with
true, false, or the text of an error. A frame is a length of four bytes and a message in msgpack.
"""

import struct
from typing import Final

import msgspec

HEADER: Final = struct.Struct(">I")
"""The length of the message that follows, in bytes."""
EXPRESSION_MAX: Final = 10 * 1024
"""Bytes of an expression: the API server accepts none that is longer."""
ERROR_MAX: Final = 300
"""Letters of an error."""
READY: Final = "ready"
"""The first frame of a process that can evaluate; another text says why it cannot."""


class SeenDevice(msgspec.Struct, frozen=True, array_like=True):
    """What an expression sees of a device. Devices that look the same are equal."""

    driver: str
    attributes: dict[str, bool | int | str]
    """Qualified name → value; one without a domain is the driver's."""
    versions: dict[str, str]
    """Likewise, of the attributes that are semantic versions."""
    capacity: dict[str, str]
    allow_multiple_allocations: bool


class EvaluationRequest(msgspec.Struct, frozen=True, array_like=True):
    """An expression, and the devices about which it is evaluated, each an encoded `SeenDevice`."""

    expression: str
    devices: list[bytes]


Answer = bool | str
"""Whether a device meets the expression, or why that is unknown."""


def qualified(name: str, driver: str) -> tuple[str, str]:
    """Return domain and name of an attribute; one without domain is the driver's."""
    domain, slash, rest = name.partition("/")
    return (domain, rest) if slash else (driver, name)


def frame(message: object) -> bytes:
    """Return a message with its length."""
    body = msgspec.msgpack.encode(message)
    return HEADER.pack(len(body)) + body
