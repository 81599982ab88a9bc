"""Cuts a byte stream into whole lines, however the network cut it."""

from typing import Final

from shared.kube.errors import Unreachable

LINE_MAX: Final = 64 * 1024 * 1024
"""No object is so large (etcd takes 1.5 MiB by default): what is, is no watch."""


class Lines:
    """Keeps the unfinished last line of what it was fed."""

    def __init__(self, *, line_max: int = LINE_MAX) -> None:
        self._line_max = line_max
        self._pieces: list[bytes] = []
        self._held = 0

    def feed(self, chunk: bytes) -> bytes:
        """Return all lines that `chunk` completes, each with its newline, or b"".

        Raises Unreachable when a line grows beyond `line_max`. A giant line costs one copy, not
        one per chunk.
        """
        end = chunk.rfind(b"\n") + 1
        if not end:
            self._held += len(chunk)
            if self._held > self._line_max:
                raise Unreachable(f"a line of the watch has more than {self._line_max} bytes")
            self._pieces.append(chunk)
            return b""
        whole = b"".join((*self._pieces, chunk[:end])) if self._pieces else chunk[:end]
        rest = chunk[end:]
        self._pieces = [rest] if rest else []
        self._held = len(rest)
        return whole
