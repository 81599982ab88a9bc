"""`make node-check`: k8s/base on two real kubelets, then real jobs in real containers.

Not part of `make test`: it needs root on a Linux machine. It leaves nothing behind but programs and
images in the user's cache.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from pumice.local.errors import LocalError
from tools.compose_docker import ROOT, CheckError
from tools.node_check import frameworks
from tools.node_check.faults import FAULTS
from tools.node_check.images import archives
from tools.node_check.installing import install, kept_its_promises
from tools.node_check.jobs import CHECKS, Check
from tools.node_check.machine import Machine, cgroups
from tools.node_check.programs import Programs, cost, find

_INSIDE: Final = "--inside"
_FRAMEWORKS: Final = "--frameworks"
_NAMESPACES: Final = ("--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child")
_SYSCTLS: Final = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
)
"""Settings of the machine that a kubelet changes."""


class _Work(msgspec.Struct, frozen=True):
    folder: Path
    programs: Programs
    archives: list[Path]


def main(argv: list[str]) -> int:
    """Check; return the exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing outlives this
    try:
        return _inside(argv[1], argv[2:]) if argv[:1] == [_INSIDE] else _outside(argv)
    except (CheckError, LocalError, subprocess.SubprocessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _outside(names: list[str]) -> int:
    print(cost(), flush=True)
    if os.geteuid() != 0:
        raise CheckError("this needs root: it makes network and mount namespaces and cgroups")
    with_frameworks = _FRAMEWORKS in names
    programs = find(frameworks.programs() if with_frameworks else {})
    made = archives(programs, frameworks=with_frameworks)
    folder = Path(tempfile.mkdtemp(prefix="pumice-node-"))
    (folder / "work.json").write_bytes(
        msgspec.json.encode(_Work(folder, programs, made), enc_hook=str)
    )
    before = {name: (Path("/proc/sys") / name).read_text() for name in _SYSCTLS}
    again = (sys.executable, "-m", "tools.node_check", _INSIDE, str(folder), *names)
    try:
        with cgroups():
            ended = subprocess.run(["unshare", *_NAMESPACES, *again], cwd=ROOT, check=False)
    finally:
        for name, value in before.items():
            (Path("/proc/sys") / name).write_text(value)
    if ended.returncode:
        print(f"node-check: failed; the logs are in {folder}/logs", file=sys.stderr)
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    print("node-check: passed")
    return 0


def _inside(folder: str, names: list[str]) -> int:
    work = msgspec.json.decode(
        (Path(folder) / "work.json").read_bytes(), type=_Work, dec_hook=_path
    )
    machine = Machine(work.folder, work.programs, work.archives)
    _step("two nodes are ready", machine.start)
    _step("Pumice is installed as docs/deployment.md says, all ready", lambda: install(machine))
    checks = FAULTS | CHECKS
    if _FRAMEWORKS in names:
        names.remove(_FRAMEWORKS)
        checks = FAULTS | frameworks.CHECKS | CHECKS  # the last of CHECKS stops a node
    failed = [
        what
        for what, check in checks.items()
        if (not names or check.__name__ in names) and not _passes(machine, what, check)
    ]
    _step("no restart, no unready pod, no refused request", lambda: kept_its_promises(machine))
    return 1 if failed else 0


def _passes(machine: Machine, what: str, check: Check) -> bool:
    try:
        _step(what, lambda: check(machine))
    except CheckError as error:
        print(f"node-check: FAILED: {what}: {error}", flush=True)
        return False
    return True


def _path(_: type, text: str) -> Path:
    return Path(text)


def _step(what: str, action: Callable[[], str | None]) -> None:
    begin = time.monotonic()
    told = action()
    more = f"; {told}" if told else ""
    print(f"node-check: {what} ({time.monotonic() - begin:.1f} s{more})", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
