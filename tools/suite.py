"""Runs the stages of the test suite and ends with one line that says how it went.

`python -m tools.suite [lint fast laws contract integration restart]`; without names all of these,
with the parts of the local cluster being built beside the first ones if missing; the stages
`kubectl`, `helm`, `web` and `native` run only when they are named. Stages run one after the other,
but for `lint` and `laws`: no test of theirs waits, and they run beside the others, which wait for
servers much of the time. Every stage runs even when an earlier one failed. Up to three tests that
fail against real servers are run once more, alone, to tell a test that a busy machine has starved
from one that fails. The last line names those, and each of them is a fault to be mended: with
STRICT=true or CI=true in the environment a stage that needed it has failed. After the stages with
services on real API servers their requests are compared with their roles (`tools.roles`): a rule
that is missing has failed the suite and, once all of these stages have passed, so has a rule that
nothing needs. Standard library only.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
PYTEST = [str(BIN / "pytest"), "-q"]
SHARED = ["--dist", "loadfile", "-n"]
"""Tests that share servers go to one of so many workers (`tests/conftest.py`)."""
SERVERLESS = ["tests/conformance", "tests/unit"]
"""Folders whose tests are fast unless marked: the others need seconds to be read and left out."""
LAWFUL = ["tests/property", "tests/sim", "tests/unit/controller"]
ON_API_SERVERS = ["tests/integration", "tests/contract/apiserver"]
"""Folders of these stages: each worker reads all files of its stage before its first test."""
STAGES = {
    "lint": [
        [str(BIN / "ruff"), "check", "--quiet", "."],
        [str(BIN / "ruff"), "format", "--check", "--quiet", "."],
        [str(BIN / "mypy"), "--no-error-summary"],
        [str(BIN / "lint-imports")],
    ],
    "fast": [[*PYTEST, "-n", "3", "-m", "not nats and not kube and not laws", *SERVERLESS]],
    "laws": [[*PYTEST, "-n", "2", "-m", "laws", *LAWFUL]],
    "contract": [
        [*PYTEST, *SHARED, "6", "-m", "nats and not kubectl and not helm", "tests/contract"]
    ],
    "integration": [
        [*PYTEST, *SHARED, "4", "-m", "kube and not kubectl and not helm", *ON_API_SERVERS]
    ],
    "restart": [[*PYTEST, *SHARED, "4", "-m", "restart", "tests/restart"]],
    "kubectl": [[*PYTEST, "-n", "2", "-m", "kubectl", "tests"]],
    "helm": [[*PYTEST, "-m", "helm", "tests"]],
    "web": [[*PYTEST, "-m", "web", "tests/web"]],
    "native": [[*PYTEST, "-m", "native", "tests/native"]],
}
"""Tests on real servers wait for them most of the time: four at once fill two cores, and six of
those that wait for leases and timeouts (contract)."""
NEEDS_PARTS = {"integration", "restart", "kubectl", "helm", "native"}
BESIDE = ("lint", "laws")
"""Stages that no deadline hurries: they run beside the others, one after the other."""
GENTLE = {"laws": ["nice", "-n", "10"]}
"""Stages that compute all the time take what the servers of the others leave of the machine.

So one of their tests may last fifty times as long as alone.
"""
APART = {"kubectl", "helm", "web", "native"}
"""Stages that need more than Python and what the suite builds: a new Go, or a browser."""
PROGRAMS = {"kubectl": ["kubectl"], "helm": ["kubectl", "helm"], "native": ["native"]}
"""Built before the tests of a stage, whose deadlines are not for a build."""
COUNTS = re.compile(r"\d+ (?:passed|failed|errors?|skipped|xfailed)")
REAL_SERVERS = {"contract", "integration", "restart", "kubectl", "helm", "web", "native"}
AUDITED = {"integration", "restart"}
"""Stages whose API servers write down what the services ask for (tests/support/roles.py)."""
AUDIT_DIRECTORY = "PUMICE_AUDIT_DIRECTORY"
MOST_AGAIN = 3
"""More failures than this are no accident of a busy machine."""
PRINTING = threading.Lock()
"""The output of a stage beside others comes in one piece."""


class Result(NamedTuple):
    """How one stage ended."""

    stage: str
    ok: bool
    words: str
    seconds: float


def main(names: list[str]) -> int:
    """Run the named stages; returns the exit code."""
    if unknown := [name for name in names if name not in STAGES]:
        print(f"error: no stage {unknown[0]!r}; there are {', '.join(STAGES)}", file=sys.stderr)
        return 2
    stages = names or [name for name in STAGES if name not in APART]
    begin = time.monotonic()
    building = build_parts() if NEEDS_PARTS & set(stages) else None
    with contextlib.ExitStack() as finally_:
        audit = finally_.enter_context(tempfile.TemporaryDirectory())
        if building is not None:
            finally_.callback(end, building)
        results = run_all(stages, audit, building)
        if audited := [result for result in results if result.stage in AUDITED]:
            results.append(compare_roles(audit, audited))
    return summarize(results, time.monotonic() - begin)


def lanes(stages: list[str]) -> tuple[list[str], list[str]]:
    """Return the stages whose output is shown as it comes, and those that run beside them."""
    first = [stage for stage in stages if stage not in BESIDE]
    beside = [stage for stage in stages if stage in BESIDE]
    return (first, beside) if first else (beside, [])


def run_all(
    stages: list[str], audit: str, building: "subprocess.Popen[bytes] | None"
) -> list[Result]:
    """Run the stages; returns how each ended, in the order of `stages`."""
    first, beside = lanes(stages)
    results = []
    with contextlib.ExitStack() as at_end:
        pool = ThreadPoolExecutor(1)
        at_end.callback(pool.shutdown, cancel_futures=True)
        others = [pool.submit(run_beside, stage) for stage in beside]
        for stage in first:
            if stage in NEEDS_PARTS and building is not None and building.wait():
                results.append(Result(stage, ok=False, words="parts not built", seconds=0.0))
                continue
            show(f"── {stage}\n")
            results.append(run(stage, audit=audit if stage in AUDITED else ""))
        results += [other.result() for other in others]
    return sorted(results, key=lambda result: stages.index(result.stage))


def build_parts() -> "subprocess.Popen[bytes]":
    """Start the build of what is missing; it ends at once when nothing is."""
    return subprocess.Popen([str(BIN / "pumice"), "parts", "build"], cwd=ROOT)


def end(process: "subprocess.Popen[bytes]") -> None:
    """Leave no build behind when the suite is interrupted."""
    if process.poll() is None:
        process.terminate()
        process.wait()


def run(stage: str, say: Callable[[str], None] | None = None, *, audit: str = "") -> Result:
    """Run one stage and show its output as it comes, or hand it to `say`.

    `audit` is the folder for audit logs, if they are wanted.
    """
    begin = time.monotonic()
    failed, words = False, ""
    for name in PROGRAMS.get(stage, ()):
        if once([sys.executable, "-m", "tests.support.goprograms", name], say)[0]:
            return Result(stage, ok=False, words=f"{name} not built", seconds=_since(begin))
    for command in STAGES[stage]:
        code, summary = (
            twice(command, forgiving=not strict(), audit=audit)
            if stage in REAL_SERVERS
            else once([*GENTLE.get(stage, []), *command], say)
        )
        failed |= bool(code)
        words = summary or words
        if code and not words:
            words = f"{Path(command[0]).name} found something"
    return Result(stage, not failed, words, _since(begin))


def _since(begin: float) -> float:
    return time.monotonic() - begin


def run_beside(stage: str) -> Result:
    """Run one stage beside others and show its output when it has ended."""
    said: list[str] = []
    result = run(stage, said.append)
    show("".join([f"── {stage}, which ran beside the others\n", *said]))
    return result


def show(text: str) -> None:
    """Print in one piece."""
    with PRINTING:
        print(text, end="", flush=True)


def compare_roles(audit: str, stages: list[Result]) -> Result:
    """Compare what the services asked for with their roles."""
    print("── roles", flush=True)
    begin = time.monotonic()
    whole = all(stage.ok for stage in stages) and {stage.stage for stage in stages} == AUDITED
    code, words = tee([sys.executable, "-m", "tools.roles", audit, *(["--whole"] if whole else [])])
    return Result("roles", not code, words, time.monotonic() - begin)


def once(
    command: list[str], say: Callable[[str], None] | None = None, *, audit: str = ""
) -> tuple[int, str]:
    """Run a command; returns its exit code and how many tests ended how."""
    code, last = tee(command, say, audit=audit)
    return code, ", ".join(COUNTS.findall(last))


def strict(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether a test that passes only alone is a failure: where it is asked for, and in CI.

    What runs unwatched must not hide a flaky test; a person at a busy laptop reads the last line.
    """
    return any(environ.get(name, "").lower() in {"true", "1"} for name in ("STRICT", "CI"))


def twice(pytest: list[str], *, forgiving: bool, audit: str = "") -> tuple[int, str]:
    """Run tests, and the few that failed once more; returns as `once` does, and names those."""
    with tempfile.TemporaryDirectory() as cache:
        remembering = [*pytest, "-o", f"cache_dir={cache}"]
        code, summary = once(remembering, audit=audit)
        failed = failures(Path(cache))
        if not code or not 0 < len(failed) <= MOST_AGAIN:
            return code, summary
        names = ", ".join(name.rpartition("::")[2] for name in failed)
        show(f"── once more, alone: {names}\n")
        first, (code, _) = code, once([*remembering, "-n", "0", "--last-failed"], audit=audit)
        if code:
            return code, summary
        return 0 if forgiving else first, f"{summary}, PASSED ONLY ALONE: {names}"


def failures(cache: Path) -> list[str]:
    """Return the tests that failed, as pytest keeps them for `--last-failed`."""
    kept = cache / "v" / "cache" / "lastfailed"
    return sorted(json.loads(kept.read_text("utf-8"))) if kept.exists() else []


def tee(
    command: list[str], say: Callable[[str], None] | None = None, *, audit: str = ""
) -> tuple[int, str]:
    """Run a command with its output on ours, or to `say`; returns its exit code and last line.

    What Python compiles is kept even where the environment forbids it, as images of containers do:
    the suite starts hundreds of Pythons, and each would compile the same modules again.
    """
    last = ""
    environ = {**os.environ, AUDIT_DIRECTORY: audit, "PYTHONUNBUFFERED": "1"}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with subprocess.Popen(
        command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            (say or show)(line)
            last = line.strip() or last
    return process.returncode, last


def summarize(results: list[Result], seconds: float) -> int:
    """Print the one line; returns the exit code."""
    parts = []
    for result in results:
        details = ", ".join(filter(None, [result.words, clock(result.seconds)]))
        parts.append(f"{'' if result.ok else 'FAILED '}{result.stage} ({details})")
    ok = all(result.ok for result in results)
    print(f"{'all passed' if ok else 'FAILED'} in {clock(seconds)}: {' · '.join(parts)}")
    return 0 if ok else 1


def clock(seconds: float) -> str:
    """Return a duration for a person."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
