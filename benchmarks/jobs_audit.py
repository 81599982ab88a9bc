"""Writes per client and object, from the API server's audit log: no client can gild them.

Each service has a User-Agent of its own (`pumice-controller`, …); the log has one line per request.
"""

import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import msgspec

_WRITES = {"create", "update", "patch", "delete", "deletecollection"}
_QUIET_S = 1.5
OURS = ("pumice-cache", "pumice-scheduler", "pumice-binder", "pumice-controller")


class _Object(msgspec.Struct):
    resource: str = ""
    subresource: str = ""


class _Status(msgspec.Struct):
    code: int = 0


class _Entry(msgspec.Struct):
    verb: str = ""
    userAgent: str = ""  # noqa: N815 - a field of the audit log
    objectRef: _Object | None = None  # noqa: N815
    responseStatus: _Status | None = None  # noqa: N815


class Write(NamedTuple):
    """One kind of write by one service."""

    agent: str
    verb: str
    what: str
    """Resource, with its subresource behind a slash."""


class AuditLog:
    """Reads what has been written to the log since it was last asked."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def settle(self) -> None:
        """Wait until nothing more comes: the API server writes the log in batches."""
        size, since = -1, time.monotonic()
        while time.monotonic() - since < _QUIET_S:
            now = self._path.stat().st_size
            if now != size:
                size, since = now, time.monotonic()
            time.sleep(0.1)

    def writes(self) -> tuple[Counter[Write], Counter[Write]]:
        """Return our services' writes since the last call, and those of them that met a 409."""
        decoder = msgspec.json.Decoder(_Entry)
        found: Counter[Write] = Counter()
        conflicts: Counter[Write] = Counter()
        with self._path.open("rb") as log:
            log.seek(self._offset)
            for line in log:
                self._offset += len(line)
                entry = decoder.decode(line)
                agent = entry.userAgent.split("/")[0].split(" ")[0]
                if entry.verb not in _WRITES or agent not in OURS or entry.objectRef is None:
                    continue
                ref = entry.objectRef
                what = f"{ref.resource}/{ref.subresource}" if ref.subresource else ref.resource
                write = Write(agent, entry.verb, what)
                found[write] += 1
                if entry.responseStatus is not None and entry.responseStatus.code == 409:
                    conflicts[write] += 1
        return found, conflicts


def beyond_the_needed(found: Counter[Write]) -> int:
    """Return the writes that are neither a pod's creation, binding or deletion nor an Event."""
    needed = {("create", "pods"), ("create", "pods/binding"), ("delete", "pods")}
    return sum(
        count
        for write, count in found.items()
        if write.what != "events" and (write.verb, write.what) not in needed
    )


def events(found: Counter[Write]) -> int:
    """Return the Events among the writes."""
    return sum(count for write, count in found.items() if write.what == "events")
