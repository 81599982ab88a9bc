"""Spans for OpenTelemetry: how long each service worked on which job; off by default.

All services give the spans of one job the same *cause*, the key of its PodGroup, and from the cause
follow the id of the trace and that of its root. So the spans of several processes join into one
trace, and nothing travels between them. `shared.runtime.otlp` sends them, and is imported only
where the environment names a collector.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Final, Protocol

from typing_extensions import override

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
"""Variables of OpenTelemetry; one that is set turns spans on."""

Value = str | int | float | bool


class Spans(Protocol):
    """Takes spans without waiting. Ask `is_on` before computing what is given to it."""

    is_on: bool

    def add(self, cause: str, name: str, *, begun: float, **facts: Value) -> None:
        """Take a span of a cause that began at `begun` (Unix seconds) and ends now."""

    def add_root(self, cause: str, name: str, *, begun: float, **facts: Value) -> None:
        """Take the span of a cause to which all its other spans belong, once it has ended."""


class NoSpans(Spans):
    """Takes no spans; used where the environment names no collector."""

    is_on = False

    @override
    def add(self, cause: str, name: str, *, begun: float, **facts: Value) -> None:
        pass

    @override
    def add_root(self, cause: str, name: str, *, begun: float, **facts: Value) -> None:
        pass


NO_SPANS: Final = NoSpans()


def are_enabled(environ: Mapping[str, str]) -> bool:
    """Tell whether the environment names a collector, and does not switch spans off."""
    off = environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    off = off or environ.get("OTEL_TRACES_EXPORTER", "otlp") == "none"
    return not off and any(environ.get(name) for name in ENDPOINTS)


def trace_id(cluster: str, cause: str) -> int:
    """Return the id of a cause's trace: 128 bits, never 0, the same in each service."""
    return int.from_bytes(_digest(cluster, cause)[:16], "big") or 1


def root_id(cluster: str, cause: str) -> int:
    """Return the id of the span at the root of a cause's trace: 64 bits, never 0."""
    return int.from_bytes(_digest(cluster, cause)[16:24], "big") or 1


def _digest(cluster: str, cause: str) -> bytes:
    return sha256(f"{cluster}\n{cause}".encode()).digest()
