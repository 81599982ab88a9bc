"""Requests to sources of node usage, and the meaning of their answers (K03, CA13); no I/O.

Each asks once for all nodes, not node by node. Loads are percent of a node, averages over ten
minutes; what a source says nothing about is not among the samples.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from services.scheduler.config import MetricsOption
from services.scheduler.policy.states.usage import NodeUsage
from shared.api import time as times
from shared.model.quantity import BadQuantity, milli

_PERIOD: Final = "10m"
_CPU_QUERY: Final = (
    "avg_over_time((100 - (avg by (instance) "
    '(rate(node_cpu_seconds_total{mode="idle"}[5m])) * 100))'
    f"[{_PERIOD}:30s])"
)
_MEMORY_QUERY: Final = (
    "100*avg_over_time(((1-node_memory_MemAvailable_bytes/node_memory_MemTotal_bytes))"
    f"[{_PERIOD}:30s])"
)
_NODES_MAX: Final = 20_000


class BadReply(ValueError):  # noqa: N818 - reads as the fact it states
    """A reply that is not what the source's API promises."""


class MetricsRequest(NamedTuple):
    """One HTTP request."""

    method: str
    path: str
    params: Mapping[str, str] = {}
    body: Mapping[str, Any] | None = None


class UsageApi(Protocol):
    """One kind of source."""

    def requests(self) -> Sequence[MetricsRequest]:
        """Return what to ask."""

    def samples(self, replies: Sequence[bytes], now: float) -> dict[str, NodeUsage]:
        """Return node → sample; `now` is when it was asked (Unix s). Raises `BadReply`."""


def api_of(option: MetricsOption) -> UsageApi | None:
    """Return the API of the configured source; None when none is configured."""
    match option.type:
        case "prometheus":
            return PrometheusApi()
        case "prometheus_adaptor":
            return CustomMetrics()
        case "elasticsearch":
            return Elasticsearch(option.index)
        case _:
            return None


class _Series(msgspec.Struct):
    value: tuple[float, str]
    metric: dict[str, str] = {}


class _Vector(msgspec.Struct, rename="camel"):
    result_type: str
    result: msgspec.Raw


class _QueryReply(msgspec.Struct):
    status: str
    data: _Vector | None = None
    error: str = ""


class PrometheusApi:
    """The query API; `instance` of the node exporter's series is the name of the node."""

    def requests(self) -> Sequence[MetricsRequest]:
        """Return one query for CPU, one for memory."""
        return [
            MetricsRequest("GET", "/api/v1/query", {"query": q})
            for q in (_CPU_QUERY, _MEMORY_QUERY)
        ]

    def samples(self, replies: Sequence[bytes], now: float) -> dict[str, NodeUsage]:
        """Return the nodes that are in both series."""
        cpu, memory = (self._vector(reply) for reply in replies)
        return {
            node: NodeUsage(cpu[node], memory[node], now) for node in cpu.keys() & memory.keys()
        }

    @staticmethod
    def _vector(reply: bytes) -> dict[str, float]:
        stated = _decoded(reply, _QueryReply)
        if stated.status != "success" or stated.data is None:
            raise BadReply(f"the query failed: {stated.error or stated.status}")
        if stated.data.result_type != "vector":
            raise BadReply(f"a vector was expected, got a {stated.data.result_type}")
        found = {}
        for series in _decoded(stated.data.result, list[_Series]):
            node, value = series.metric.get("instance", ""), _number(series.value[1])
            if node and value is not None:
                found[node] = value
        return found


class _Object(msgspec.Struct):
    name: str


class _Metric(msgspec.Struct, rename="camel"):
    described_object: _Object
    value: str
    timestamp: str = ""


class _MetricList(msgspec.Struct):
    items: list[_Metric]


class CustomMetrics:
    """The custom metrics API as prometheus-adapter serves it; values are fractions of a node."""

    def requests(self) -> Sequence[MetricsRequest]:
        """Return one request for CPU, one for memory."""
        path = "/apis/custom.metrics.k8s.io/v1beta2/nodes/*"
        return [
            MetricsRequest("GET", f"{path}/{metric}")
            for metric in ("node_cpu_usage_avg", "node_memory_usage_avg")
        ]

    def samples(self, replies: Sequence[bytes], now: float) -> dict[str, NodeUsage]:
        """Return the nodes that are in both lists, at the time of the older one."""
        cpu, memory = (self._values(reply, now) for reply in replies)
        return {
            node: NodeUsage(cpu[node][0], memory[node][0], min(cpu[node][1], memory[node][1]))
            for node in cpu.keys() & memory.keys()
        }

    @staticmethod
    def _values(reply: bytes, now: float) -> dict[str, tuple[float, float]]:
        found = {}
        for item in _decoded(reply, _MetricList).items:
            try:
                percent = milli(item.value) / 10
                measured = times.parse(item.timestamp) if item.timestamp else now
            except (BadQuantity, ValueError) as error:
                raise BadReply(f"node {item.described_object.name}: {error}") from error
            found[item.described_object.name] = (percent, measured)
        return found


class _Average(msgspec.Struct):
    value: float | None = None


class _Bucket(msgspec.Struct):
    key: str
    cpu: _Average
    mem: _Average


class _Buckets(msgspec.Struct):
    buckets: list[_Bucket]


class _Aggregations(msgspec.Struct):
    nodes: _Buckets


class _SearchReply(msgspec.Struct):
    aggregations: _Aggregations


class Elasticsearch:
    """Documents of Metricbeat; `host.hostname` is the name of the node, values are fractions."""

    def __init__(self, index: str) -> None:
        self._index = index

    def requests(self) -> Sequence[MetricsRequest]:
        """Return one search that averages per host."""
        averages = {
            "cpu": {"avg": {"field": "host.cpu.usage"}},
            "mem": {"avg": {"field": "system.memory.actual.used.pct"}},
        }
        hosts = {"field": "host.hostname", "size": _NODES_MAX}
        body = {
            "size": 0,
            "query": {"range": {"@timestamp": {"gte": f"now-{_PERIOD}", "lt": "now"}}},
            "aggs": {"nodes": {"terms": hosts, "aggs": averages}},
        }
        return [MetricsRequest("POST", f"/{self._index}/_search", body=body)]

    def samples(self, replies: Sequence[bytes], now: float) -> dict[str, NodeUsage]:
        """Return the hosts for which both averages are known."""
        (reply,) = replies
        return {
            bucket.key: NodeUsage(bucket.cpu.value * 100, bucket.mem.value * 100, now)
            for bucket in _decoded(reply, _SearchReply).aggregations.nodes.buckets
            if bucket.cpu.value is not None and bucket.mem.value is not None
        }


def _decoded(reply: bytes | msgspec.Raw, kind: Any) -> Any:  # noqa: ANN401 - what `kind` says
    try:
        return msgspec.json.decode(reply, type=kind)
    except msgspec.DecodeError as error:
        raise BadReply(f"the reply cannot be read: {error}") from error


def _number(text: str) -> float | None:
    """Return a sample's value, None for `NaN` and the like."""
    try:
        value = float(text)
    except ValueError as error:
        raise BadReply(f"{text!r} is no number") from error
    return value if abs(value) < float("inf") else None
