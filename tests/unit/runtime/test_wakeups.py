"""While processors are scarce sockets wake a process at a bounded rate; nothing else ever waits."""

import asyncio
import socket
from bisect import bisect_right
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.runtime import wakeups
from shared.runtime.wakeups import (
    LimitedSelector,
    Processors,
    Ticks,
    WakeupLimit,
    loop_factory,
    read_ticks,
)

PER_SECOND = 10.0
FREE = 40


class Time:
    """A clock that only rests move."""

    def __init__(self) -> None:
        self.now = 100.0
        self.rests: list[float] = []

    def read(self) -> float:
        return self.now

    def rest(self, seconds: float) -> None:
        self.rests.append(seconds)
        self.now += seconds


class Machine:
    """Counts ticks; `idle` of each hundred are idle."""

    def __init__(self, idle: int = 0) -> None:
        self.idle = idle
        self.ticks: Ticks | None = Ticks(idle=0, all=0)

    def read(self) -> Ticks | None:
        if self.ticks is not None:
            self.ticks = Ticks(self.ticks.idle + self.idle, self.ticks.all + 100)
        return self.ticks


def scarce() -> Processors:
    """Return processors none of which has been idle for long."""
    processors = Processors(Machine().read)
    processors.scarce(0.0)
    assert processors.scarce(10.0)
    return processors


@pytest.fixture
def clock():
    return Time()


@pytest.fixture
def selector(clock):
    limit = WakeupLimit(PER_SECOND, scarce())
    with closing(LimitedSelector(limit, now=clock.read, rest=clock.rest)) as selector:
        yield selector


@pytest.fixture
def readable(selector):
    """A socket of the selector that has something to read, always."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.send(b"x")
        selector.register(ours, 1)
        yield ours


def woken(selector: LimitedSelector, times: int) -> None:
    for _ in range(times):
        assert selector.select()


def test_the_wakeups_of_four_seconds_are_free(selector, readable, clock):
    woken(selector, FREE)
    assert clock.rests == []


def test_each_wakeup_after_those_waits_for_its_turn(selector, readable, clock):
    woken(selector, FREE + 5)
    assert clock.rests == pytest.approx([1 / PER_SECOND] * 5)


def test_no_rate_is_so_low_that_a_rest_could_cost_a_lease(clock):
    limit = WakeupLimit(0.001, scarce())
    for _ in range(3 * FREE):
        clock.rest(limit.rest_s(clock.now))
        limit.woken(clock.now)
    assert 0.0 < max(clock.rests) <= 0.1 + 1e-9


def test_quiet_seconds_make_wakeups_free_again(selector, readable, clock):
    woken(selector, FREE)
    clock.now += 1.0
    woken(selector, 10)
    assert clock.rests == []
    woken(selector, 1)
    assert len(clock.rests) == 1


def test_a_look_without_waiting_never_rests_and_is_free(selector, readable, clock):
    for _ in range(3 * FREE):
        assert selector.select(0)
    assert clock.rests == []


def test_a_wait_for_a_timer_is_no_longer_for_a_rest(selector, readable, clock):
    woken(selector, FREE)
    began = clock.now
    assert selector.select(0.03)
    assert clock.now - began == pytest.approx(0.03)


def test_a_wait_that_ends_without_a_socket_is_not_counted(selector, clock):
    for _ in range(3 * FREE):
        assert selector.select(1e-9) == []
    assert clock.rests == []


@given(gaps=st.lists(st.floats(0, 0.5), max_size=200))
def test_no_second_has_more_wakeups_than_the_free_ones_and_those_of_its_rate(gaps):
    limit, now, times = WakeupLimit(PER_SECOND, scarce()), 20.0, []
    for gap in gaps:
        now += gap
        now += limit.rest_s(now)
        limit.woken(now)
        times.append(now)
    for index, begin in enumerate(times):
        end = bisect_right(times, begin + 1.0)
        assert end - index <= FREE + PER_SECOND + 1


@pytest.mark.parametrize("idle", [10, 50, 100])
def test_while_a_tenth_of_the_processors_is_idle_nothing_rests(idle, readable, clock):
    processors = Processors(Machine(idle).read)
    processors.scarce(clock.now - 10)
    limit = WakeupLimit(PER_SECOND, processors)
    with closing(LimitedSelector(limit, now=clock.read, rest=clock.rest)) as selector:
        selector.register(readable, 1)
        woken(selector, 3 * FREE)
    assert clock.rests == []


def test_what_woke_it_while_processors_were_idle_is_not_made_up_for(clock):
    machine = Machine(idle=100)
    limit = WakeupLimit(PER_SECOND, Processors(machine.read))
    for _ in range(100 * FREE):
        limit.woken(clock.now)
    machine.idle = 0
    limit.rest_s(clock.now)
    clock.now += 2.0
    assert limit.rest_s(clock.now) == 0.0
    for _ in range(FREE):
        limit.woken(clock.now)
    assert 0.0 < limit.rest_s(clock.now) <= 2 / PER_SECOND


def test_the_idle_share_is_that_since_the_last_look():
    machine = Machine(idle=100)
    processors = Processors(machine.read)
    assert not processors.scarce(0.0)
    machine.idle = 9
    assert processors.scarce(1.0)
    machine.idle = 11
    assert not processors.scarce(2.0)


def test_the_machine_is_looked_at_once_a_second():
    machine = Machine()
    processors = Processors(machine.read)
    for tenth in range(31):
        processors.scarce(tenth / 10)
    assert machine.ticks == Ticks(idle=0, all=400)


def test_where_nothing_is_counted_processors_are_never_scarce(clock):
    machine = Machine()
    machine.ticks = None
    processors = Processors(machine.read)
    assert [processors.scarce(now) for now in range(5)] == [False] * 5


def test_the_kernels_count_is_read_without_counting_guests_twice(tmp_path, monkeypatch):
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 20 30 400 50 6 7 8 90 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n")
    monkeypatch.setattr(wakeups, "_STAT", stat)
    assert read_ticks() == Ticks(idle=450, all=621)
    stat.unlink()
    assert read_ticks() is None


def test_a_loop_with_a_limit_is_an_event_loop_like_any():
    async def exchange() -> tuple[bytes, int]:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            theirs.send(b"ping")
            await asyncio.sleep(0.001)
            return await loop.sock_recv(ours, 4), await asyncio.to_thread(int, "7")

    with asyncio.Runner(loop_factory=loop_factory(PER_SECOND)) as runner:
        assert runner.run(exchange()) == (b"ping", 7)


def test_without_a_bound_the_loop_is_asyncios_own():
    assert loop_factory(0) is None
