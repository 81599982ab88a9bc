"""The line of a controller's writes: gangs become whole one after another."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.controller.adapters.line import ROUND, Line


async def served(line: Line, gangs: dict[str, int]) -> list[str]:
    """Return the names of gangs in the order in which their pods were served."""
    order: list[str] = []

    async def make(name: str, rank) -> None:
        async with line.turn(rank):
            order.append(name)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        for name, pods in gangs.items():
            ranks = line.ranks()
            for _ in range(pods):
                tasks.create_task(make(name, ranks.next()))
    return order


async def test_gangs_become_whole_in_the_order_in_which_they_came():
    assert await served(Line(2), {"a": 5, "b": 5, "c": 5}) == ["a"] * 5 + ["b"] * 5 + ["c"] * 5


async def test_a_large_gang_lets_small_ones_by_after_each_round():
    order = await served(Line(1), {"large": 3 * ROUND, "small": 2})
    assert order.index("small") == ROUND
    assert len(order) == 3 * ROUND + 2


async def test_a_large_gang_is_not_held_up_for_ever_by_small_ones_that_keep_coming():
    line = Line(1)
    large = line.ranks()
    for _ in range(ROUND):
        large.next()
    second_round = large.next()
    early = line.ranks().next()
    assert early < second_round
    async with asyncio.TaskGroup() as tasks:

        async def take(rank) -> None:
            async with line.turn(rank):
                await asyncio.sleep(0)

        tasks.create_task(take(early))
        tasks.create_task(take(second_round))
        await asyncio.sleep(0)
    assert line.ranks().next() > second_round


async def test_everything_else_goes_before_pods():
    line = Line(1)
    order: list[str] = []

    async def write(name: str, *rank) -> None:
        async with line.turn(*rank):
            order.append(name)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        ranks = line.ranks()
        for i in range(3):
            tasks.create_task(write(f"pod-{i}", ranks.next()))
        tasks.create_task(write("status"))
    assert order == ["pod-0", "status", "pod-1", "pod-2"]


@given(
    width=st.integers(1, 4),
    cancelled=st.lists(st.tuples(st.integers(0, 11), st.integers(0, 6)), max_size=8),
)
def test_no_place_is_lost_or_doubled_whoever_is_cancelled(width, cancelled):
    async def main() -> None:
        line = Line(width)
        inside = 0
        done = 0

        async def work(rank) -> None:
            nonlocal inside, done
            async with line.turn(rank):
                inside += 1
                assert inside <= width
                try:
                    await asyncio.sleep(0)
                finally:
                    inside -= 1
            done += 1

        ranks = line.ranks()
        tasks = [asyncio.create_task(work(ranks.next())) for _ in range(12)]
        for step in range(8):
            for index, at in cancelled:
                if at == step:
                    tasks[index].cancel()
            await asyncio.sleep(0)
        await asyncio.wait(tasks)
        assert done == sum(not task.cancelled() for task in tasks)
        async with asyncio.timeout(1):
            await asyncio.gather(*(work(line.ranks().next()) for _ in range(width * 2)))

    asyncio.run(main())


@pytest.mark.parametrize("width", [1, 3, 32])
async def test_as_many_are_under_way_as_may_be(width):
    line = Line(width)
    most = inside = 0

    async def work(rank) -> None:
        nonlocal most, inside
        async with line.turn(rank):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

    ranks = line.ranks()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(100):
            tasks.create_task(work(ranks.next()))
    assert most == width
