"""Free and taken TCP ports on the loopback."""

import contextlib
import os
import secrets
import socket
from collections import deque
from typing import Final

from pumice.local.errors import LocalError, WrongSettingError

LOOPBACK: Final = "127.0.0.1"
_LAST_PORT: Final = 65535
_FREE: Final = range(10_000, 32_768)
"""Ports below those that Linux and macOS give to outgoing connections: none of these takes a port
between its choice here and the moment when a program listens there, or while it is restarted."""
_MOST_HELD: Final = 64

_held: Final[deque[int]] = deque(maxlen=_MOST_HELD)
"""File descriptors of UDP sockets at the ports chosen last, which keep other processes from
choosing them, too. TCP does not see them. An older one is closed: its program listens by now."""


def free_port() -> int:
    """Return a port at which nothing listens and that no other call has chosen just now.

    Raises LocalError when there is none.
    """
    first = secrets.randbelow(len(_FREE))
    for offset in range(len(_FREE)):
        port = _FREE[(first + offset) % len(_FREE)]
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind((LOOPBACK, port))
            _hold(port)
            return port
    raise LocalError(f"no port from {_FREE[0]} to {_FREE[-1]} is free on {LOOPBACK}")


def _hold(port: int) -> None:
    """Keep a port from being chosen again. Raises OSError when it is held, here or elsewhere."""
    reserved = socket.socket(type=socket.SOCK_DGRAM)
    try:
        reserved.bind((LOOPBACK, port))
    except OSError:
        reserved.close()
        raise
    if len(_held) == _MOST_HELD:
        os.close(_held[0])
    _held.append(reserved.detach())


def claim(port: int, *, owner: str, flag: str) -> int:
    """Return `port`, or a free one for 0.

    Raises LocalError when another program listens there; the message suggests `flag`.

    Raises WrongSettingError.
    """
    if port == 0:
        return free_port()
    if not 0 < port <= _LAST_PORT:
        raise WrongSettingError(f"{flag}: {port} is no port: give one from 1 to {_LAST_PORT}")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except PermissionError as exc:
            raise WrongSettingError(
                f"port {port} for {owner} needs root; give one above 1023 with {flag}"
            ) from exc
        except OSError as exc:
            raise LocalError(
                f"port {port} for {owner} is taken by another program; "
                f"give another one with {flag}, or none to get a free one"
            ) from exc
    return port
