"""Parts live and end as one."""

import asyncio
import contextlib

import pytest

from shared.runtime.errors import Broken
from shared.runtime.supervise import PartFailed, supervise
from shared.runtime.tasks import sleep_or_event
from tests.support.clock import VirtualClock, settle


class Scripted:
    """A part that waits for `go` and then does what `end` says."""

    def __init__(self, name: str, end=None, *, deaf: asyncio.Event | None = None) -> None:
        self.name = name
        self.go = asyncio.Event()
        self.cancelled = False
        self._end = end
        self._deaf = deaf

    async def run(self) -> None:
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            if self._deaf is None:
                raise
            await self._deaf.wait()
        if self._end is not None:
            raise self._end


async def supervised(parts, stop, *, clock=None, first=(), on_stuck=lambda names: None):
    async def start():
        return parts

    await supervise(
        start,
        first=first,
        stop=stop,
        clock=clock or VirtualClock(),
        grace_s=10,
        on_stuck=on_stuck,
    )


async def test_a_signal_ends_every_part_and_is_no_failure() -> None:
    stop = asyncio.Event()
    parts = [Scripted("a"), Scripted("b")]
    async with asyncio.TaskGroup() as group:
        group.create_task(supervised(parts, stop, first=[first := Scripted("first")]))
        await settle()
        stop.set()
    assert all(part.cancelled for part in [*parts, first])


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        (ValueError("boom"), ValueError),
        (None, Broken),
        (asyncio.CancelledError(), Broken),
    ],
    ids=["raises", "ends early", "is cancelled from within"],
)
async def test_the_first_part_that_fails_stops_the_others_and_is_named(end, kind) -> None:
    bad, other = Scripted("bad", end), Scripted("other")
    bad.go.set()
    with pytest.raises(PartFailed, match="part bad failed") as caught:
        await supervised([other, bad], asyncio.Event())
    assert isinstance(caught.value.__cause__, kind)
    assert other.cancelled


class Scarred:
    """A part with a cancellation behind it that it has lived through and not taken back."""

    name = "scarred"

    async def run(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        raise asyncio.CancelledError


async def test_a_part_that_ends_cancelled_and_was_not_told_to_is_a_failure():
    other = Scripted("other")
    with pytest.raises(PartFailed, match="part scarred failed") as caught:
        await supervised([Scarred(), other], asyncio.Event())
    assert "without being told to end" in str(caught.value.__cause__)
    assert other.cancelled


async def test_a_part_that_is_cancelled_from_outside_with_its_supervisor_is_no_failure():
    stop = asyncio.Event()
    part = Scripted("part")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(supervised([part], stop))
        await settle()
        task.cancel()
    assert task.cancelled()
    assert part.cancelled


async def test_a_failing_start_up_is_a_failure_of_its_own() -> None:
    async def start():
        raise ValueError("no")

    with pytest.raises(PartFailed, match="part start-up failed"):
        await supervise(
            start,
            first=[],
            stop=asyncio.Event(),
            clock=VirtualClock(),
            grace_s=1,
            on_stuck=lambda names: None,
        )


async def test_a_signal_interrupts_a_start_up_that_hangs() -> None:
    stop = asyncio.Event()

    async def start():
        await asyncio.Event().wait()
        return []

    async with asyncio.TaskGroup() as group:
        supervised = group.create_task(
            supervise(
                start,
                first=[],
                stop=stop,
                clock=VirtualClock(),
                grace_s=1,
                on_stuck=lambda names: None,
            )
        )
        await settle()
        assert not supervised.done()
        stop.set()
        await asyncio.wait_for(supervised, 10)


async def test_parts_that_ignore_the_signal_are_named_after_the_grace() -> None:
    stop, clock, release = asyncio.Event(), VirtualClock(), asyncio.Event()
    stuck: list[list[str]] = []
    parts = [Scripted("deaf", deaf=release), Scripted("quick")]
    async with asyncio.TaskGroup() as group:
        group.create_task(
            supervised(parts, stop, clock=clock, on_stuck=lambda names: stuck.append(list(names)))
        )
        await settle()
        stop.set()
        await clock.advance(9)
        assert stuck == []
        await clock.advance(1)
        assert stuck == [["deaf"]]
        release.set()


async def test_a_sleep_ends_early_for_its_event() -> None:
    clock, event = VirtualClock(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(sleep_or_event(clock, 10, event))
        await clock.advance(3)
        assert not task.done()
        event.set()
        assert await task is True
        event.clear()
        task = group.create_task(sleep_or_event(clock, 10, event))
        await clock.advance(10)
        assert await task is False
