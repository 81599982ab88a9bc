"""The images of the check as archives that containerd imports: nothing is pulled.

Pumice's own image comes from the Dockerfile, as for `make compose-check`. The image of the jobs is
a small Debian with Python, sshd and Open MPI; CoreDNS and the pause program stand alone in theirs.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from pumice.local.parts import cache_dir
from pumice.local.versions import versions
from tools.compose_check import ensure, version_of_project
from tools.compose_docker import ROOT, CheckError, Docker, docker, of_debian, of_program
from tools.node_check.programs import Programs

JOBS: Final = "pumice.invalid/node-check/jobs:1"
COREDNS: Final = "pumice.invalid/node-check/coredns:1"
PAUSE: Final = "pumice.invalid/node-check/pause:1"
DASK_IMAGE: Final = "pumice.invalid/node-check/dask:1"
_OF_DASK: Final = "python3,python3-distributed"
_OF_JOBS: Final = "python3,openssh-server,openssh-client,openmpi-bin"
_SOURCES: Final = ("Dockerfile", "requirements/base.txt", "pyproject.toml")


def archives(programs: Programs, *, frameworks: bool) -> list[Path]:
    """Return the archives of all images, made where they are missing. Raises CheckError.

    `frameworks`: those of jobs of frameworks, too.
    """
    folder = cache_dir() / "node-check"
    folder.mkdir(parents=True, exist_ok=True)
    own = f"pumice:{version_of_project()}"
    wanted = {
        folder / f"parts-{_digest(_parts(programs))}.tar": (
            versions().images["nats-server"],
            COREDNS,
            PAUSE,
        ),
        folder / f"jobs-{_digest([_OF_JOBS.encode()])}.tar": (JOBS,),
        folder / f"pumice-{_digest(_own_sources())}.tar": (own,),
    }
    extra = {folder / f"dask-{_digest([_OF_DASK.encode()])}.tar": (DASK_IMAGE,)}
    if frameworks:
        wanted |= extra
    missing = {path: names for path, names in wanted.items() if not path.exists()}
    if missing:
        with docker() as tools:
            for path, names in missing.items():
                _make(tools, programs, names, own)
                _save(tools, path, names)
    for path in set(folder.glob("*.tar")) - wanted.keys() - extra.keys():
        path.unlink()
    return list(wanted)


def _make(tools: Docker, programs: Programs, names: Iterable[str], own: str) -> None:
    for name in names:
        if name == JOBS:
            of_debian(tools, name, _OF_JOBS)
        elif name == DASK_IMAGE:
            of_debian(tools, name, _OF_DASK)
        elif name == COREDNS:
            of_program(tools, name, programs["coredns"])
        elif name == PAUSE:
            of_program(tools, name, programs["pause"])
        else:
            ensure(tools, own)


def _save(tools: Docker, path: Path, names: Iterable[str]) -> None:
    draft = path.with_suffix(".draft")
    if not tools.run("save", "--output", str(draft), *names):
        raise CheckError(f"{', '.join(names)} cannot be saved")
    draft.replace(path)


def _parts(programs: Programs) -> Iterable[bytes]:
    yield versions().images["nats-server"].encode()
    for name in ("coredns", "pause"):
        yield programs[name].read_bytes()


def _own_sources() -> Iterable[bytes]:
    for name in _SOURCES:
        yield (ROOT / name).read_bytes()
    for folder in ("shared", "services", "pumice"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path.read_bytes()


def _digest(parts: Iterable[bytes]) -> str:
    total = hashlib.sha256()
    for part in parts:
        total.update(part)
    return total.hexdigest()[:12]
