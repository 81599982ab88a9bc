"""The profile `monitoring` of the Compose stack, as `make compose-check` tries it.

Prometheus scrapes every service, evaluates every alert and knows the jobs of the demo. Grafana runs
beside it where its image can be had; none is made, for it has no module that builds it.
"""

from typing import Final

from pumice.local.versions import versions
from tests.support.goprograms import prometheus, promtool
from tools.compose_docker import CheckError, Docker, of_programs
from tools.prometheus import Prometheus, PrometheusError, wait_for
from tools.write_monitoring import SERVICES

PROGRAMS: Final = {"/bin/prometheus": prometheus, "/bin/promtool": promtool}
"""Programs that docker-compose.yml calls in the image of Prometheus, and their builders."""

_UP_S: Final = 120
_SCRAPED_S: Final = 60.0
"""Four scrapes: the first may meet a service at its start."""
_LEAST_PLACED: Final = 20
"""Pods of the demo, without those of jobs that grow."""


def make_image(docker: Docker, name: str) -> None:
    """Make an image of Prometheus and promtool. Raises CheckError."""
    of_programs(docker, name, {target: build() for target, build in PROGRAMS.items()})


def up(tools: Docker) -> bool:
    """Start the profile; return whether it became healthy."""
    names = ["prometheus"]
    if tools.has_image(versions().images["grafana"]):
        names.append("grafana")
    else:
        print("compose-check: there is no image of Grafana to be had: it is not started")
    flags = ("--detach", "--no-build", "--no-deps", "--wait", f"--wait-timeout={_UP_S}")
    return tools.compose("--profile", "monitoring", "up", *flags, *names, timeout_s=_UP_S + 60)


def watches(tools: Docker) -> bool:
    """Return whether every service is scraped and every rule evaluated, once they had time."""
    server = _server(tools)
    wanted = {f"pumice-{service}" for service in SERVICES}

    def missing() -> object:
        return server.down() or wanted - {each["metric"]["job"] for each in server.query("up == 1")}

    try:
        wait_for("every service is scraped", missing, deadline_s=_SCRAPED_S)
        wait_for("every rule is evaluated", server.unwell, deadline_s=_SCRAPED_S)
    except PrometheusError as error:
        print(error)
        return False
    return True


def knows(tools: Docker, jobs: set[str]) -> bool:
    """Return whether it tells, soon, that these jobs completed and how many pods were placed."""
    server = _server(tools)

    def missing() -> set[str]:
        series = server.query("volcano_job_completed_phase_count >= 1")
        return jobs - {each["metric"]["job_name"] for each in series}

    placed = f'sum(volcano_schedule_attempts_total{{result="scheduled"}}) >= {_LEAST_PLACED}'
    try:
        wait_for("the jobs of the demo completed", missing, deadline_s=_SCRAPED_S)
        wait_for("their pods are placed", lambda: not server.has(placed), deadline_s=_SCRAPED_S)
    except PrometheusError as error:
        print(error)
        return False
    return True


def _server(tools: Docker) -> Prometheus:
    address = tools.compose_output("--profile", "monitoring", "port", "prometheus", "9090").strip()
    if not address:
        raise CheckError("Prometheus has no port on this machine")
    return Prometheus(f"http://{address}")
