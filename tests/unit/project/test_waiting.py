"""A limit of the tests ends what hangs, and no stall of the machine counts towards it."""

import asyncio
import time

import pytest

from tests.support.wait import until, within


async def hang() -> None:
    await asyncio.Event().wait()


async def test_a_limit_ends_what_hangs() -> None:
    with pytest.raises(TimeoutError):
        async with within(0.1):
            await hang()


async def test_a_stall_of_the_process_does_not_count() -> None:
    began = time.monotonic()
    async with within(0.5):
        time.sleep(0.7)
        await asyncio.sleep(0.1)
    assert time.monotonic() - began > 0.7


async def test_a_condition_that_does_not_come_fails_with_what_was_seen_last() -> None:
    with pytest.raises(AssertionError, match=r"the moon: not within 0\.1 s; last seen: 0"):
        await until(lambda: 0, deadline_s=0.1, describe="the moon")


async def test_a_probe_that_hangs_fails_at_the_deadline() -> None:
    with pytest.raises(AssertionError, match="TimeoutError"):
        await until(hang, deadline_s=0.1)


async def test_a_condition_that_comes_after_a_stall_is_seen() -> None:
    began = time.monotonic()

    def stalled_once() -> bool:
        if time.monotonic() - began < 0.5:
            time.sleep(0.7)
            return False
        return True

    assert await until(stalled_once, deadline_s=0.5)
