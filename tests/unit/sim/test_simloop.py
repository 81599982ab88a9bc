"""The loop on virtual time: what the simulation rests on, pinned per version of Python."""

import asyncio

import pytest

from tests.sim.simloop import Deadlock, SimClock, SimLoop

SLACK_S = 0.001
"""Steps take a moment, too."""


def run(seed, main, **options):
    with asyncio.Runner(loop_factory=lambda: SimLoop(seed, **options)) as runner:
        return runner.run(main())


def test_a_day_passes_at_once_and_timers_fire_in_order():
    async def main():
        loop, seen = asyncio.get_running_loop(), []
        for delay in (86400.0, 1.0, 0.5):
            loop.call_later(delay, lambda d=delay: seen.append((d, loop.time())))
        await asyncio.sleep(86401.0)
        return seen

    seen = run(1, main)
    assert [delay for delay, _ in seen] == [0.5, 1.0, 86400.0]
    assert [at for _, at in seen] == pytest.approx([0.5, 1.0, 86400.0], abs=SLACK_S)


def test_a_timeout_is_virtual():
    async def main():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3600):
                await asyncio.Event().wait()
        return SimClock().monotonic(), SimClock(skew_s=5).now() - SimClock.START

    assert run(1, main) == pytest.approx((3600.0, 3605.0), abs=SLACK_S)


async def order_of_ten():
    seen = []

    async def one(number):
        await asyncio.sleep(0)
        seen.append(number)

    async with asyncio.TaskGroup() as tasks:
        for number in range(10):
            tasks.create_task(one(number))
    return seen


def test_a_seed_gives_one_order_and_another_seed_another():
    orders = [run(seed, order_of_ten) for seed in (1, 1, 2, 3)]
    assert orders[0] == orders[1]
    assert len({tuple(order) for order in orders}) == 3
    assert all(sorted(order) == list(range(10)) for order in orders)


def test_callbacks_that_are_no_tasks_keep_their_order():
    async def main():
        seen = []
        for number in range(20):
            asyncio.get_running_loop().call_soon(seen.append, number)
        await asyncio.sleep(1)
        return seen

    assert run(7, main) == list(range(20))


def test_waiting_for_ever_is_told_with_the_place():
    async def never_set():
        await asyncio.Event().wait()

    async def main():
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(never_set(), name="the waiter")

    with pytest.raises(Deadlock, match=r"(?s)the waiter: Event\.wait:\d+"):
        run(1, main)


def test_who_looks_at_the_clock_again_and_again_sees_it_move():
    async def main():
        clock = SimClock()
        end = clock.monotonic() + 0.001
        while clock.monotonic() < end:
            await asyncio.sleep(0)
        return True

    assert run(1, main)


def test_work_for_a_thread_is_done_at_once_and_told_later():
    async def main():
        told = await asyncio.to_thread(lambda: asyncio.get_running_loop().time())
        with pytest.raises(ZeroDivisionError):
            await asyncio.get_running_loop().run_in_executor(None, lambda: 1 // 0)
        return told, SimClock().monotonic()

    assert run(1, main, executor_delay_s=lambda: 0.25) == pytest.approx((0.0, 0.5), abs=SLACK_S)


def test_tasks_that_are_ended_together_end_in_the_order_of_the_seed():
    async def main():
        ended = []

        async def one(number):
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(number)

        async def all_of_them():
            async with asyncio.TaskGroup() as tasks:
                keep.extend(tasks.create_task(one(number)) for number in range(50))

        keep = []
        task = asyncio.create_task(all_of_them())
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.wait([task])
        return ended

    junk = [object() for _ in range(1000)]
    first = run(5, main)
    del junk
    assert run(5, main) == first
