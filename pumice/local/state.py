"""The state file of a running local cluster, for `pumice status` and `pumice down`.

`state.json` says what runs where. Whether it still does is shown by `holder.lock`, which the
holding process keeps locked: the kernel unlocks it however that process ends, so that neither a
stale file nor a process id that was given out again is taken for a cluster.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Literal

import msgspec

from pumice.directory import LOCK, STATE
from pumice.local import layout
from pumice.local.errors import LocalError, WrongSettingError
from pumice.local.files import write_private


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """One running program."""

    name: str
    pid: int
    address: str
    """The address at which it listens, "" when no user needs it."""
    log: str


class State(msgspec.Struct, frozen=True, kw_only=True):
    """A local cluster as its holder last saw it."""

    phase: Literal["starting", "ready", "stopping", "failed"]
    pid: int
    """Process id of the holder: SIGTERM stops everything."""
    message: str = ""
    """Why it failed."""
    api_server: str = ""
    nats: str = ""
    kubeconfig: str = ""
    programs: tuple[Program, ...] = ()


def read(directory: Path) -> State | None:
    """Return the state of the cluster in `directory`, None when nothing was ever started there.

    Raises LocalError.
    """
    try:
        return msgspec.json.decode((directory / STATE).read_bytes(), type=State)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise LocalError(f"{directory / STATE} is not readable: {error}") from error


def write(directory: Path, state: State) -> None:
    """Replace the state."""
    write_private(directory / STATE, msgspec.json.format(msgspec.json.encode(state)).decode())


def forget(directory: Path) -> None:
    """Remove the state of a cluster that has stopped."""
    (directory / STATE).unlink(missing_ok=True)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Lock the data directory of a cluster for the block; create it if it does not exist.

    Raises LocalError when another process has the lock, when the directory cannot be written to,
    and when it contains anything that is not of a local cluster.
    """
    with _lock_file(directory) as file:
        _take(file, directory)
        yield


def hold(directory: Path) -> None:
    """Lock the data directory until this process has ended. Raises as `locked` does.

    Only the kernel closes the second descriptor, so `pumice down` does not return while the holder
    is still shutting down.
    """
    with _lock_file(directory) as file:
        _take(file, directory)
        os.dup(file.fileno())


def _take(file: IO[str], directory: Path) -> None:
    if not _lock(file):
        raise LocalError(
            f"a local cluster is running already in {directory}:"
            " see `pumice status`, stop it with `pumice down`"
        )


def _lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _lock_file(directory: Path) -> IO[str]:
    """Open the lock of a directory that is ours, or can be."""
    try:
        made = not directory.exists()
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if stranger := next(layout.foreign(directory), None):
            raise WrongSettingError(
                f"--data-dir: {directory} holds {stranger}, which is not of a local cluster;"
                " give a directory that is empty or not there yet"
            )
        layout.sign(directory, made=made)
        return (directory / LOCK).open("a")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise WrongSettingError(f"--data-dir: cannot use {directory}: {reason}") from error


def is_locked(directory: Path) -> bool:
    """Return whether a process has the cluster's lock."""
    if not layout.is_signed(directory):
        return False
    with (directory / LOCK).open() as file:
        return not _lock(file)


@contextmanager
def stopped(directory: Path) -> Iterator[None]:
    """Keep a cluster from being started while it is purged; LocalError when one runs."""
    with (directory / LOCK).open() as file:
        if not _lock(file):
            raise LocalError(f"a local cluster runs in {directory}: not removed")
        yield
