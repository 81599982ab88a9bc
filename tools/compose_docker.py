"""Docker for the checks that need it: a daemon and Compose, those that are there, else our own.

Images cannot be pulled for them: they are made here, of one program alone or of a small Debian.

A daemon that answers is used. Otherwise one is started as root, with its images below the user's
cache (so that a second check needs no downloads) and stopped at the end. Compose is built once
from its Go module, for not every machine with Docker has the v2 plugin.
"""

import contextlib
import functools
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from pumice.local.build import find_go
from pumice.local.parts import cache_dir
from pumice.local.versions import versions

ROOT: Final = Path(__file__).parent.parent
_DAEMON_S: Final = 60.0
_ASK_S: Final = 20.0
_TOLD_S: Final = 120.0


class CheckError(Exception):
    """The check cannot go on; its text says why and what to do."""


class Docker(msgspec.Struct, frozen=True, kw_only=True):
    """The command-line programs, bound to one daemon."""

    cli: str
    host: str
    """DOCKER_HOST; empty for the one that the environment names."""

    def run(self, *args: str, quiet: bool = False, timeout_s: float = 900.0) -> bool:
        """Run `docker ...`; return whether it succeeded. `quiet` keeps its output to itself."""
        return self._run([self.cli, *args], quiet=quiet, timeout_s=timeout_s)

    def output(self, *args: str) -> str:
        """Return what `docker ...` prints. Raises CheckError when it fails."""
        return self._told([self.cli, *args], f"docker {' '.join(args)}")

    def has_image(self, name: str) -> bool:
        """Return whether the daemon has an image."""
        return self.run("image", "inspect", name, quiet=True)

    def compose(self, *args: str, timeout_s: float = 900.0) -> bool:
        """Run `docker compose ...` on docker-compose.yml; return whether it succeeded."""
        return self._run([*self._composing(), *args], quiet=False, timeout_s=timeout_s)

    def compose_output(self, *args: str) -> str:
        """Return what `docker compose ...` prints. Raises CheckError when it fails."""
        return self._told([*self._composing(), *args], f"docker compose {' '.join(args)}")

    def _composing(self) -> tuple[str, ...]:
        return (str(_compose()), "--progress=quiet", "-f", str(ROOT / "docker-compose.yml"))

    def _told(self, argv: Sequence[str], shown: str) -> str:
        done = subprocess.run(
            argv,
            env=self._environ(),
            capture_output=True,
            text=True,
            timeout=_TOLD_S,
            check=False,
            cwd=ROOT,
        )
        if done.returncode:
            raise CheckError(f"{shown}: {done.stderr.strip()}")
        return done.stdout

    def _run(self, argv: Sequence[str], *, quiet: bool, timeout_s: float) -> bool:
        output = subprocess.DEVNULL if quiet else None
        try:
            done = subprocess.run(
                argv,
                env={**self._environ(), "DOCKER_BUILDKIT": "0"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                timeout=timeout_s,
                check=False,
                cwd=ROOT,
            )
        except subprocess.TimeoutExpired:
            print(f"{' '.join(argv)}: not done after {timeout_s:g} s")
            return False
        return done.returncode == 0

    def _environ(self) -> dict[str, str]:
        return {**os.environ, "DOCKER_HOST": self.host} if self.host else dict(os.environ)


@contextlib.contextmanager
def docker() -> Iterator[Docker]:
    """Find or start a daemon. Raises CheckError.

    Compose is found or built on first use: what is missing here is said before that takes minutes.
    """
    cli = shutil.which("docker")
    if cli is None:
        raise CheckError(
            "there is no docker on PATH; on Debian and Ubuntu: apt-get install docker.io"
        )
    given = Docker(cli=cli, host="")
    if given.run("version", quiet=True, timeout_s=_ASK_S):
        yield given
        return
    with _own_daemon() as host:
        own = Docker(cli=cli, host=host)
        _wait_for(own)
        yield own


@contextlib.contextmanager
def _own_daemon() -> Iterator[str]:
    """Start a daemon of our own; yields its address."""
    program = shutil.which("dockerd")
    if program is None or os.geteuid() != 0:
        raise CheckError(
            "no Docker daemon answers, and one of our own needs root and dockerd "
            "(on Debian and Ubuntu: apt-get install docker.io)"
        )
    with tempfile.TemporaryDirectory(prefix="pumice-docker-", ignore_cleanup_errors=True) as folder:
        address = f"unix://{folder}/docker.sock"
        log = Path(folder) / "dockerd.log"
        print(f"starting a Docker daemon of our own, log {log}")
        with log.open("wb") as output:
            daemon = subprocess.Popen(
                [
                    program,
                    f"--host={address}",
                    f"--data-root={cache_dir() / 'docker'}",
                    f"--exec-root={folder}/exec",
                    f"--pidfile={folder}/pid",
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for us; it stops after `compose down`
            )
        try:
            yield address
        finally:
            daemon.terminate()
            try:
                daemon.wait(timeout=30)
            except subprocess.TimeoutExpired:
                daemon.kill()
            # It leaves the host's network namespace mounted there.
            subprocess.run(["umount", f"{folder}/exec/netns/default"], check=False)


def _wait_for(own: Docker) -> None:
    end = time.monotonic() + _DAEMON_S
    while not own.run("version", quiet=True, timeout_s=_ASK_S):
        if time.monotonic() > end:
            raise CheckError("our Docker daemon does not come up; see its log above")
        time.sleep(0.5)


@functools.cache
def _compose() -> Path:
    """Return Docker Compose in the pinned version, built into the user's cache if missing."""
    version = versions().compose.version
    program = cache_dir() / "tools" / f"docker-compose-{version}"
    if program.exists():
        return program
    go = str(find_go().path)
    module = f"github.com/docker/compose/v2@v{version}"
    print(f"building Docker Compose {version} from its Go module (5 minutes, 70 MB)", flush=True)
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pumice-compose-") as folder:
        # Its go.mod has directives that `go install module@version` refuses: build in a copy.
        listed = subprocess.run(
            [go, "mod", "download", "-json", module], stdout=subprocess.PIPE, check=True
        )
        source = Path(folder) / "source"
        shutil.copytree(msgspec.json.decode(listed.stdout)["Dir"], source)
        for path in (source, *source.rglob("*")):
            path.chmod(path.stat().st_mode | 0o200)  # the module cache is read-only
        draft = program.with_suffix(f".{os.getpid()}")
        stamp = f"-s -w -X github.com/docker/compose/v2/internal.Version=v{version}"
        subprocess.run(
            [go, "build", "-trimpath", f"-ldflags={stamp}", "-o", str(draft), "./cmd"],
            cwd=source,
            env={**os.environ, "CGO_ENABLED": "0"},
            check=True,
        )
        draft.replace(program)
    return program


_DEBIAN: Final = "bookworm"


def of_program(docker: Docker, name: str, program: Path, *, target: str = "/program") -> None:
    """Make an image that holds one static program, its entry point. Raises CheckError."""
    of_programs(docker, name, {target: program})


def of_programs(docker: Docker, name: str, programs: Mapping[str, Path]) -> None:
    """Make an image that holds static programs by their paths; the first is its entry point.

    Raises CheckError.
    """
    listed = ", ".join(map(str, programs.values()))
    print(f"making {name} of {listed}: for this check only", flush=True)
    with tempfile.TemporaryDirectory(prefix="pumice-image-") as folder:
        copies = []
        for number, (target, program) in enumerate(programs.items()):
            shutil.copy(program, Path(folder) / str(number))
            copies.append(f"COPY {number} {target}\n")
        (Path(folder) / "Dockerfile").write_text(
            f'FROM scratch\n{"".join(copies)}ENTRYPOINT ["{next(iter(programs))}"]\n'
        )
        if not docker.run("build", "--tag", name, folder, quiet=True):
            raise CheckError(f"{name} could not be made")


def of_debian(
    docker: Docker, name: str, packages: str, *, finish: Callable[[Path], None] = lambda _: None
) -> None:
    """Make an image of Debian and more packages by debootstrap. Raises CheckError.

    `finish` changes the file system below the folder that it gets.
    """
    program = shutil.which("debootstrap")
    if program is None:
        raise CheckError(
            f"there is no debootstrap to make {name} "
            "(on Debian and Ubuntu: apt-get install debootstrap)"
        )
    print(f"making {name} of Debian {_DEBIAN}, {packages}: for this check only", flush=True)
    with tempfile.TemporaryDirectory(prefix="pumice-debian-") as folder:
        root, archive = Path(folder) / "root", Path(folder) / "root.tar"
        subprocess.run(
            [program, "--variant=minbase", f"--include={packages}", _DEBIAN, str(root)],
            stdout=subprocess.DEVNULL,
            check=True,
        )
        finish(root)
        subprocess.run(["tar", "-C", str(root), "-cf", str(archive), "."], check=True)
        if not docker.run("import", str(archive), name, quiet=True):
            raise CheckError(f"{name} could not be imported")
