"""Ctrl-C, once or often, early or late."""

import asyncio
import os
import signal

import pytest

from pumice.demo.interrupt import Interrupts, interruptible


async def send(number: signal.Signals) -> None:
    """Send a signal to this process and let the loop see it."""
    os.kill(os.getpid(), number)
    for _ in range(3):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
    ids=str,
)
async def test_a_signal_ends_the_work_and_is_the_exit_code(number, code):
    interrupts = Interrupts()

    async def work() -> int:
        await send(number)
        await asyncio.Event().wait()
        return 0

    async with asyncio.timeout(5):
        assert await interruptible(work(), interrupts) == code
    assert interrupts.first == number


async def test_without_a_signal_the_exit_code_is_the_works():
    async def work() -> int:
        return 3

    assert await interruptible(work(), Interrupts()) == 3


async def test_a_second_ctrl_c_does_not_cut_the_clearing_up_short():
    interrupts = Interrupts()
    cleared = []

    async def work() -> int:
        try:
            await send(signal.SIGINT)
            await asyncio.Event().wait()
        finally:
            for _ in range(3):
                await send(signal.SIGINT)
            cleared.append("all")
        return 0

    async with asyncio.timeout(5):
        assert await interruptible(work(), interrupts) == 130
    assert cleared == ["all"]


async def test_a_first_ctrl_c_during_the_clearing_up_waits_for_its_end_and_counts():
    interrupts = Interrupts()
    cleared = []

    async def work() -> int:
        with interrupts.deferred():
            await send(signal.SIGINT)
            cleared.append("all")
        return 0

    async with asyncio.timeout(5):
        assert await interruptible(work(), interrupts) == 130
    assert cleared == ["all"]


async def test_a_cancellation_that_no_signal_asked_for_goes_on():
    async def work() -> int:
        await asyncio.Event().wait()
        return 0

    async with asyncio.TaskGroup() as tasks:

        async def top() -> None:
            await interruptible(work(), Interrupts())

        task = tasks.create_task(top())
        await asyncio.sleep(0)
        task.cancel()
    assert task.cancelled()
