"""Brings docker-compose.yml up for real and runs the demo on it: `make compose-check`.

Not part of `make test`: it needs a Docker daemon, or root and dockerd to start one. It leaves no
container, network or volume behind; images, Compose and the daemon's own data stay in the user's
cache.

Images are pulled, else made here under their public names: those of the parts of the very programs
that the local stack runs, one static program in an empty image; the Python base is a small Debian
with its own Python. Both are for this check only, and it says so. Our own image is always built
from the Dockerfile.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import Final

from pumice.demo import story
from pumice.local import parts
from pumice.local.errors import LocalError
from pumice.local.versions import versions
from tools import compose_monitoring
from tools.compose_docker import ROOT, CheckError, Docker, docker, of_debian, of_program

_READY_S: Final = 300
_DEMO_S: Final = 300.0
PROGRAMS: Final = {
    "etcd": "/usr/local/bin/etcd",
    "kube-apiserver": "/usr/local/bin/kube-apiserver",
    "kube-controller-manager": "/usr/local/bin/kube-controller-manager",
    "kwok": "/usr/local/bin/kwok",
    "nats-server": "/nats-server",
}
"""Where each public image has its program, as docker-compose.yml names it."""

STRUCK: Final = (
    *("scheduler", "cache", "controller", "binder", "admission", "visibility", "declarer"),
    *("nats", "etcd", "kube-apiserver", "kwok"),
)
"""What is restarted, killed and frozen, one after the other."""
_STRIKE_S: Final = 60.0
_FROZEN_S: Final = 8.0
"""Longer than a lease of a leader lasts."""
_HEALTHY_S: Final = 60.0
_INTO_THE_DEMO_S: Final = 4.0
"""When its first jobs run and others wait; it takes ten seconds."""
_PULL_S: Final = 600.0
_OF_PYTHON: Final = "python3,python3-venv,ca-certificates"
_CERTIFICATES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
_PIP_CONFIG: Final = Path("/etc/pip.conf")


def check(tools: Docker) -> None:
    """Bring the stack up, run the demo, take the stack down. Raises CheckError."""
    ensure(tools, f"pumice:{version_of_project()}")
    for part in ("prometheus", "grafana"):
        ensure_image(tools, part)
    down(tools)  # what an interrupted check may have left
    try:
        step("the stack is up and every service ready", lambda: up(tools))
        step("Prometheus watches every service", lambda: watched(tools))
        step("the demo's jobs have completed", lambda: demo(tools))
        step(
            "Prometheus has the figures of these jobs",
            lambda: compose_monitoring.knows(tools, jobs()),
        )
        for name in STRUCK:
            for what, fault in FAULTS.items():
                step(f"{name} {what} amid the demo", partial(amid_the_demo, tools, fault, name))
    except CheckError:
        tools.compose("ps", "--all")
        tools.compose("logs", "--tail=30", "--no-color")
        raise
    finally:
        down(tools)


def step(what: str, action: Callable[[], bool]) -> None:
    """Do one step and tell how long it took; raises CheckError when it fails."""
    begin = time.monotonic()
    if not action():
        raise CheckError(f"not so: {what}; the state and the logs are above")
    print(f"compose-check: {what} ({time.monotonic() - begin:.0f} s)", flush=True)


def up(tools: Docker) -> bool:
    """Start everything; return whether every service became healthy."""
    flags = ("--detach", "--no-build", "--wait", f"--wait-timeout={_READY_S}")
    return tools.compose("up", *flags, timeout_s=_READY_S + 60)


def demo(tools: Docker) -> bool:
    """Run the demo's container to its end; return whether it ended with success."""
    return tools.compose(
        "--profile", "demo", "run", "--rm", "-T", "--no-deps", "demo", timeout_s=_DEMO_S
    )


def watched(tools: Docker) -> bool:
    """Start the profile of monitoring; return whether it scrapes and judges all that it should."""
    return compose_monitoring.up(tools) and compose_monitoring.watches(tools)


def jobs() -> set[str]:
    """Return the keys of the demo's jobs."""
    return {job.key for wave in story.waves(ROOT / "examples") for job in wave}


def amid_the_demo(tools: Docker, fault: Callable[[Docker, str], bool], name: str) -> bool:
    """Strike a part while the demo's jobs run; return whether all completed and it is healthy."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        ended = thread.submit(demo, tools)
        if wait([ended], timeout=_INTO_THE_DEMO_S).done:
            raise CheckError("the demo was over before anything could be struck")
        struck = fault(tools, name)
        return ended.result() and struck and healthy_again(tools)


def healthy_again(tools: Docker) -> bool:
    """Wait until every service is healthy; `up --wait` ends at once while one is not."""
    end = time.monotonic() + _HEALTHY_S
    while not up(tools):
        if time.monotonic() > end:
            return False
        time.sleep(1)
    return True


def restart(tools: Docker, name: str) -> bool:
    """Restart a part as an operator does."""
    return tools.compose("restart", name, timeout_s=_STRIKE_S)


def kill(tools: Docker, name: str) -> bool:
    """Kill a part without a warning and start it again: Docker does not restart what it killed."""
    return tools.compose("kill", "--signal=KILL", name, timeout_s=_STRIKE_S) and tools.compose(
        "start", name, timeout_s=_STRIKE_S
    )


def freeze(tools: Docker, name: str) -> bool:
    """Stop a part's processes for a while; it goes on with what it believed before."""
    frozen = tools.compose("pause", name, timeout_s=_STRIKE_S)
    time.sleep(_FROZEN_S)
    return tools.compose("unpause", name, timeout_s=_STRIKE_S) and frozen


FAULTS: Final = {"restarts": restart, "is killed": kill, "is frozen": freeze}


def down(tools: Docker) -> None:
    """Remove the stack with its volumes."""
    if not tools.compose("--profile", "*", "down", "--volumes", "--timeout=20"):
        print("error: the stack could not be taken down whole", file=sys.stderr)


def ensure(docker: Docker, own_image: str) -> None:
    """Have our image and those of the parts beside it at the daemon. Raises CheckError."""
    for part in ("python", *PROGRAMS):
        ensure_image(docker, part)
    if not docker.run("build", "--network=host", "--tag", own_image, "."):
        raise CheckError("the image could not be built from the Dockerfile; see above")


def ensure_image(docker: Docker, part: str) -> None:
    """Have a public image at the daemon: pulled, else made here. Raises CheckError."""
    name = versions().images[part]
    if docker.has_image(name):
        return
    print(f"pulling {name}", flush=True)
    if not docker.run("pull", name, quiet=True, timeout_s=_PULL_S):
        _MADE[part](docker, name)


def _with_python(root: Path) -> None:
    """Have the Python of a Debian where the public image has its own, and what pip needs here."""
    (root / "usr/local/bin/python").symlink_to("/usr/bin/python3")
    for path in (_CERTIFICATES, _PIP_CONFIG):  # what this machine's pip needs, ours will too
        if path.exists():
            shutil.copy(path, root / path.relative_to("/"))


def _with_a_part(part: str, docker: Docker, name: str) -> None:
    of_program(docker, name, parts.require((part,))[part], target=PROGRAMS[part])


_MADE: Final[dict[str, Callable[[Docker, str], None]]] = {
    "python": partial(of_debian, packages=_OF_PYTHON, finish=_with_python),
    **{part: partial(_with_a_part, part) for part in PROGRAMS},
    "prometheus": compose_monitoring.make_image,
    "grafana": lambda *_: None,  # none can be made: the check goes on without
}
"""Makers of the public images that cannot be pulled, by part."""


def version_of_project() -> str:
    """Return the version in pyproject.toml, the tag of our own image."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return str(document["project"]["version"])


def main() -> int:
    """Check; return the exit code."""
    # A free port each, so that the check does not meet what runs on this machine already.
    os.environ.setdefault("PUMICE_API_PORT", "0")
    os.environ.setdefault("PUMICE_NATS_PORT", "0")
    os.environ.setdefault("PUMICE_PROMETHEUS_PORT", "0")
    os.environ.setdefault("PUMICE_GRAFANA_PORT", "0")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that `finally` takes it down
    try:
        with docker() as tools:
            check(tools)
    except (CheckError, LocalError, subprocess.CalledProcessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print("compose-check: passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
