"""The queue of a controller's writes: gangs become whole one after another."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.controller.adapters.write_queue import ROUND, WriteQueue


async def served(queue: WriteQueue, gangs: dict[str, int]) -> list[str]:
    """Return the names of gangs in the order in which their pods were served."""
    order: list[str] = []

    async def make(name: str, rank) -> None:
        async with queue.slot(rank):
            order.append(name)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        for name, pods in gangs.items():
            ranks = queue.ranks("team")
            for _ in range(pods):
                tasks.create_task(make(name, ranks.next()))
    return order


async def test_gangs_become_whole_in_the_order_in_which_they_came():
    assert (
        await served(WriteQueue(2), {"a": 5, "b": 5, "c": 5}) == ["a"] * 5 + ["b"] * 5 + ["c"] * 5
    )


async def test_a_large_gang_lets_small_ones_by_after_each_round():
    order = await served(WriteQueue(1), {"large": 3 * ROUND, "small": 2})
    assert order.index("small") == ROUND
    assert len(order) == 3 * ROUND + 2


async def test_a_large_gang_is_not_held_up_for_ever_by_small_ones_that_keep_coming():
    queue = WriteQueue(1)
    large = queue.ranks("team")
    for _ in range(ROUND):
        large.next()
    second_round = large.next()
    early = queue.ranks("team").next()
    assert early < second_round
    async with asyncio.TaskGroup() as tasks:

        async def take(rank) -> None:
            async with queue.slot(rank):
                await asyncio.sleep(0)

        tasks.create_task(take(early))
        tasks.create_task(take(second_round))
        await asyncio.sleep(0)
    assert queue.ranks("team").next() > second_round


async def test_many_small_gangs_of_a_namespace_let_those_of_others_by():
    queue = WriteQueue(1)
    order: list[str] = []

    async def make(name: str, rank) -> None:
        async with queue.slot(rank):
            order.append(name)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        for i in range(6 * ROUND):
            tasks.create_task(make(f"many-{i}", queue.ranks("many").next()))
        theirs = queue.ranks("other")
        for _ in range(3):
            tasks.create_task(make("other", theirs.next()))
    assert order.index("other") <= ROUND + 1, "one round of the namespace with many"
    assert len(order) == 6 * ROUND + 3


@given(st.lists(st.sampled_from("abc"), max_size=4 * ROUND))
def test_a_gang_waits_for_one_round_of_each_other_namespace_at_most(gangs):
    queue = WriteQueue(1)
    taken = [(namespace, queue.ranks(namespace).next()) for namespace in gangs]
    mine = queue.ranks("late").next()
    for namespace in "abc":
        assert sum(rank < mine for name, rank in taken if name == namespace) <= ROUND + 1


async def test_everything_else_goes_before_pods():
    queue = WriteQueue(1)
    order: list[str] = []

    async def write(name: str, *rank) -> None:
        async with queue.slot(*rank):
            order.append(name)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        ranks = queue.ranks("team")
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
        queue = WriteQueue(width)
        inside = 0
        done = 0

        async def work(rank) -> None:
            nonlocal inside, done
            async with queue.slot(rank):
                inside += 1
                assert inside <= width
                try:
                    await asyncio.sleep(0)
                finally:
                    inside -= 1
            done += 1

        ranks = queue.ranks("team")
        tasks = [asyncio.create_task(work(ranks.next())) for _ in range(12)]
        for step in range(8):
            for index, at in cancelled:
                if at == step:
                    tasks[index].cancel()
            await asyncio.sleep(0)
        await asyncio.wait(tasks)
        assert done == sum(not task.cancelled() for task in tasks)
        async with asyncio.timeout(1):
            await asyncio.gather(*(work(queue.ranks("team").next()) for _ in range(width * 2)))

    asyncio.run(main())


@pytest.mark.parametrize("width", [1, 3, 32])
async def test_as_many_are_under_way_as_may_be(width):
    queue = WriteQueue(width)
    most = inside = 0

    async def work(rank) -> None:
        nonlocal most, inside
        async with queue.slot(rank):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

    ranks = queue.ranks("team")
    async with asyncio.TaskGroup() as tasks:
        for _ in range(100):
            tasks.create_task(work(ranks.next()))
    assert most == width
