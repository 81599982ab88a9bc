"""Delivers events to an HTTP address, for programs that have no NATS client.

One request per event, in order; the next one is sent after a response 2xx. Delivery is at least
once, without gaps. The position is written to a file after each response, so that a new process
resumes after the last event that was taken. A receiver recognises a repeated event by `id` and
`source`, as CloudEvents says, or by the header `Pumice-Sequence`.
"""

import asyncio
import enum
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path
from typing import Final

import aiohttp
import msgspec

from pumice.events.client import Received, Since, Start
from pumice.events.envelope import Unknown
from pumice.events.errors import EventsError

ANSWER_S: Final = 10.0
FIRST_S: Final = 0.2
MOST_S: Final = 60.0
_STRUCTURED: Final = "application/cloudevents+json"
_REPORT_EVERY: Final = 500
"""Events that are passed over between two writes of the mark."""


class DeliveryMode(enum.StrEnum):
    """The two forms of a CloudEvent in an HTTP request."""

    STRUCTURED = "structured"
    """The whole event is the body."""
    BINARY = "binary"
    """Its attributes are headers `ce-…`, the body is its data."""


class ReceiverGone(EventsError):  # noqa: N818 - named by what happened
    """The receiver accepts no more events: it has returned 410."""


class DeliveryMark(msgspec.Struct, frozen=True, kw_only=True):
    """The last event that a receiver has taken, as kept in the file."""

    sequence: int = 0
    """Of the last event that was taken; 0 before the first."""
    stream: str = ""
    """The stream of that sequence."""
    since: float = 0.0
    """Time of the start, in Unix seconds, while no event has been taken."""

    @property
    def start(self) -> Start | Since:
        """Return where to continue."""
        if self.sequence:
            return Start(self.sequence + 1, stream=self.stream)
        return Since(self.since)


class _Wire(msgspec.Struct, frozen=True):
    data: msgspec.Raw
    datacontenttype: str = "application/json"


class MarkFile:
    """The file that keeps a mark."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> DeliveryMark | None:
        """Return the mark, None before the first. Raises EventsError when it is no mark."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=DeliveryMark)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as exc:
            raise EventsError(f"{self._path} does not say how far it was: {exc}") from exc

    def write(self, mark: DeliveryMark) -> None:
        """Replace the mark; a crash leaves the old one or the new one."""
        draft = self._path.with_name(f".{self._path.name}.new")
        self._path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(msgspec.json.encode(mark))
        draft.rename(self._path)


class Webhook:
    """Sends events to one address until each is taken."""

    def __init__(
        self,
        url: str,
        *,
        mode: DeliveryMode = DeliveryMode.STRUCTURED,
        headers: Mapping[str, str] | None = None,
        report: Callable[[str], None],
    ) -> None:
        self._url = url
        self._mode = mode
        self._headers = dict(headers or {})
        self._report = report

    async def deliver(
        self,
        events: AsyncGenerator[Received, None],
        *,
        file: MarkFile,
        wanted: Callable[[Received], bool],
    ) -> None:
        """Deliver the selected ones of `events`, in order, until the iteration ends."""
        timeout = aiohttp.ClientTimeout(total=ANSWER_S)
        passed = 0
        async with aiohttp.ClientSession(timeout=timeout, headers=self._headers) as session:
            async for received in events:
                if is_sent := wanted(received) and _is_readable(received):
                    await self._until_taken(session, received)
                passed = 0 if is_sent else passed + 1
                if is_sent or passed % _REPORT_EVERY == 0:
                    file.write(DeliveryMark(sequence=received.sequence, stream=received.stream))

    async def _until_taken(self, session: aiohttp.ClientSession, received: Received) -> None:
        headers, body = request(received, self._mode)
        attempt = 0
        while problem := await self._problem(session, headers, body):
            if attempt == 0:
                self._report(
                    f"event {received.sequence}: {problem}; trying again until it is taken"
                )
            await asyncio.sleep(min(FIRST_S * 2 ** min(attempt, 20), MOST_S))
            attempt += 1
        if attempt:
            self._report(f"event {received.sequence}: taken at attempt {attempt + 1}")

    async def _problem(
        self, session: aiohttp.ClientSession, headers: Mapping[str, str], body: bytes
    ) -> str:
        """Send once; return why it was not taken, or "". Raises ReceiverGone."""
        try:
            async with session.post(
                self._url, data=body, headers=headers, allow_redirects=False
            ) as response:
                if response.status == 410:  # noqa: PLR2004 - as CloudEvents' webhooks say
                    raise ReceiverGone(f"{self._url} accepts no more events: 410 {response.reason}")
                taken = 200 <= response.status < 300  # noqa: PLR2004
                return "" if taken else f"{self._url} answers {response.status} {response.reason}"
        except (aiohttp.ClientError, TimeoutError, OSError) as exc:
            return f"{self._url}: {str(exc) or type(exc).__name__}"


def request(received: Received, mode: DeliveryMode) -> tuple[dict[str, str], bytes]:
    """Return headers and body of the request for an event."""
    headers = {"Pumice-Sequence": str(received.sequence)}
    if mode is DeliveryMode.STRUCTURED:
        return {**headers, "Content-Type": _STRUCTURED}, received.payload
    event = received.event
    wire = msgspec.json.decode(received.payload, type=_Wire)
    headers |= {
        "Content-Type": wire.datacontenttype,
        "ce-specversion": "1.0",
        "ce-id": event.id,
        "ce-source": event.source,
        "ce-type": event.type,
        "ce-subject": event.subject,
        "ce-time": event.time.isoformat().replace("+00:00", "Z"),
    }
    return headers, bytes(wire.data)


def headers_in(path: Path) -> dict[str, str]:
    """Return the headers in a file, a line `Name: value` each. Raises EventsError."""
    found = {}
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        name, colon, value = line.partition(":")
        if not line.strip():
            continue
        if not colon or not name.strip() or name != name.strip():
            raise EventsError(f"{path}, line {number}: write it like `Authorization: Bearer …`")
        found[name] = value.strip()
    return found


def state_file(url: str, folder: Path) -> Path:
    """Return the file of an address's mark in a folder; each address has its own."""
    name = "".join(c if c.isalnum() else "-" for c in url.partition("://")[2])
    return folder / f"{name[:100]}.json"


def check_writable(path: Path) -> None:
    """Raise EventsError when a mark cannot be kept there."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise EventsError(f"cannot keep the place in {path}: {exc.strerror}") from exc
    if not os.access(path.parent, os.W_OK):
        raise EventsError(f"cannot keep the place in {path}: no right to write there")


def _is_readable(received: Received) -> bool:
    """Return whether a payload is a CloudEvent; others cannot be sent as one."""
    data = received.event.data
    return not (isinstance(data, Unknown) and data.problem and not received.event.type)
