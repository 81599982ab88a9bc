"""Writes Grafana's dashboards, `k8s/monitoring/dashboards.yaml`, from tables (`make crds`).

Grafana's sidecar takes ConfigMaps with the label `grafana_dashboard`. One dashboard shows the work
that Volcano's metrics tell of, by the same names; the other one our own parts: bus, cache, leaders,
intents, visibility. A panel is a title, a unit of Grafana and one expression per line, with its
legend.
"""

from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

ROOT: Final = Path(__file__).parents[1]
FILE: Final = ROOT / "k8s" / "monitoring" / "dashboards.yaml"
_WIDTH: Final = 8
_HEIGHT: Final = 7
_PER_ROW: Final = 3


class Panel(msgspec.Struct, frozen=True):
    """One graph: its lines by legend, in a unit of Grafana."""

    title: str
    unit: str
    lines: dict[str, str]


def _p99(name: str, by: str = "") -> str:
    labels = ", ".join(label for label in ("le", by) if label)
    return f"histogram_quantile(0.99, sum by ({labels}) (rate({name}_bucket[5m])))"


WORK: Final = {
    "Queues": (
        Panel(
            "CPU held of what is deserved",
            "percentunit",
            {
                "{{queue_name}}": "volcano_queue_allocated_milli_cpu"
                " / volcano_queue_deserved_milli_cpu"
            },
        ),
        Panel(
            "CPU that pods wait for (thousandths)",
            "short",
            {
                "{{queue_name}}": "volcano_queue_request_milli_cpu"
                " - volcano_queue_allocated_milli_cpu"
            },
        ),
        Panel("Memory held", "bytes", {"{{queue_name}}": "volcano_queue_allocated_memory_bytes"}),
        Panel("Overused", "bool", {"{{queue_name}}": "volcano_queue_overused"}),
        Panel(
            "PodGroups that wait for admission",
            "short",
            {"{{queue_name}}": "volcano_queue_pod_group_pending_count"},
        ),
        Panel(
            "PodGroups that run",
            "short",
            {"{{queue_name}}": "volcano_queue_pod_group_running_count"},
        ),
    ),
    "Jobs": (
        Panel("Jobs that are not placed", "short", {"jobs": "sum(volcano_unschedule_job_count)"}),
        Panel(
            "Placements per second, by result",
            "ops",
            {"{{result}}": "sum by (result) (rate(volcano_schedule_attempts_total[5m]))"},
        ),
        Panel(
            "99 % of pods are bound within",
            "ms",
            {"{{stage}}": _p99("volcano_task_scheduling_latency_milliseconds", "stage")},
        ),
        Panel(
            "Evictions that were settled, per second",
            "ops",
            {"{{action}}": "sum by (action) (rate(volcano_eviction_transactions_total[5m]))"},
        ),
        Panel(
            "99 % of pods are made within",
            "ms",
            {"pods": _p99("volcano_controller_job_to_pod_creation_latency_milliseconds")},
        ),
        Panel(
            "Victims of the last cycle that had any",
            "short",
            {"pods": "max(volcano_pod_preemption_victims)"},
        ),
    ),
    "Cycles": (
        Panel(
            "99 % of cycles end within",
            "ms",
            {"cycle": _p99("volcano_e2e_scheduling_latency_milliseconds")},
        ),
        Panel(
            "Time in actions, per second",
            "ms",
            {
                "{{action}}": "sum by (action)"
                " (rate(volcano_action_scheduling_latency_milliseconds_sum[5m]))"
            },
        ),
        Panel(
            "Time in plugins, per second",
            "ms",
            {
                "{{plugin}}": "sum by (plugin)"
                " (rate(volcano_plugin_scheduling_latency_milliseconds_sum[5m]))"
            },
        ),
    ),
}

PARTS: Final = {
    "Who leads": (
        Panel("Scheduler", "bool", {"{{pod}}": "pumice_leader"}),
        Panel("Cache", "bool", {"{{pod}}": "pumice_cache_leader"}),
        Panel("Lag of event loops", "s", {"{{pod}}": "pumice_loop_lag_seconds"}),
    ),
    "From the API server to the bus": (
        Panel("Objects held", "short", {"{{kind}}": "max by (kind) (pumice_cache_objects)"}),
        Panel(
            "Facts published per second",
            "ops",
            {"{{kind}}": "sum by (kind) (rate(pumice_cache_facts_published_total[5m]))"},
        ),
        Panel("Facts that wait", "short", {"{{pod}}": "pumice_cache_facts_waiting"}),
        Panel(
            "99 % of facts are on the bus within",
            "s",
            {"facts": _p99("pumice_cache_publish_seconds")},
        ),
        Panel(
            "Lists and watches that broke, per second",
            "ops",
            {"{{kind}}": "sum by (kind) (rate(pumice_cache_watch_interruptions_total[5m]))"},
        ),
        Panel("NATS stores", "bool", {"{{pod}}": "pumice_bus_stores"}),
    ),
    "Decisions": (
        Panel("99 % of decisions take", "s", {"decide": _p99("pumice_scheduler_decide_seconds")}),
        Panel(
            "99 % of plans are published within",
            "s",
            {"publish": _p99("pumice_scheduler_publish_seconds")},
        ),
        Panel(
            "Pods assumed and not seen yet", "short", {"{{pod}}": "pumice_scheduler_assumed_pods"}
        ),
    ),
    "Intents": (
        Panel(
            "99 % of intents end within",
            "s",
            {"{{intent}}": _p99("pumice_binder_intent_seconds", "intent")},
        ),
        Panel(
            "Messages that wait for a binder",
            "short",
            {"{{stream}}": "sum by (stream) (pumice_binder_backlog)"},
        ),
        Panel(
            "Pods of intents per second, by result",
            "ops",
            {
                "{{intent}} {{result}}": "sum by (intent, result)"
                " (rate(pumice_binder_items_total[5m]))"
            },
        ),
        Panel("API requests under way", "short", {"{{pod}}": "pumice_binder_in_flight"}),
        Panel(
            "API requests repeated per second",
            "ops",
            {"{{verb}}": "sum by (verb) (rate(pumice_binder_retries_total[5m]))"},
        ),
        Panel(
            "Writes of the controllers per second",
            "ops",
            {"{{verb}} {{kind}}": "sum by (verb, kind) (rate(pumice_controller_writes_total[5m]))"},
        ),
    ),
    "Answers and troubles": (
        Panel(
            "99 % of reviews are answered within",
            "s",
            {"{{hook}}": _p99("pumice_admission_seconds", "hook")},
        ),
        Panel(
            "99 % of queries to visibility are answered within",
            "s",
            {"{{resource}}": _p99("pumice_visibility_seconds", "resource")},
        ),
        Panel(
            "Quarantined objects",
            "short",
            {"{{kind}}": "sum by (kind) (pumice_quarantined_objects)"},
        ),
    ),
}

DASHBOARDS: Final = {
    "pumice-work": ("Pumice: queues, jobs, cycles", WORK),
    "pumice-parts": ("Pumice: its parts", PARTS),
}


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines line by line."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
    ),
)


def dump(*documents: dict[str, Any]) -> str:
    """Return documents as YAML that a person can read."""
    return yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False)


def expressions() -> list[str]:
    """Return every expression of every panel."""
    return [
        expression
        for _, rows in DASHBOARDS.values()
        for panels in rows.values()
        for panel in panels
        for expression in panel.lines.values()
    ]


def dashboards() -> dict[str, str]:
    """Return the JSON of each dashboard by its name."""
    return {name: _text(dashboard(name, title, rows)) for name, (title, rows) in DASHBOARDS.items()}


def dashboard(name: str, title: str, rows: dict[str, tuple[Panel, ...]]) -> dict[str, Any]:
    """Return a dashboard in Grafana's form; the data source is one of its variables."""
    panels: list[dict[str, Any]] = []
    y = 0
    for row, graphs in rows.items():
        panels.append(_row(row, y, number=len(panels)))
        y += 1
        for at, graph in enumerate(graphs):
            line, column = divmod(at, _PER_ROW)
            place = {"x": column * _WIDTH, "y": y + line * _HEIGHT, "w": _WIDTH, "h": _HEIGHT}
            panels.append(_graph(graph, place, number=len(panels)))
        y += _HEIGHT * -(-len(graphs) // _PER_ROW)
    return {
        "uid": name,
        "title": title,
        "tags": ["pumice"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [{"name": "source", "type": "datasource", "query": "prometheus"}],
        },
        "panels": panels,
    }


def _row(title: str, y: int, *, number: int) -> dict[str, Any]:
    place = {"x": 0, "y": y, "w": _WIDTH * _PER_ROW, "h": 1}
    return {"id": number + 1, "type": "row", "title": title, "gridPos": place, "panels": []}


def _graph(graph: Panel, place: dict[str, int], *, number: int) -> dict[str, Any]:
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": graph.title,
        "gridPos": place,
        "datasource": {"type": "prometheus", "uid": "${source}"},
        "fieldConfig": {"defaults": {"unit": graph.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + at), "expr": expression, "legendFormat": legend}
            for at, (legend, expression) in enumerate(graph.lines.items())
        ],
    }


def manifests() -> str:
    """Return the ConfigMaps as YAML."""
    maps = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": f"{name}-dashboard",
                "namespace": "pumice-system",
                "labels": {"app.kubernetes.io/part-of": "pumice", "grafana_dashboard": "1"},
            },
            "data": {f"{name}.json": text},
        }
        for name, text in dashboards().items()
    ]
    head = "# Grafana's dashboards, made by `make crds` from tools/write_dashboards.py.\n"
    return head + dump(*maps)


def _text(value: dict[str, Any]) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=1).decode()


if __name__ == "__main__":
    FILE.write_text(manifests(), encoding="utf-8")
