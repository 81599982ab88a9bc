"""What restarts a service that does not live, and what outlives that, in each deployment."""

import http.server
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import pytest
import yaml

from pumice.deploy import compose_probe
from tests.support.manifests import BASE, ROOT, build

COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
DEPLOYMENTS = {
    o["metadata"]["name"].removeprefix("pumice-"): o["spec"]["template"]["spec"]
    for o in build(ROOT / "k8s" / "overlays" / "accounting")
    if o["kind"] in {"Deployment", "StatefulSet"}
}
SERVICES = sorted(
    name
    for name, service in COMPOSE["services"].items()
    if any(str(word).startswith("services.") for word in service.get("command", ()))
)


@pytest.mark.parametrize("name", SERVICES)
def test_compose_ends_what_does_not_live_as_the_kubelet_does(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["restart"] == "unless-stopped"
    assert service["init"] is True, "the first process of a container cannot be ended from within"
    probe = ["CMD", "python", "-P", "-m", "pumice.deploy.compose_probe", "127.0.0.1:8080"]
    assert service["healthcheck"]["test"] == probe
    (container,) = DEPLOYMENTS[name]["containers"]
    assert container["livenessProbe"]["httpGet"]["path"] == "/livez"
    assert container["livenessProbe"]["failureThreshold"] == compose_probe.FAILURES


def test_files_of_the_watchdog_outlive_the_scheduler_s_container_everywhere() -> None:
    compose = COMPOSE["services"]["scheduler"]
    (place,) = [w.partition("=")[2] for w in compose["command"] if w.startswith("--watchdog-dir=")]
    (volume,) = [v.partition(":")[0] for v in compose["volumes"] if v.endswith(f":{place}")]
    assert volume in COMPOSE["volumes"]
    credentials = COMPOSE["services"]["credentials"]["volumes"]
    assert f"{volume}:/credentials/watchdog" in credentials, (
        "which gives it to the scheduler's user"
    )
    manifests = [
        BASE / "services" / "scheduler.yaml",
        ROOT / "k8s" / "overlays" / "agent-scheduler" / "scheduler.yaml",
        ROOT / "k8s" / "chart" / "templates" / "services" / "scheduler.yaml",
        ROOT / "k8s" / "chart" / "templates" / "services" / "agent-scheduler.yaml",
    ]
    for path in manifests:
        assert "--watchdog-dir=/tmp/watchdog" in path.read_text(), path
    (container,) = DEPLOYMENTS["scheduler"]["containers"]
    (mount,) = [v["name"] for v in container["volumeMounts"] if v["mountPath"] == "/tmp"]
    (found,) = [v for v in DEPLOYMENTS["scheduler"]["volumes"] if v["name"] == mount]
    assert "emptyDir" in found


class Pages(http.server.BaseHTTPRequestHandler):
    """Health pages that say what a test wants."""

    failing: ClassVar[set[str]] = set()

    def do_GET(self) -> None:
        self.send_response(503 if self.path in self.failing else 200)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@contextmanager
def pages(*failing: str) -> Iterator[str]:
    Pages.failing = set(failing)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_a_service_that_fails_to_live_three_times_in_a_row_is_ended(tmp_path: Path) -> None:
    service = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        with pages("/livez") as address:
            for _ in range(compose_probe.FAILURES - 1):
                assert "/livez" in compose_probe.check(address, tmp_path, lambda: [service.pid])
            Pages.failing.clear()
            assert compose_probe.check(address, tmp_path, lambda: [service.pid]) == ""
            Pages.failing.add("/livez")
            for _ in range(compose_probe.FAILURES):
                assert service.poll() is None
                compose_probe.check(address, tmp_path, lambda: [service.pid])
        assert service.wait(timeout=30) == -9
    finally:
        service.kill()


def test_a_service_that_is_not_ready_is_unhealthy_and_goes_on(tmp_path: Path) -> None:
    with pages("/readyz") as address:
        for _ in range(2 * compose_probe.FAILURES):
            assert "/readyz" in compose_probe.check(address, tmp_path, lambda: pytest.fail("ended"))
