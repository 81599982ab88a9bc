"""Slots: so many in all, so many per node, nobody held up by another's busy node."""

import asyncio

from services.binder.adapters.throttle import ConcurrencyLimiter, LimiterSettings, Throttle
from services.binder.metrics import BinderMetrics
from shared.runtime.metrics import Metrics
from tests.support.clock import settle


class Bench:
    def __init__(self, *, limit: int, per_node: int) -> None:
        pace = ConcurrencyLimiter(LimiterSettings(start=limit, least=1, most=limit))
        self.throttle = Throttle(pace, per_node=per_node, metrics=BinderMetrics(Metrics()))
        self.inside: list[str] = []
        self.release: dict[str, asyncio.Event] = {}

    async def use(self, name: str, node: str = "") -> None:
        self.release[name] = asyncio.Event()
        async with self.throttle.slot(node):
            self.inside.append(name)
            await self.release[name].wait()
        self.inside.remove(name)


async def test_slots_are_given_in_order_and_never_beyond_the_limit() -> None:
    bench = Bench(limit=2, per_node=9)
    async with asyncio.TaskGroup() as group:
        for name in "abcd":
            group.create_task(bench.use(name))
        await settle()
        assert bench.inside == ["a", "b"]
        bench.release["a"].set()
        await settle()
        assert bench.inside == ["b", "c"]
        for event in bench.release.values():
            event.set()
        await settle()
        bench.release["d"].set()
    assert bench.inside == []


async def test_a_busy_node_holds_up_only_its_own_binds() -> None:
    bench = Bench(limit=3, per_node=1)
    async with asyncio.TaskGroup() as group:
        for name, node in (("a", "n1"), ("b", "n1"), ("c", "n1"), ("d", "n2")):
            group.create_task(bench.use(name, node))
        await settle()
        assert bench.inside == ["a", "d"]
        for name in "adbc":
            bench.release[name].set()
            await settle()
    assert bench.throttle._nodes == {}


async def test_a_waiter_that_is_cancelled_takes_no_slot_with_it() -> None:
    bench = Bench(limit=1, per_node=1)
    async with asyncio.TaskGroup() as group:
        group.create_task(bench.use("a", "n"))
        doomed = [group.create_task(bench.use(name)) for name in ("b", "c")]
        await settle()
        for task in doomed:
            task.cancel()
        await settle()
        bench.release["a"].set()
        group.create_task(bench.use("d", "n"))
        await settle()
        assert bench.inside == ["d"]
        bench.release["d"].set()


async def test_a_slot_given_to_a_waiter_in_the_moment_of_its_cancellation_is_passed_on() -> None:
    bench = Bench(limit=1, per_node=1)
    async with asyncio.TaskGroup() as group:
        group.create_task(bench.use("a"))
        await settle()
        doomed = group.create_task(bench.use("b"))
        group.create_task(bench.use("c"))
        await settle()
        bench.throttle._leave()  # as if "a" ended: the slot goes to "b" …
        bench.throttle._take()
        doomed.cancel()  # … which is cancelled before it runs
        await settle()
        bench.release["a"].set()
        await settle()
        assert bench.inside == ["c"]
        bench.release["c"].set()
