"""The health check of a service in Compose: ready is healthy, and one that does not live is ended.

Docker starts a container again when its process ends, and leaves one that is unhealthy alone. So
this program does what the kubelet does with the liveness probe of k8s/base: it ends the service
when `/livez` has failed three times in a row. Whether it is ready is what Compose waits for.
"""

import os
import signal
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

FAILURES: Final = 3
"""Failed checks of liveness in a row after which a service is ended, as in k8s/base."""
_TIMEOUT_S: Final = 5.0
_SERVICE: Final = "services."


def check(address: str, folder: Path, processes: Callable[[], list[int]]) -> str:
    """Check a service once; return "" if it is ready, else why not.

    `folder` keeps how often it failed, `processes` gives those to end.
    """
    count = folder / "failed-checks-of-liveness"
    if not (why := _probe(f"http://{address}/livez")):
        count.unlink(missing_ok=True)
        return _probe(f"http://{address}/readyz")
    failed = 1 + (int(count.read_text()) if count.exists() else 0)
    if failed < FAILURES:
        count.write_text(str(failed))
        return why
    count.unlink(missing_ok=True)
    return f"{why}; ended {[end(pid) for pid in processes()]}"


def services() -> list[int]:
    """Return the service of this container: the child of its first process, `init` of Docker."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            words = (folder / "cmdline").read_text(errors="replace").split("\0")
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:  # it has ended
            continue
        is_service = any(a == "-m" and b.startswith(_SERVICE) for a, b in pairwise(words))
        if parent == "1" and is_service:
            found.append(int(folder.name))
    return found


def end(pid: int) -> int:
    """Kill a process that does not respond."""
    os.kill(pid, signal.SIGKILL)
    return pid


def _probe(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S):  # noqa: S310 - our own address
            return ""
    except OSError as error:
        return f"{url}: {error}"


def main(argv: Sequence[str]) -> int:
    """Check the service at an address; the exit code is 1 when it is not ready."""
    why = check(argv[0], Path(tempfile.gettempdir()), services)
    print(why or "ready")  # noqa: T201 - Docker keeps what a check says
    return 1 if why else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
