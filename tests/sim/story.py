"""What happened in a simulation, in virtual time order over all processes.

Everything that can be seen from outside a process is told here: its log, its requests to the
API server, the messages that streams store. `about` picks out what concerns one object, which is
what a failing seed prints; `digest` is equal for two runs that went the same way.
"""

import hashlib
import sys
from collections.abc import Callable, Iterable, MutableMapping
from typing import Any, NamedTuple

import structlog

_MOST_LINES = 200
_LONGEST = 160


class Entry(NamedTuple):
    """One event."""

    time_s: float
    who: str
    what: str
    about: dict[str, Any]

    def __str__(self) -> str:
        details = " ".join(f"{name}={value}" for name, value in self.about.items())
        if len(details) > _LONGEST:
            details = details[:_LONGEST] + "…"
        return f"{self.time_s:10.4f}  {self.who:<14} {self.what:<28} {details}"


class Story:
    """Collects entries; `time_s` gives the virtual time."""

    def __init__(self, time_s: Callable[[], float]) -> None:
        self._time_s = time_s
        self._hash = hashlib.sha256()
        self.entries: list[Entry] = []

    def tell(self, who: str, what: str, /, **about: Any) -> None:
        """Take an event."""
        entry = Entry(self._time_s(), who, what, about)
        self.entries.append(entry)
        self._hash.update(f"{entry.time_s:.9f} {who} {what} {about}\n".encode())

    def digest(self) -> str:
        """Return the fingerprint of everything told so far."""
        return self._hash.hexdigest()

    def logger(self, who: str, *, alive: Callable[[], bool]) -> Any:
        """Return a logger whose lines become entries while its process is alive."""

        def take(_logger: object, _method: str, event: MutableMapping[str, Any]) -> Any:
            if alive():
                error = event.pop("exc_info", None)
                if error:
                    event["error"] = repr(sys.exc_info()[1])
                self.tell(who, event.pop("event"), **event)
            raise structlog.DropEvent

        return structlog.wrap_logger(
            structlog.PrintLogger(),
            processors=[take],
            wrapper_class=structlog.make_filtering_bound_logger("info"),
        )

    def about(self, keys: Iterable[str]) -> str:
        """Return the entries that mention one of `keys`, and what was done to the cluster."""
        wanted = [key for key in keys if key]
        lines = [
            str(entry)
            for entry in self.entries
            if entry.who == "nemesis" or any(key in str(entry.about) for key in wanted)
        ]
        left_out = len(lines) - _MOST_LINES
        if left_out > 0:
            half = _MOST_LINES // 2
            lines = [*lines[:half], f"            … {left_out} more …", *lines[-half:]]
        return "\n".join(lines)
