"""Whether the server stores what it is told: the sign of a full disk, which it keeps silent about.

A stream in files that met a full disk takes no message, and gives no answer to those who publish;
questions it still answers. Each process publishes its announcement every second anyway: when that
goes unanswered while the same stream can be read, it is the disk and not the way to the server.
"""

from typing import Final

from prometheus_client import Gauge

from shared.runtime.health import Gate
from shared.runtime.logs import Logger

ROUNDS: Final = 2
"""Announcements in a row without an answer, 2 s each, until it is said."""
REASON: Final = (
    "NATS answers and stores nothing: its disk may be full; its /healthz and log name the stream. "
    "A stream writes again after a restart of the server, once there is room"
)


class Storing:
    """Keeps a gate shut while nothing is stored, and a gauge at 0."""

    def __init__(self, *, gate: Gate, gauge: Gauge, log: Logger) -> None:
        self._gate = gate
        self._gauge = gauge
        self._log = log
        self._unstored = 0
        self._open()

    def stored(self) -> None:
        """Take note that a message was stored."""
        if self._unstored >= ROUNDS:
            self._log.info("nats_stores_again")
            self._open()
        self._unstored = 0

    def unstored(self) -> None:
        """Take note that a message was not answered by a server that answers questions."""
        self._unstored += 1
        if self._unstored == ROUNDS:
            self._gate.set(ok=False, reason=REASON)
            self._gauge.set(0)
            self._log.error("nats_stores_nothing", reason=REASON)

    def _open(self) -> None:
        self._gate.set(ok=True)
        self._gauge.set(1)
