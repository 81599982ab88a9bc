"""Writes `k8s/monitoring/plain`: what k8s/monitoring says, for a Prometheus without the operator.

`make crds` calls it. The rules are those of `alerts.yaml` and the dashboards those of
`tools.write_dashboards`; beside them stand the targets of the Compose stack and what Grafana reads
when it starts. docker-compose.yml mounts the files.
"""

from pathlib import Path
from typing import Any, Final

import yaml

from pumice.local import names
from tools.write_dashboards import dashboards, dump

ROOT: Final = Path(__file__).parents[1]
MONITORING: Final = ROOT / "k8s" / "monitoring"
FOLDER: Final = MONITORING / "plain"
SERVICES: Final = tuple(sorted((*names.SERVICES, "declarer")))
PORT: Final = 8080
"""Where each service of docker-compose.yml shows its metrics."""
DASHBOARDS: Final = "/etc/grafana/provisioning/dashboards"
PROMETHEUS: Final = "http://prometheus:9090"
_HEAD: Final = "# Made by `make crds` from {source}.\n"


def files() -> dict[str, str]:
    """Return the text of each file by its path in the folder."""
    return {
        "prometheus.yml": _text("service-monitor.yaml and tools/write_monitoring.py", targets()),
        "alerts.yml": _text("alerts.yaml", rules()),
        "grafana/datasources/pumice.yml": _text("tools/write_monitoring.py", _sources()),
        "grafana/dashboards/pumice.yml": _text("tools/write_monitoring.py", _providers()),
        **{f"grafana/dashboards/{name}.json": text for name, text in dashboards().items()},
    }


def rules() -> dict[str, Any]:
    """Return the groups of alerts as a file of rules."""
    spec: dict[str, Any] = yaml.safe_load((MONITORING / "alerts.yaml").read_text("utf-8"))["spec"]
    return spec


def targets() -> dict[str, Any]:
    """Return the configuration of a Prometheus that scrapes the services of the Compose stack."""
    interval = _interval()
    return {
        "global": {"scrape_interval": interval, "evaluation_interval": interval},
        "rule_files": ["alerts.yml"],
        "scrape_configs": [
            scrape(service, f"{service}:{PORT}", pod=service) for service in SERVICES
        ],
    }


def scrape(service: str, *addresses: str, pod: str) -> dict[str, Any]:
    """Return the targets of a service, with the labels by which alerts and dashboards go."""
    return {
        "job_name": f"pumice-{service}",
        "static_configs": [{"targets": list(addresses), "labels": {"pod": pod}}],
    }


def _interval() -> str:
    monitor = yaml.safe_load((MONITORING / "service-monitor.yaml").read_text("utf-8"))
    return str(monitor["spec"]["endpoints"][0]["interval"])


def _sources() -> dict[str, Any]:
    source = {
        "name": "Prometheus",
        "type": "prometheus",
        "access": "proxy",
        "url": PROMETHEUS,
        "isDefault": True,
        "jsonData": {"timeInterval": _interval()},
    }
    return {"apiVersion": 1, "datasources": [source]}


def _providers() -> dict[str, Any]:
    provider = {
        "name": "pumice",
        "type": "file",
        "allowUiUpdates": False,
        "options": {"path": DASHBOARDS},
    }
    return {"apiVersion": 1, "providers": [provider]}


def _text(source: str, value: dict[str, Any]) -> str:
    return _HEAD.format(source=source) + dump(value)


if __name__ == "__main__":
    for name, text in files().items():
        path = FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
