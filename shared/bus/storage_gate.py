"""Reports that the NATS server replies but stores nothing: its disk is full.

A stream in files then stores no message and does not answer publishers, but it can still be read.
So the sign is an announcement without an answer while its stream can be read.
"""

from typing import Final

from prometheus_client import Gauge

from shared.runtime.health import ReadinessGate
from shared.runtime.logs import Logger

ROUNDS: Final = 2
"""Consecutive announcements without a reply, 2 s each, until it is reported."""
REASON: Final = (
    "NATS answers and stores nothing: its disk may be full; its /healthz and log name the stream. "
    "A stream writes again after a restart of the server, once there is room"
)


class StorageGate:
    """A readiness gate that is shut, and a gauge that is 0, while the server stores no messages."""

    def __init__(self, *, gate: ReadinessGate, gauge: Gauge, log: Logger) -> None:
        self._gate = gate
        self._gauge = gauge
        self._log = log
        self._unanswered = 0
        self._open()

    def note_stored(self) -> None:
        """Record that a message was stored."""
        if self._unanswered >= ROUNDS:
            self._log.info("nats_stores_again")
            self._open()
        self._unanswered = 0

    def note_unanswered(self) -> None:
        """Record that a publish went unanswered although the server answers requests."""
        self._unanswered += 1
        if self._unanswered == ROUNDS:
            self._gate.set(ok=False, reason=REASON)
            self._gauge.set(0)
            self._log.error("nats_stores_nothing", reason=REASON)

    def _open(self) -> None:
        self._gate.set(ok=True)
        self._gauge.set(1)
