"""Reads a service's readiness, and formats its closed gates as text.

`/readyz` answers with the gates that are shut. A cache has one per list and a binder one per
partition: gates of one family are counted, and their most frequent reason is shown.
"""

import asyncio
import http.client
from collections import Counter
from http import HTTPStatus
from typing import Final

import msgspec

from pumice.local.errors import LocalError

ANSWER_S: Final = 2.0
_FAMILIES: Final = {
    "watch": ("list", "lists"),
    "commands": ("partition of commands", "partitions of commands"),
    "desired": ("partition of desired statuses", "partitions of desired statuses"),
}
"""First part of a gate's name → its name in singular and plural."""
_NO_REASON: Final = frozenset({"", "not started"})
_LONGEST: Final = 160


class _Shut(msgspec.Struct, frozen=True):
    gate: str
    reason: str = ""


_shut = msgspec.json.Decoder(list[_Shut])


async def missing(address: str, path: str = "/readyz") -> str:
    """Return "" when a program is ready, else the gates that are shut, in one line."""
    try:
        status, body = await page(address, path)
    except LocalError as error:
        return str(error)
    return "" if status == HTTPStatus.OK else message_of(body)


async def notes(address: str) -> str:
    """Return what a ready service lacks and does without, in one line; "" without any."""
    try:
        status, body = await page(address, "/readyz")
    except LocalError:
        return ""  # `missing` reports it
    return message_of(body) if status == HTTPStatus.OK else ""


async def page(address: str, path: str) -> tuple[int, bytes]:
    """Return status and body of a page at `host:port`; LocalError has the reason if it fails."""
    return await asyncio.to_thread(_get, address, path)


def _get(address: str, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(address, timeout=ANSWER_S)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()
    except (OSError, http.client.HTTPException) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise LocalError((reason or str(error) or "no answer").lower()) from error
    finally:
        connection.close()


def message_of(body: bytes) -> str:
    """Return the line for the shut gates of a page."""
    try:
        shut = _shut.decode(body)
    except msgspec.DecodeError:
        return _short(body.decode(errors="replace"))
    families: dict[str, list[_Shut]] = {}
    for gate in shut:
        family = gate.gate.partition("-")[0]
        families.setdefault(family if family in _FAMILIES else gate.gate, []).append(gate)
    return ", ".join(_about(family, gates) for family, gates in families.items())


def _about(family: str, gates: list[_Shut]) -> str:
    """Return `25 lists outstanding`, or the name of a gate, with the reason that most give."""
    reasons = Counter(reason for gate in gates if (reason := gate.reason) not in _NO_REASON)
    names = _FAMILIES.get(family)
    what = family
    if names is not None:
        what = f"{len(gates)} {names[len(gates) > 1]} outstanding"
    return f"{what} ({_short(reasons.most_common(1)[0][0])})" if reasons else what


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
