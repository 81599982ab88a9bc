"""CEL conditions on devices, and the interface of their evaluator.

Policy evaluates nothing: it reads known results and requests others. An expression that cannot be
read, that has no truth value for a device, or that exceeds its limit is a fault of the claim or
class that states it (`SelectorFault`): that claim is not allocated, and no other one suffers.
"""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Final, NamedTuple, Protocol

import msgspec
from typing_extensions import override

from services.scheduler.cel.frames import EXPRESSION_MAX, SeenDevice
from shared.api.resource import Device, DeviceAttribute

LETTERS: Final = 100
"""Number of letters of a cached expression that count as one result."""
_SHOWN_MAX: Final = 60
_DIGEST_BYTES: Final = 16


class SelectorFault(ValueError):  # noqa: N818 - reads as the fact it states
    """A condition cannot be evaluated; the text says why."""


class DeviceContent(NamedTuple):
    """The attributes of a device that expressions read; equal for equal devices."""

    digest: bytes
    encoded: bytes
    """A `SeenDevice` in msgpack."""


Verdict = bool | SelectorFault
"""Whether a device meets an expression, or why it cannot be evaluated."""


class Evaluator(Protocol):
    """Evaluates expressions about devices, outside of the scheduler."""

    @property
    def failure(self) -> str:
        """Why nothing is evaluated at present, "" while it is."""
        return ""

    def begin(self) -> None:
        """Begin a session."""

    def verdict(self, owner: str, expression: str, device: DeviceContent) -> Verdict | None:
        """Return the result; None requests the evaluation of an unknown one.

        `owner` is the namespace; namespaces are served in turn.
        """


class NoEvaluator(Evaluator):
    """Evaluates nothing: for cluster states without decisions."""

    @override
    def begin(self) -> None:
        """Do nothing."""

    @override
    def verdict(self, owner: str, expression: str, device: DeviceContent) -> Verdict | None:
        """Return None: nothing is evaluated."""
        return None


def content_of(driver: str, device: Device) -> DeviceContent:
    """Return the attributes of a device that expressions read. Raises `SelectorFault`."""
    seen = SeenDevice(
        driver,
        {
            name: _value_of(name, attribute)
            for name, attribute in device.attributes.items()
            if attribute.version_value is None
        },
        _versions(device.attributes),
        {name: str(amount.value) for name, amount in device.capacity.items()},
        device.allow_multiple_allocations,
    )
    encoded = msgspec.msgpack.encode(seen, order="deterministic")
    return DeviceContent(blake2b(encoded, digest_size=_DIGEST_BYTES).digest(), encoded)


def _value_of(name: str, attribute: DeviceAttribute) -> bool | int | str:
    for value in (attribute.int_value, attribute.bool_value, attribute.string_value):
        if value is not None:
            return value
    raise SelectorFault(f"attribute {name} is of a kind that is not known here")


def _versions(attributes: Mapping[str, DeviceAttribute]) -> dict[str, str]:
    return {
        name: attribute.version_value
        for name, attribute in attributes.items()
        if attribute.version_value is not None
    }


def shown(expression: str) -> str:
    """Return the beginning of an expression, in one line."""
    text = " ".join(expression[: 4 * _SHOWN_MAX].split())
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"


def unreadable(expression: str) -> SelectorFault | None:
    """Return why an expression is rejected without parsing, "" if it is not."""
    size = len(expression.encode("utf-8", "replace"))
    if size > EXPRESSION_MAX:
        return SelectorFault(
            f"CEL compile error: {size} bytes are more than the {EXPRESSION_MAX} of an expression"
        )
    return None
