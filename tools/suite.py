"""Runs the stages of the test suite and ends with one line that says how it went.

`python -m tools.suite [lint fast laws contract integration restart]`; without names all of them, in
this order, with the parts of the local cluster being built beside the first ones if missing.
Every stage runs even when an earlier one failed. Up to three tests that fail against real servers
are run once more, alone: a busy machine may starve a server for longer than a deadline. The last
line names those, and each of them is a fault to be mended. Standard library only.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
PYTEST = [str(BIN / "pytest"), "-q"]
STAGES = {
    "lint": [
        [str(BIN / "ruff"), "check", "--quiet", "."],
        [str(BIN / "ruff"), "format", "--check", "--quiet", "."],
        [str(BIN / "mypy"), "--no-error-summary"],
        [str(BIN / "lint-imports")],
    ],
    "fast": [[*PYTEST, "-n", "2", "-m", "not nats and not kube and not laws", "tests"]],
    "laws": [[*PYTEST, "-n", "2", "-m", "laws", "tests"]],
    "contract": [[*PYTEST, "-n", "2", "-m", "nats", "tests"]],
    "integration": [
        [*PYTEST, "-n", "3", "--dist", "loadfile", "-m", "kube and not restart", "tests"]
    ],
    "restart": [[*PYTEST, "-m", "restart", "tests"]],
}
"""Tests on a real API server wait for it much of the time: three at once fill two cores."""
NEEDS_PARTS = {"integration", "restart"}
COUNTS = re.compile(r"\d+ (?:passed|failed|errors?|skipped|xfailed)")
REAL_SERVERS = {"contract", "integration", "restart"}
MOST_AGAIN = 3
"""More failures than this are no accident of a busy machine."""


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
    stages = names or list(STAGES)
    begin = time.monotonic()
    building = build_parts() if NEEDS_PARTS & set(stages) else None
    results = []
    with contextlib.ExitStack() as finally_:
        if building is not None:
            finally_.callback(end, building)
        for stage in stages:
            if stage in NEEDS_PARTS and building is not None and building.wait():
                results.append(Result(stage, ok=False, words="parts not built", seconds=0.0))
                continue
            results.append(run(stage))
    return summarize(results, time.monotonic() - begin)


def build_parts() -> "subprocess.Popen[bytes]":
    """Start the build of what is missing; it ends at once when nothing is."""
    return subprocess.Popen([str(BIN / "pumice"), "parts", "build"], cwd=ROOT)


def end(process: "subprocess.Popen[bytes]") -> None:
    """Leave no build behind when the suite is interrupted."""
    if process.poll() is None:
        process.terminate()
        process.wait()


def run(stage: str) -> Result:
    """Run one stage and show its output as it comes."""
    print(f"── {stage}", flush=True)
    begin = time.monotonic()
    failed, words = False, ""
    for command in STAGES[stage]:
        code, said = twice(command) if stage in REAL_SERVERS else once(command)
        failed |= bool(code)
        words = said or words
        if code and not words:
            words = f"{Path(command[0]).name} found something"
    return Result(stage, not failed, words, time.monotonic() - begin)


def once(command: list[str]) -> tuple[int, str]:
    """Run a command; returns its exit code and how many tests ended how."""
    code, last = tee(command)
    return code, ", ".join(COUNTS.findall(last))


def twice(pytest: list[str]) -> tuple[int, str]:
    """Run tests, and the few that failed once more; returns as `once` does, and names those."""
    with tempfile.TemporaryDirectory() as cache:
        remembering = [*pytest, "-o", f"cache_dir={cache}"]
        code, said = once(remembering)
        failed = failures(Path(cache))
        if not code or not 0 < len(failed) <= MOST_AGAIN:
            return code, said
        names = ", ".join(name.rpartition("::")[2] for name in failed)
        print(f"── once more, alone: {names}", flush=True)
        code, _ = once([*remembering, "-n", "0", "--last-failed"])
        return code, said if code else f"{said}, PASSED ONLY ALONE: {names}"


def failures(cache: Path) -> list[str]:
    """Return the tests that failed, as pytest keeps them for `--last-failed`."""
    kept = cache / "v" / "cache" / "lastfailed"
    return sorted(json.loads(kept.read_text("utf-8"))) if kept.exists() else []


def tee(command: list[str]) -> tuple[int, str]:
    """Run a command with its output on ours; returns its exit code and its last line."""
    last = ""
    environ = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
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
