"""What a running local cluster leaves in its data directory, for `pumice status` and `down`.

`state.json` says what runs where. Whether it still does is told by `holder.lock`, which the
holding process keeps locked: the kernel unlocks it however that process ends, so that neither a
stale file nor a process id that was given out again is taken for a cluster.
"""

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final, Literal

import msgspec

from pumice.local.errors import LocalError
from pumice.local.files import write_private
from pumice.local.stack import StackOptions

_STATE: Final = "state.json"
_LOCK: Final = "holder.lock"
_ORDER: Final = "up.json"
HOLDER_LOG: Final = "holder.log"


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """One running program."""

    name: str
    pid: int
    address: str
    """Where it listens, "" when that is nobody's concern."""
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


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What `pumice up` tells the holder to run."""

    stack: StackOptions
    binaries: Mapping[str, Path]


def default_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Return where a local cluster is kept unless told otherwise."""
    base = environ.get("XDG_STATE_HOME", "")
    home = Path(base) if Path(base).is_absolute() else Path.home() / ".local" / "state"
    return home / "pumice" / "local"


def read(directory: Path) -> State | None:
    """Return the state of the cluster in `directory`, None when nothing was ever started there."""
    try:
        return msgspec.json.decode((directory / _STATE).read_bytes(), type=State)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise LocalError(f"{directory / _STATE} is not readable: {error}") from error


def write(directory: Path, state: State) -> None:
    """Replace the state."""
    write_private(directory / _STATE, msgspec.json.format(msgspec.json.encode(state)).decode())


def forget(directory: Path) -> None:
    """Remove the state of a cluster that has stopped."""
    (directory / _STATE).unlink(missing_ok=True)


def is_data_directory(directory: Path) -> bool:
    """Return whether a directory was made by us, so that it may be purged."""
    return (directory / _LOCK).is_file()


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """Hold the cluster of `directory`; LocalError when another does or it cannot be written to."""
    with _lock_file(directory) as file:
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise LocalError(
                f"a local cluster is running already in {directory}:"
                " see `pumice status`, stop it with `pumice down`"
            ) from error
        yield


def _lock_file(directory: Path) -> IO[str]:
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        return (directory / _LOCK).open("a")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise LocalError(f"--data-dir: cannot use {directory}: {reason}") from error


def is_held(directory: Path) -> bool:
    """Return whether a holder lives."""
    if not is_data_directory(directory):
        return False
    try:
        with held(directory):
            return False
    except LocalError:
        return True


def write_order(directory: Path, order: Order) -> None:
    """Leave the order for the holder."""
    write_private(directory / _ORDER, msgspec.json.encode(order, enc_hook=str).decode())


def read_order(directory: Path) -> Order:
    """Return the order that `pumice up` left."""
    return msgspec.json.decode(
        (directory / _ORDER).read_bytes(), type=Order, dec_hook=_path_from_text
    )


def _path_from_text(kind: type, value: Any) -> Any:  # noqa: ANN401 - a hook of msgspec
    if kind is Path:
        return Path(value)
    raise NotImplementedError(kind)
