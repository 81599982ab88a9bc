"""Free and taken TCP ports on the loopback."""

import socket
from typing import Final

from pumice.local.errors import LocalError, WrongSettingError

LOOPBACK: Final = "127.0.0.1"
_LAST_PORT: Final = 65535
_given: Final[set[int]] = set()


def free_port() -> int:
    """Return a port that was free just now; the kernel hands them out in no fixed order.

    None is given twice by one process: its first taker may not listen there yet.
    """
    while True:
        with socket.socket() as probe:
            probe.bind((LOOPBACK, 0))
            port: int = probe.getsockname()[1]
        if port not in _given:
            _given.add(port)
            return port


def claim(port: int, *, owner: str, flag: str) -> int:
    """Return `port`, or a free one for 0.

    Raises LocalError when another program listens there; `flag` is what the message tells to use.
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
