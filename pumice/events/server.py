"""Finds the NATS server of a cluster: from the environment, a mounted Secret, or on this machine.

`subscribe` without a URL and `pumice events` call `find`, before each connection: a cluster on this
machine has another port each time that it is started.
"""

import fcntl
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from pumice.directory import LOCK, STATE, SUBSCRIBER, USERS, default_directory
from pumice.events.errors import Unreachable

SECRET: Final = Path("/run/secrets/nats")
"""The folder where a pod mounts the Secret `pumice-nats-events`: files `username` and `password`.

A file `ca.crt` beside them is the authority of the server's certificate.
"""
IN_CLUSTER: Final = "tls://pumice-nats.pumice-system:4222"
_MAIN: Final = "main"
"""Name of a cluster whose manifests were not changed."""


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """The address of a NATS server, and the credentials for it."""

    url: str
    """One server, or several separated by commas."""
    user: str = ""
    password: str = ""
    ca: str = ""
    """File with the authority of the server's certificate; turns TLS on."""
    cluster: str = "local"
    """Name of the cluster, a part of each subject."""
    directory: Path | None = None
    """Data directory of a local cluster; None for any other."""

    @property
    def is_gone(self) -> bool:
        """Return whether this was a local cluster and is none any more."""
        return self.directory is not None and not _is_locked(self.directory)


class _State(msgspec.Struct):
    nats: str = ""


def find(environ: Mapping[str, str] = os.environ, *, secret: Path = SECRET) -> Server:
    """Return the server that the environment names, else a Secret, else the local cluster's.

    `PUMICE_NATS` is the URL; `PUMICE_NATS_USER`, `PUMICE_NATS_PASSWORD` or
    `PUMICE_NATS_PASSWORD_FILE`, `PUMICE_NATS_CA` and `PUMICE_CLUSTER` go with it. Raises
    Unreachable.
    """
    url = environ.get("PUMICE_NATS", "")
    is_mounted = (secret / "password").is_file()
    if not url and not is_mounted:
        return local(default_directory(environ), cluster=environ.get("PUMICE_CLUSTER", "local"))
    user, password = credentials(environ)
    ca = environ.get("PUMICE_NATS_CA", "")
    if is_mounted and "PUMICE_NATS_CA" not in environ and (secret / "ca.crt").is_file():
        ca = str(secret / "ca.crt")
    if is_mounted and not password:
        user = user or _text(secret / "username") or SUBSCRIBER
        password = _text(secret / "password")
    fallback = "local" if url else _MAIN
    return Server(
        url=url or IN_CLUSTER,
        user=user,
        password=password,
        ca=ca,
        cluster=environ.get("PUMICE_CLUSTER", fallback),
    )


def credentials(environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the user and password that the environment names, empty texts without."""
    file = environ.get("PUMICE_NATS_PASSWORD_FILE", "")
    password = _text(Path(file)) if file else environ.get("PUMICE_NATS_PASSWORD", "")
    return environ.get("PUMICE_NATS_USER", ""), password


def local(directory: Path, *, cluster: str = "local") -> Server:
    """Return the server of the local cluster in a data directory. Raises Unreachable."""
    try:
        state = msgspec.json.decode((directory / STATE).read_bytes(), type=_State)
        passwords = msgspec.json.decode((directory / USERS).read_bytes(), type=dict[str, str])
    except (OSError, msgspec.DecodeError):
        state, passwords = _State(), {}
    if not state.nats:
        raise Unreachable(
            f"nothing runs in {directory}: start it with `pumice up`, or name a NATS server"
            " (that of `pumice run` is in the directory that it names)"
        )
    return Server(
        url=state.nats,
        user=SUBSCRIBER,
        password=passwords.get(SUBSCRIBER, ""),
        cluster=cluster,
        directory=directory,
    )


def _is_locked(directory: Path) -> bool:
    """Return whether the process of a local cluster lives: it keeps the lock file locked."""
    try:
        with (directory / LOCK).open("rb") as file:
            fcntl.flock(file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError as exc:
        raise Unreachable(f"cannot read {path}: {exc.strerror}") from exc
