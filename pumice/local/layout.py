"""The files of a data directory that belong to the local cluster, and their removal.

`state.locked` refuses a directory with anything else in it, and `pumice down --purge` removes only
what is listed here, file by file. A name alone is not enough: a file must be a regular file, a
directory a directory and a socket a socket, so that no symbolic link is ever followed or removed.
Other files in the directory stay, and are named.
"""

import errno
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from pumice.directory import LOCK
from pumice.local.names import OPTIONAL, PROGRAMS, SERVICES

ORDER: Final = "up.json"
HOLDER_LOG: Final = "holder.log"

_PRIVATE: Final = r"(?:state\.json|up\.json|kubeconfig)"
_PKI: Final = (
    r"(?:(?:front-proxy-)?ca\.crt|(?:server|admin|etcd-client|front-proxy-client)\.(?:crt|key)"
    r"|service-account\.key"
    r"|tokens\.csv|parts\.kubeconfig)"
)
_NATS: Final = r"(?:users\.json|state-key|nats-server\.conf)"
_DRAFT: Final = r"[a-z0-9_]{8}"
_WATCHDOG: Final = r"scheduler(?:-\d+)?-watchdog"
_STREAM: Final = r"nats/jetstream/jetstream/[^/]+/streams/[^/]+"

# Texts, compiled where a path is first compared: no command but up and down compares one.
_DIRECTORIES: Final = "|".join(
    (
        "logs",
        "pki",
        "nats",
        _WATCHDOG,
        r"etcd(?:/member(?:/snap|/wal)?)?",
        r"nats/jetstream(?:/jetstream(?:/[^/]+(?:/streams)?)?)?",
        rf"{_STREAM}(?:/msgs|/__msgs__|/obs(?:/[^/]+)?)?",
    )
)
_FILES: Final = "|".join(
    (
        r"holder\.(?:lock|log)",
        r"usage\.db(?:-wal|-shm|-journal)?",
        r"objects\.(?:jsonl|new)",
        r"audit-policy\.yaml",
        rf"{_PRIVATE}|\.{_PRIVATE}\.{_DRAFT}",
        rf"pki/{_PKI}|pki/\.{_PKI}\.{_DRAFT}",
        rf"nats/{_NATS}|nats/\.{_NATS}\.{_DRAFT}",
        rf"logs/(?:{'|'.join((*SERVICES, *OPTIONAL, *PROGRAMS))})(?:-\d+)?\.log",
        r"nats/nats-server\.log",
        rf"{_WATCHDOG}/(?:handling|quarantine\.json(?:\.new)?)",
        r"logs/audit(?:-[\dT.:-]+)?\.log",
        r"etcd/member/snap/(?:db|db\.tmp\d*|tmp\d+|[0-9a-f-]+\.snap(?:\.db|\.broken)?)",
        r"etcd/member/wal/(?:[0-9a-f]{16}-[0-9a-f]{16}\.wal(?:\.broken)?|\d+\.tmp)",
        rf"{_STREAM}/meta\.(?:inf|sum|key)(?:\.tmp)?",
        rf"{_STREAM}/(?:msgs|__msgs__)/(?:\d+\.(?:blk|key|new|tmp)|\w+\.db)(?:\.tmp)?",
        rf"{_STREAM}/obs/[^/]+/(?:meta\.(?:inf|sum|key)|o\.dat)(?:\.tmp)?",
    )
)
_SOCKETS: Final = r"etcd/(?:client|peer)\.sock:0"
_DATA: Final = ("etcd", "nats/jetstream")
"""Directories that another program fills: at a start they may hold any files of it."""
_MADE: Final = "pumice local cluster, in a directory that it made\n"
_FOUND: Final = "pumice local cluster, in a directory that was there\n"


class Purged(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a purge."""

    gone: bool
    """Whether the directory itself was removed, too."""
    left: tuple[str, ...]
    """Relative paths of files that do not belong to the local cluster, sorted."""


def sign(directory: Path, *, made: bool) -> None:
    """Say in the directory that it belongs to a local cluster, and whether `pumice` made it."""
    lock = directory / LOCK
    if not is_signed(directory):
        lock.write_text(_MADE if made else _FOUND, encoding="utf-8")


def is_signed(directory: Path) -> bool:
    """Return whether a local cluster was ever kept in the directory."""
    return _signature(directory) in {_MADE, _FOUND}


def foreign(directory: Path) -> Iterator[str]:
    """Yield the relative paths of files that stop a directory from being used.

    In a directory without our signature those are all files, except for an empty lock file: there
    a start was interrupted.
    """
    signed = is_signed(directory)
    for path, kind in _walk(directory):
        if path.startswith(tuple(f"{data}/" for data in _DATA)) and signed:
            continue
        if not _is_ours(path, kind) or not (signed or _is_new_lock(directory, path)):
            yield path


def purge(directory: Path) -> Purged:
    """Remove the files of the local cluster, and the directory if that was made for it.

    Directories go when they are empty. The lock file goes last: a purge that was cut off can be
    run again.
    """
    made = _signature(directory) == _MADE
    top = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for root, directories, files, at in os.fwalk(".", topdown=False, dir_fd=top):
            for name in files:
                path = _join(root, name)
                if path != LOCK and _is_ours(path, _kind(name, at)):
                    os.unlink(name, dir_fd=at)
            for name in directories:
                if _is_ours(_join(root, name), _kind(name, at)):
                    _remove_empty(name, at)
        os.unlink(LOCK, dir_fd=top)
    finally:
        os.close(top)
    left = tuple(sorted(path for path, kind in _walk(directory) if not _is_ours(path, kind)))
    if made and not left:
        directory.rmdir()
    return Purged(gone=made and not left, left=left)


def _remove_empty(name: str, at: int) -> None:
    """Remove a directory, unless something that is not ours keeps it."""
    try:
        os.rmdir(name, dir_fd=at)
    except OSError as error:
        if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
            raise


def _walk(directory: Path) -> Iterator[tuple[str, int]]:
    """Yield relative path and file type of all below; foreign directories are not entered."""
    waiting = [""]
    while waiting:
        inside = waiting.pop()
        with os.scandir(directory / inside) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        for entry in found:
            path = _join(inside, entry.name)
            kind = stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode)
            yield path, kind
            if stat.S_ISDIR(kind) and _is_ours(path, kind):
                waiting.append(path)


def _is_ours(path: str, kind: int) -> bool:
    if stat.S_ISDIR(kind):
        return re.fullmatch(_DIRECTORIES, path) is not None
    names = _SOCKETS if stat.S_ISSOCK(kind) else _FILES if stat.S_ISREG(kind) else ""
    return re.fullmatch(names, path) is not None


def _kind(name: str, at: int) -> int:
    return stat.S_IFMT(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode)


def _is_new_lock(directory: Path, path: str) -> bool:
    return path == LOCK and (directory / LOCK).stat().st_size == 0


def _signature(directory: Path) -> str:
    """Return the text of a lock file, "" when there is none that could be ours."""
    lock = directory / LOCK
    try:
        if not stat.S_ISREG(lock.lstat().st_mode):
            return ""
        return lock.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _join(inside: str, name: str) -> str:
    return name if inside in {"", "."} else f"{inside.removeprefix('./')}/{name}"
