"""Two files that show a process what its predecessor did when it died.

`handling` is mapped into memory: the present step is written there before it begins, which costs a
copy of some bytes, and the kernel keeps it after any end of the process: kill -9, the memory limit,
a call that holds Python's lock forever. `quarantine.json` holds the quarantined objects.
They are for the next process on the same volume (an emptyDir outlives its containers); what other
replicas and pods have to know is on the bus as well.
"""

import errno
import mmap
import os
from pathlib import Path
from typing import Final

from services.scheduler.engine.progress import IDLE, Step
from services.scheduler.overruns import OverrunEntry, decode, encode
from shared.runtime.errors import Rejected

_SIZE: Final = 4096
_HEAD: Final = 1
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_SLOW: Final = b"!"
_USUAL: Final = b" "


class WatchdogFiles:
    """The files in one directory; without a directory nothing is kept."""

    def __init__(self, directory: str) -> None:
        """Open the files. Raises `Rejected` if the directory cannot be written to.

        On a full disk the process continues without a mark of what it is doing.
        """
        self._directory = Path(directory) if directory else None
        self.died_at, self.was_slow = IDLE, False
        """The step that the predecessor did not end, and whether it was slow already."""
        self.found: list[OverrunEntry] = []
        self.failure = ""
        """Why steps are not marked, "" if they are or no directory is set."""
        self._map: mmap.mmap | None = None
        if self._directory is None:
            return
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._open(self._directory)
        except OSError as error:
            if error.errno in _FULL:
                self.failure = str(error)
                return
            raise Rejected(
                f"--watchdog-dir: cannot write to {directory}: {error}", field="watchdog-dir"
            ) from error

    def _open(self, directory: Path) -> None:
        stored = directory / "quarantine.json"
        if stored.exists():
            self.found = decode(stored.read_bytes())
        handle = os.open(directory / "handling", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            # Written rather than made longer: to touch a page of a map for which the disk has no
            # room ends the process.
            os.pwrite(handle, os.pread(handle, _SIZE, 0).ljust(_SIZE, b"\0"), 0)
            self._map = mmap.mmap(handle, _SIZE)
        finally:
            os.close(handle)
        left = bytes(self._map).partition(b"\0")[0]
        fields = left[_HEAD:].decode(errors="replace").split("\n")
        if len(fields) == len(IDLE) and fields[2]:
            self.died_at, self.was_slow = Step(*fields), left[:_HEAD] == _SLOW
        self(IDLE)

    def __call__(self, step: Step) -> None:
        """Write the step that begins."""
        if self._map is not None:
            text = "\n".join(step).encode(errors="replace")[: _SIZE - _HEAD - 1]
            self._map[: _HEAD + len(text) + 1] = _USUAL + text + b"\0"

    def note_slow(self) -> None:
        """Record that the present step is slow: a death in it is no accident."""
        if self._map is not None:
            self._map[:_HEAD] = _SLOW

    def store(self, entries: list[OverrunEntry]) -> None:
        """Replace the list of quarantined objects. Raises OSError."""
        if self._directory is not None:
            fresh = self._directory / "quarantine.json.new"
            fresh.write_bytes(encode(entries))
            fresh.replace(self._directory / "quarantine.json")
