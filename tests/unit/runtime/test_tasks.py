"""A failed group of tasks leaves no mark on the task that it ran in, on any Python."""

import asyncio
import contextlib

import pytest

from shared.runtime.tasks import TaskGroup, in_own_task


class Lost(Exception):  # noqa: N818 - the fact
    pass


async def fail() -> None:
    await asyncio.sleep(0)
    raise Lost


async def cancelling() -> int:
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling()


async def group_whose_child_fails(*, body_waits: bool) -> None:
    async with TaskGroup() as group:
        group.create_task(fail())
        if body_waits:
            await asyncio.Event().wait()


@pytest.mark.parametrize("body_waits", [True, False], ids=["in its body", "in its end"])
async def test_time_outs_after_a_group_that_failed_are_time_outs(body_waits):
    for _ in range(3):
        with pytest.raises(ExceptionGroup):
            await group_whose_child_fails(body_waits=body_waits)
        assert await cancelling() == 0
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await asyncio.Event().wait()


async def test_an_order_to_end_that_meets_a_failure_is_carried_out():
    went_on = False

    async def part() -> None:
        nonlocal went_on
        with contextlib.suppress(ExceptionGroup):
            async with TaskGroup() as group:
                group.create_task(fail_when_told())
        await asyncio.sleep(0)
        went_on = True

    async def fail_when_told() -> None:
        await told.wait()
        raise Lost

    told = asyncio.Event()
    async with TaskGroup() as group:
        task = group.create_task(part())
        await asyncio.sleep(0)
        told.set()
        await asyncio.sleep(0)
        task.cancel()
    assert not went_on
    assert task.cancelled()


async def test_an_order_to_end_within_a_group_is_an_order_to_end():
    async def part() -> None:
        async with TaskGroup() as group:
            group.create_task(asyncio.Event().wait())

    async with TaskGroup() as group:
        task = group.create_task(part())
        await asyncio.sleep(0)
        task.cancel()
    assert task.cancelled()


async def test_what_runs_apart_leaves_its_cancellation_behind():
    async def marked() -> int:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        return task.cancelling()

    assert await in_own_task(marked, name="marked") == 1
    assert await cancelling() == 0


async def test_a_cancellation_reaches_what_runs_apart():
    ended = asyncio.Event()

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with TaskGroup() as group:
        task = group.create_task(in_own_task(waits, name="waits"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
    assert ended.is_set()
    assert task.cancelled()


async def test_a_child_that_ends_cancelled_untold_is_a_failure_of_its_group():
    future = asyncio.get_running_loop().create_future()
    future.cancel()

    async def meets_a_cancelled_future() -> None:
        await future

    with pytest.raises(ExceptionGroup) as caught:
        async with TaskGroup() as group:
            group.create_task(meets_a_cancelled_future(), name="reader")
    assert "task reader was cancelled without being told" in str(caught.value.exceptions[0])


async def test_a_child_that_was_told_to_end_is_no_failure():
    async with TaskGroup() as group:
        before = group.create_task(asyncio.Event().wait())
        before.cancel()
        running = group.create_task(asyncio.Event().wait())
        await asyncio.sleep(0)
        running.cancel()
    assert before.cancelled()
    assert running.cancelled()
