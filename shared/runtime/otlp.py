"""Sends spans to a collector over OTLP/HTTP, by the SDK of OpenTelemetry (extra `telemetry`).

The SDK reads its own variables: endpoint, headers, certificate, time-out, resource attributes,
limits of the queue. It sends from a thread of its own; what its queue cannot hold it drops. An
unavailable collector costs a line in the log, and nothing else.
"""

import asyncio
import logging
import threading
from typing import Final, cast

from opentelemetry.context import Context as Empty
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    TraceFlags,
    set_span_in_context,
)
from typing_extensions import override

from shared.runtime.clock import Clock
from shared.runtime.logs import Logger
from shared.runtime.spans import Spans, Value, root_id, trace_id

_LAST_S: Final = 2.0
"""How long the end of a process waits for the last spans to be sent."""
_NS: Final = 1_000_000_000
_QUIET_S: Final = 60.0
"""The same error of the exporter is logged once in that time."""


class _Ids:
    """Generates random ids, except for the root span of a trace, whose ids are given."""

    def __init__(self) -> None:
        self._drawn = RandomIdGenerator()
        self.root: tuple[int, int] | None = None

    def generate_trace_id(self) -> int:
        return self.root[0] if self.root else int(self._drawn.generate_trace_id())

    def generate_span_id(self) -> int:
        return self.root[1] if self.root else int(self._drawn.generate_span_id())

    def is_trace_id_random(self) -> bool:
        return False


class _SdkLog(logging.Handler):
    """Writes messages of the SDK to the service's log, as one line."""

    def __init__(self, log: Logger, clock: Clock) -> None:
        super().__init__(logging.WARNING)
        self._log = log
        self._clock = clock
        self._quiet_until = float("-inf")

    @override
    def emit(self, record: logging.LogRecord) -> None:
        now = self._clock.monotonic()
        if now >= self._quiet_until:
            self._quiet_until = now + _QUIET_S
            self._log.warning("spans_not_sent", reason=" ".join(record.getMessage().split()))


class OtlpSpans(Spans):
    """Spans of one process; a part of the service, so that its end sends the last ones."""

    name: Final = "spans"
    is_on = True

    def __init__(
        self, *, service: str, instance: str, cluster: str, clock: Clock, log: Logger
    ) -> None:
        sdk = logging.getLogger("opentelemetry")
        sdk.addHandler(_SdkLog(log, clock))
        sdk.propagate = False
        self._cluster = cluster
        self._clock = clock
        self._ids = _Ids()
        self._provider = TracerProvider(
            resource=Resource.create(
                {
                    "service.name": f"pumice-{service}",
                    "service.namespace": "pumice",
                    "service.instance.id": instance,
                    "pumice.cluster": cluster,
                }
            ),
            id_generator=cast("IdGenerator", self._ids),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("pumice")

    @override
    def add(self, cause: str, name: str, *, begun: float, **facts: Value) -> None:
        root = SpanContext(
            trace_id=trace_id(self._cluster, cause),
            span_id=root_id(self._cluster, cause),
            is_remote=True,
            trace_flags=TraceFlags(TraceFlags.SAMPLED),
        )
        self._take(set_span_in_context(NonRecordingSpan(root), Empty()), cause, name, begun, facts)

    @override
    def add_root(self, cause: str, name: str, *, begun: float, **facts: Value) -> None:
        self._ids.root = (trace_id(self._cluster, cause), root_id(self._cluster, cause))
        try:
            self._take(Empty(), cause, name, begun, facts)
        finally:
            self._ids.root = None

    def _take(
        self, context: Empty, cause: str, name: str, begun: float, facts: dict[str, Value]
    ) -> None:
        attributes = {f"pumice.{fact}": value for fact, value in facts.items()}
        attributes["pumice.cause"] = cause
        span = self._tracer.start_span(
            name, context, attributes=attributes, start_time=int(begun * _NS)
        )
        span.end(int(max(self._clock.now(), begun) * _NS))

    async def run(self) -> None:
        """Wait for the end of the service, then send what is left, for a short time."""
        try:
            await asyncio.Event().wait()
        finally:
            loop, sent = asyncio.get_running_loop(), asyncio.Event()

            def send() -> None:
                self._provider.shutdown()
                loop.call_soon_threadsafe(sent.set)

            threading.Thread(target=send, name="last-spans", daemon=True).start()
            try:
                async with asyncio.timeout(_LAST_S):
                    await sent.wait()
            except TimeoutError:
                pass
