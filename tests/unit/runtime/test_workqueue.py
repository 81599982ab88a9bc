"""The work queue: merging, fairness, serial keys, back-off and bounds."""

import asyncio
import contextlib
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.runtime.backoff import Backoff
from shared.runtime.errors import Retryable
from shared.runtime.metrics import Metrics
from shared.runtime.quarantine import QuarantineRegistry
from shared.runtime.workqueue import WorkQueue, WorkQueueMetrics
from tests.support.clock import VirtualClock, settle
from tests.support.env import env_of_a_test


class Bench:
    """A work queue on virtual time and a handler that the test steers."""

    def __init__(self, *, capacity: int = 100, workers: int = 1) -> None:
        self.clock = VirtualClock()
        self.metrics = Metrics()
        self.quarantined = QuarantineRegistry()
        self.handled: list[tuple[str, float]] = []
        self.running: list[str] = []
        self.hold: dict[str, asyncio.Event] = {}
        self.fail: dict[str, list[Exception]] = {}
        self.costs: dict[str, int] = {}
        """Seconds that the handler takes for a key."""
        self.workers = workers
        self.queue: WorkQueue[str] = WorkQueue(
            "test",
            kind="things",
            capacity=capacity,
            backoff=Backoff(first_s=1, cap_s=8, jitter=0, rng=random.Random(1)),
            env=env_of_a_test(clock=self.clock, quarantined=self.quarantined),
            metrics=WorkQueueMetrics(self.metrics),
        )

    async def handle(self, key: str) -> None:
        assert key not in self.running, "a key is served by one worker at a time"
        self.running.append(key)
        try:
            if key in self.hold:
                await self.hold[key].wait()
            if key in self.costs:
                await self.clock.sleep(self.costs[key])
            self.handled.append((key, self.clock.monotonic() - 1_000_000))
            if self.fail.get(key):
                raise self.fail[key].pop(0)
        finally:
            self.running.remove(key)

    @contextlib.asynccontextmanager
    async def served(self):
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.queue.run(self.handle, self.workers))
            yield self
            task.cancel()

    @property
    def keys(self) -> list[str]:
        return [key for key, _ in self.handled]


async def test_keys_are_served_in_the_order_of_their_first_add_and_merge() -> None:
    bench = Bench()
    for key in ("a", "b", "a", "c", "b"):
        bench.queue.add(key)
    async with bench.served():
        await settle()
    assert bench.keys == ["a", "b", "c"]


@given(
    before=st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 40)), max_size=120),
    workers=st.integers(1, 3),
)
def test_a_key_waits_for_one_key_of_each_other_namespace_and_those_before_it_in_its_own(
    before, workers
) -> None:
    async def main() -> None:
        bench = Bench(workers=workers)
        for namespace, name in before:
            bench.queue.add(f"{namespace}/{name}")
        bench.queue.add("late/gang")
        async with bench.served():
            await settle()
        assert sorted(bench.keys) == sorted({*(f"{ns}/{n}" for ns, n in before), "late/gang"})
        assert bench.keys.index("late/gang") <= len({ns for ns, _ in before})
        for namespace in "abcd":
            own = [key for key in bench.keys if key.startswith(f"{namespace}/")]
            assert own == list(dict.fromkeys(f"{ns}/{n}" for ns, n in before if ns == namespace))

    asyncio.run(main())


async def test_a_key_added_while_it_is_served_is_served_once_more_after() -> None:
    bench = Bench(workers=4)
    bench.hold["a"] = asyncio.Event()
    async with bench.served():
        bench.queue.add("a")
        await settle()
        for _ in range(3):
            bench.queue.add("a")
        await settle()
        assert bench.keys == []
        bench.hold["a"].set()
        await settle()
    assert bench.keys == ["a", "a"]


async def test_a_slow_key_does_not_stop_the_others() -> None:
    bench = Bench(workers=2)
    bench.hold["slow"] = asyncio.Event()
    async with bench.served():
        for key in ("slow", "b", "c"):
            bench.queue.add(key)
        await settle()
        assert bench.keys == ["b", "c"]


async def test_failures_back_off_per_key_and_a_success_resets() -> None:
    bench = Bench()
    bench.fail["a"] = [Retryable("busy"), ValueError("broken"), Retryable("busy")]
    async with bench.served():
        bench.queue.add("a")
        bench.queue.add("b")
        await bench.clock.advance(20)
        assert bench.handled == [("a", 0), ("b", 0), ("a", 1), ("a", 3), ("a", 7)]
        bench.fail["a"] = [Retryable("busy")]
        bench.queue.add("a")
        await bench.clock.advance(1)
    assert bench.handled[-2:] == [("a", 20), ("a", 21)]
    page = bench.metrics.render().decode()
    assert 'pumice_work_queue_failures_total{name="test"} 1.0' in page
    assert 'pumice_work_queue_retries_total{name="test"} 4.0' in page


@pytest.mark.parametrize("others", [True, False])
async def test_a_key_whose_attempts_take_long_to_fail_is_tried_less_often(others: bool) -> None:
    """The API server works that long for one object of one tenant; or it is away for all."""
    bench = Bench(workers=2)
    bench.costs["a"] = took_s = 10
    bench.fail["a"] = [Retryable("no answer in 10 s") for _ in range(500)]

    async def pass_(seconds: int) -> int:
        before = bench.keys.count("a")
        for _ in range(0, seconds, 5):
            if others:
                bench.queue.add("b")
            await bench.clock.advance(5)
        return bench.keys.count("a") - before

    async with bench.served():
        bench.queue.add("a")
        assert await pass_(3 * took_s) == 2, "the second attempt comes soon"
        await pass_(3600)
        tries = await pass_(3600)
    if others:
        assert 0 < tries * took_s <= 3600 / 20
    else:
        assert tries * (took_s + 8) >= 3600 * 0.9


async def test_an_add_does_not_shorten_a_back_off_and_the_other_side_sets_its_length() -> None:
    bench = Bench()
    bench.fail["a"] = [Retryable("busy", retry_after_s=5)]
    async with bench.served():
        bench.queue.add("a")
        await bench.clock.advance(1)
        bench.queue.add("a")
        bench.queue.add_after("a", 1)
        await bench.clock.advance(10)
    assert bench.handled == [("a", 0), ("a", 5)]


async def test_a_delayed_key_comes_at_its_earliest_time_and_once() -> None:
    bench = Bench()
    async with bench.served():
        bench.queue.add_after("a", 5)
        bench.queue.add_after("a", 2)
        bench.queue.add_after("a", 9)
        bench.queue.add_after("b", 4)
        await bench.clock.advance(1)
        bench.queue.add("b")
        await bench.clock.advance(20)
    assert bench.handled == [("b", 1), ("a", 2)]


async def test_a_full_queue_counts_what_is_too_much_and_loses_nothing() -> None:
    bench = Bench(capacity=2)
    for key in ("a", "b", "a", "c"):
        bench.queue.add(key)
    assert len(bench.queue) == 3
    async with bench.served():
        await settle()
    assert bench.keys == ["a", "b", "c"]
    overflows = 'pumice_work_queue_overflows_total{name="test"} 1.0'
    assert overflows in bench.metrics.render().decode()


@pytest.mark.parametrize("attempt", [0, 3, 1000])
def test_a_ladder_stays_between_its_first_step_and_its_cap(attempt) -> None:
    backoff = Backoff(first_s=0.5, cap_s=10, jitter=0.2, rng=random.Random(3))
    assert 0.4 <= backoff.delay_s(attempt) <= 10
