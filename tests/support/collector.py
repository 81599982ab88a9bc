"""A collector of OpenTelemetry for tests: takes spans over OTLP/HTTP and keeps them."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Self

from aiohttp import web
from aiohttp.test_utils import TestServer
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

_NS: Final = 1e9


class Span(NamedTuple):
    """One span as it came."""

    service: str
    name: str
    trace: int
    id: int
    parent: int
    """0: it is a root."""
    seconds: float
    facts: Mapping[str, Any]


class Collector:
    """A server on a free port, for `async with`."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        application = web.Application()
        application.router.add_post("/v1/traces", self._take)
        self._server = TestServer(application)

    async def __aenter__(self) -> Self:
        await self._server.start_server()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.close()

    @property
    def url(self) -> str:
        """Return what `OTEL_EXPORTER_OTLP_ENDPOINT` is set to."""
        return str(self._server.make_url("")).rstrip("/")

    def of(self, trace: int) -> list[Span]:
        """Return the spans of one trace."""
        return [span for span in self.spans if span.trace == trace]

    async def _take(self, request: web.Request) -> web.Response:
        sent = ExportTraceServiceRequest.FromString(await request.read())
        for resource in sent.resource_spans:
            service = _facts(resource.resource.attributes)["service.name"]
            self.spans += [
                Span(
                    service=service,
                    name=span.name,
                    trace=int.from_bytes(span.trace_id, "big"),
                    id=int.from_bytes(span.span_id, "big"),
                    parent=int.from_bytes(span.parent_span_id, "big"),
                    seconds=(span.end_time_unix_nano - span.start_time_unix_nano) / _NS,
                    facts=_facts(span.attributes),
                )
                for scope in resource.scope_spans
                for span in scope.spans
            ]
        return web.Response(content_type="application/x-protobuf")


def _facts(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}
