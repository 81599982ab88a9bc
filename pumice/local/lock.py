"""A lock between processes of one user; processes that wait name its holder."""

import asyncio
import fcntl
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

_TELL_S: Final = 10.0
_POLL_S: Final = 0.2


@asynccontextmanager
async def exclusive(
    path: Path, *, purpose: str, report: Callable[[str], None]
) -> AsyncIterator[None]:
    """Hold the lock file `path`; while another process has it, say so every ten seconds.

    The kernel gives the lock back when its holder dies, however that happens.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        begin = time.monotonic()
        reported = begin - _TELL_S
        while not _try(file.fileno()):
            if time.monotonic() - reported >= _TELL_S:
                reported = time.monotonic()
                report(f"waiting for {_holder(path)}, which {purpose} ({reported - begin:.0f} s)")
            await asyncio.sleep(_POLL_S)
        file.truncate(0)
        file.write(f"process {os.getpid()}")
        file.flush()
        yield


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(path: Path) -> str:
    return path.read_text(encoding="utf-8") or "another process"
