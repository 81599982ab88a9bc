"""Ctrl-C (and SIGTERM, SIGHUP) as one orderly end, however often and whenever it comes.

The first signal cancels the main task, whose `finally` blocks take everything down; later ones
change nothing, so that a second Ctrl-C cannot cut the clearing up short. During `deferred` blocks a
signal only leaves its mark: they are the clearing up.
"""

import asyncio
import signal
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_EXIT_BASE: Final = 128
"""A program that a signal has ended exits with this plus the signal's number, as shells expect."""


class Interrupts:
    """The signals that this process has got; made and used within one task."""

    def __init__(self) -> None:
        self.first: signal.Signals | None = None
        self._holds = 0
        self._task = asyncio.current_task()

    def listen(self) -> None:
        """Take the signals over from Python's own handling, until the loop is closed."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._caught, number)

    @property
    def exit_code(self) -> int:
        """Exit code after a signal, 0 when there was none."""
        return 0 if self.first is None else _EXIT_BASE + self.first

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Defer signals until the block ends; the first one is stored in `first`."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1

    def mute(self) -> None:
        """Ignore further signals: the clean-up is done and the process is about to end.

        The loop gives SIGINT back to Python when it closes, which would then die of it.
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)

    def _caught(self, number: signal.Signals) -> None:
        if self.first is not None:
            return
        self.first = number
        if not self._holds and self._task is not None:
            self._task.cancel()


async def interruptible(main: Coroutine[Any, Any, int], interrupts: Interrupts) -> int:
    """Run `main`; return its exit code, or that of the signal which ended it."""
    interrupts.listen()
    try:
        code = await main
    except asyncio.CancelledError:
        if interrupts.first is None:
            raise
        return interrupts.exit_code  # our own cancellation has done its work
    return interrupts.exit_code or code
