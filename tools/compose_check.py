"""Brings docker-compose.yml up for real and runs the demo on it: `make compose-check`.

Not part of `make test`: it needs a Docker daemon, or root and dockerd to start one. It leaves no
container, network or volume behind; images, Compose and the daemon's own data stay in the user's
cache.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Final

from pumice.local.errors import LocalError
from tools.compose_docker import CheckError, Docker, docker
from tools.compose_images import ensure, version_of_project

_READY_S: Final = 300
_DEMO_S: Final = 300.0


def check(tools: Docker) -> None:
    """Bring the stack up, run the demo, take the stack down. Raises CheckError."""
    ensure(tools, f"pumice:{version_of_project()}")
    down(tools)  # what an interrupted check may have left
    try:
        step("the stack is up and every service ready", lambda: up(tools))
        step("the demo's jobs have completed", lambda: demo(tools))
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


def down(tools: Docker) -> None:
    """Remove the stack with its volumes."""
    if not tools.compose("--profile", "demo", "down", "--volumes", "--timeout=20"):
        print("error: the stack could not be taken down whole", file=sys.stderr)


def main() -> int:
    """Check; return the exit code."""
    # A free port each, so that the check does not meet what runs on this machine already.
    os.environ.setdefault("PUMICE_API_PORT", "0")
    os.environ.setdefault("PUMICE_NATS_PORT", "0")
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
