"""kubectl of the pinned release, for tests that do what a person does at a terminal.

It is built once per user from the pinned module in `kubectl_module` and kept in the cache: what is
on the machine's PATH may be of any age, and serves only where there is no Go.
"""

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

from pumice.local.errors import LocalError
from pumice.local.golang import find_go
from pumice.local.parts import parts_dir
from pumice.local.versions import versions

MODULE = Path(__file__).with_name("kubectl_module")
STAMP = f"k8s.io/component-base/version.gitVersion=v{versions().parts['kubernetes']}"


def kubectl() -> Path:
    """Return the program, after building it when it is not there yet (about a minute)."""
    folder = parts_dir("kubernetes").with_name(f"tests-{parts_dir('kubernetes').name}")
    program = folder / "kubectl"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            go = _go()
            if go is None:
                return Path(shutil.which("kubectl") or program)
            draft = folder / f"kubectl.{os.getpid()}"
            subprocess.run(
                [
                    *(go, "build", "-mod=readonly", "-buildvcs=false"),
                    *("-ldflags", f"-s -w -X {STAMP}", "-o", draft, "."),
                ],
                cwd=MODULE,
                env={**os.environ, "GOTOOLCHAIN": "local", "GOWORK": "off"},
                check=True,
            )
            draft.rename(program)
    return program


def _go() -> Path | None:
    try:
        return find_go().path
    except LocalError:
        return None
