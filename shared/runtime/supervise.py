"""Runs the parts of a service together: they start and end together.

The first part that fails stops the service, and so does one that ends early: a service with a
dead part that goes on is worse than one that restarts. `stop` (a signal) cancels all parts; a
part that is not done after `grace_s` is named, and the process ends regardless.

Whether a part was told to end is known here and is not asked of its task: `asyncio.Task.cancelling`
counts every cancellation that was not taken back, also those that no supervisor asked for.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from shared.runtime.clock import Clock
from shared.runtime.errors import Broken
from shared.runtime.tasks import TaskGroup


class Part(Protocol):
    """Something that runs as long as its service, in a task of its own."""

    @property
    def name(self) -> str:
        """Return the name for task lists and messages."""
        ...

    async def run(self) -> None:
        """Run until cancelled."""
        ...


class PartFailed(Exception):  # noqa: N818 - reads as what happened
    """A part raised or ended early; the reason is `__cause__`."""

    def __init__(self, part: str) -> None:
        super().__init__(f"part {part} failed")
        self.part = part


async def supervise(
    start: Callable[[], Awaitable[Sequence[Part]]],
    *,
    first: Sequence[Part],
    stop: asyncio.Event,
    clock: Clock,
    grace_s: float,
    on_stuck: Callable[[Sequence[str]], None],
) -> None:
    """Run `first`, meanwhile await `start`, and run the parts it returns.

    Returns after `stop`; raises `PartFailed` for the first failure.

    `on_stuck` gets the names of those that ignore their cancellation for `grace_s`; it is
    expected to end the process, since a task cannot be abandoned.
    """
    watched = _Watched(stop)
    tasks: list[asyncio.Task[None]] = []
    async with TaskGroup() as group:

        def run_all(parts: Sequence[Part]) -> None:
            tasks.extend(group.create_task(watched.endless(part), name=part.name) for part in parts)

        async def start_all() -> None:
            run_all(await start())

        async def end_all() -> None:
            watched.told_to_end = True
            for task in tasks:
                task.cancel()
            await clock.sleep(grace_s)
            on_stuck(sorted(watched.alive))

        run_all(first)
        tasks.append(group.create_task(watched.once("start-up", start_all), name="start-up"))
        await stop.wait()
        grace = group.create_task(end_all(), name="grace")
        await asyncio.wait(tasks)
        grace.cancel()
    if watched.failure is not None:
        raise watched.failure


class _Watched:
    """The parts that run, and the first failure, which sets `stop`."""

    def __init__(self, stop: asyncio.Event) -> None:
        self.alive: set[str] = set()
        self.failure: PartFailed | None = None
        self.told_to_end = False
        self._stop = stop

    async def endless(self, part: Part) -> None:
        """Run a part whose end is a failure."""
        await self.once(part.name, part.run)
        if not self._stop.is_set():
            self._fail(part.name, Broken(f"part {part.name} ended without being told to"))

    async def once(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """Run something that may end."""
        self.alive.add(name)
        try:
            await run()
        except asyncio.CancelledError as error:
            # A library's cancelled future or the rest of an older cancellation can surface here;
            # the task would end without a word and the service would go on without the part.
            if self.told_to_end:
                raise
            self._fail(name, _cancelled_unasked(name, error))
        except Exception as error:  # noqa: BLE001 - the supervisor is where failures end
            self._fail(name, error)
        finally:
            self.alive.discard(name)

    def _fail(self, name: str, error: BaseException) -> None:
        if self.failure is None:
            self.failure = PartFailed(name)
            self.failure.__cause__ = error
        self._stop.set()


def _cancelled_unasked(name: str, error: asyncio.CancelledError) -> Broken:
    broken = Broken(f"part {name} was cancelled without being told to end")
    broken.__cause__ = error
    return broken
