"""Leases and leadership: one holder, quick take-over, and no harm done by a zombie."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio

from shared.bus.errors import WrongSequence
from shared.contracts import codec
from shared.contracts.leases import LeaseRecord
from shared.election.lease import LeaseLost, LeaseTiming
from shared.runtime.clock import SystemClock
from tests.contract.bus import leader_process
from tests.contract.bus.conftest import Status, only_nats
from tests.support.nats_servers import PATIENT, lease_of
from tests.support.program import Program, running
from tests.support.wait import until, within

SHORT = LeaseTiming(renew_s=0.2, stop_s=0.8, takeover_s=1.2)
AT_ONCE_S = 20.0
"""Long for a busy machine, and nothing beside `PATIENT`."""
PROGRAM = Path(leader_process.__file__)


lease = partial(lease_of, clock=SystemClock())


async def ended(task: asyncio.Task) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_one_candidate_gets_the_lease_and_keeps_it(bus, open_bus):
    holder, candidate = lease(bus, "a"), lease(await open_bus(), "b")
    await holder.acquire()
    keeping = asyncio.create_task(holder.keep())
    waiting = asyncio.create_task(candidate.acquire())
    await asyncio.sleep(2.2)
    assert not waiting.done()
    assert holder.valid
    await ended(waiting)
    await ended(keeping)


async def test_a_released_lease_is_taken_at_once(bus, open_bus):
    holder, candidate = lease(bus, "a"), lease(await open_bus(), "b", timing=PATIENT)
    await holder.acquire()
    waiting = asyncio.create_task(candidate.acquire())
    await asyncio.sleep(0.3)
    await holder.release()
    async with within(AT_ONCE_S):
        await waiting
    assert candidate.valid
    assert not holder.valid


async def test_a_lease_is_taken_when_its_time_has_run_out(bus, open_bus):
    holder = lease(bus, "a", timing=SHORT)
    candidate = lease(await open_bus(), "b", timing=SHORT)
    await holder.acquire()
    waiting = asyncio.create_task(candidate.acquire())
    began = time.monotonic()
    async with within(AT_ONCE_S):
        await waiting
    assert time.monotonic() - began > 1.1
    with pytest.raises(LeaseLost):
        await holder.keep()


async def test_a_holder_stops_itself_when_no_renewal_is_answered(bus, server):
    holder = lease(bus, "a", timing=SHORT)
    await holder.acquire()
    keeping = asyncio.create_task(holder.keep())
    await asyncio.sleep(0.5)
    await server.freeze()
    try:
        async with within(3.0):
            with pytest.raises(LeaseLost, match="no answer to a renewal in time"):
                await keeping
        assert not holder.valid
    finally:
        server.thaw()


async def test_a_holder_whose_record_was_overwritten_is_told(bus, declared, subjects):
    holder = lease(bus, "a")
    await holder.acquire()
    record = codec.encode(LeaseRecord(holder="b", renewals=1, time=0.0))
    await bus.publisher(declared.lease.name).publish(holder.subject, record)
    with pytest.raises(LeaseLost, match="held by b"):
        await holder.keep()


async def test_a_holder_takes_its_lease_again_after_an_absence_of_the_server(bus, server):
    holder = lease(bus, "a")
    await holder.acquire()
    keeping = asyncio.create_task(holder.keep())
    await server.stop()
    with pytest.raises(LeaseLost, match="connection to NATS was away"):
        await keeping
    await server.start()
    await holder.acquire()
    assert holder.valid


@pytest_asyncio.fixture
async def beside(bus, subjects, start_bus):
    """Open connections for leases, each with its presence subject."""

    async def open_one(holder: str):
        status = Status()
        made = bus.second_connection(
            "leases", presence=subjects.presence("scheduler", holder), on_status=status.set
        )
        start_bus(made)
        await made.connected()
        return made

    return open_one


@pytest.fixture
def present(subjects):
    """Make leases whose holders listen on their presence subject."""
    return partial(lease, presence=partial(subjects.presence, "scheduler"))


async def test_a_holder_without_a_connection_is_followed_long_before_its_time_runs_out(
    beside, present, start_bus
):
    holder = present(await beside("a"), "a")
    candidate = present(await beside("b"), "b", timing=PATIENT)
    await holder.acquire()
    waiting = asyncio.create_task(candidate.acquire())
    await asyncio.sleep(0.5)
    assert not waiting.done()
    start_bus.tasks[-2].cancel()
    async with within(AT_ONCE_S):
        await waiting
    assert candidate.dead_holder[0] == "a"


async def test_a_holder_that_is_heard_keeps_its_lease_though_it_renews_slowly(beside, present):
    slow = LeaseTiming(renew_s=1.5, stop_s=2.0, takeover_s=3.0)
    holder, candidate = (
        present(await beside("a"), "a", timing=slow),
        present(await beside("b"), "b"),
    )
    await holder.acquire()
    keeping = asyncio.create_task(holder.keep())
    waiting = asyncio.create_task(candidate.acquire())
    await asyncio.sleep(1.4)
    assert not waiting.done()
    assert holder.valid
    await ended(waiting)
    await ended(keeping)


async def test_a_holder_that_lost_its_connection_has_stopped_before_another_begins(
    beside, present, start_bus, server
):
    holder, candidate = present(await beside("a"), "a"), present(await beside("b"), "b")
    await holder.acquire()
    keeping = asyncio.create_task(holder.keep())
    waiting = asyncio.create_task(candidate.acquire())
    await asyncio.sleep(0.3)
    start_bus.tasks[-2].cancel()
    with pytest.raises(LeaseLost, match="connection to NATS was away"):
        await keeping
    assert not waiting.done()
    await waiting


async def test_a_holder_of_an_older_version_is_judged_by_its_renewals_alone(beside, present, bus):
    holder, candidate = lease(bus, "old"), present(await beside("b"), "b")
    await holder.acquire()
    keeping = asyncio.create_task(holder.keep())
    waiting = asyncio.create_task(candidate.acquire())
    await asyncio.sleep(1.2)
    assert not waiting.done()
    await ended(waiting)
    await ended(keeping)


async def test_nobody_is_heard_where_nobody_listens(beside, subjects):
    one = await beside("a")
    assert await one.listens(subjects.presence("scheduler", "a"))
    assert not await one.listens(subjects.presence("scheduler", "b"))


@pytest_asyncio.fixture
async def program(bus, server):
    """Start the leader program; killed with the test."""
    words = (str(PROGRAM), server.nats.url, "admin", server.nats.passwords["admin"], "frozen")
    async with running(
        Program,
        *(sys.executable, *words),
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(PROGRAM.parents[3])},
    ) as leader:
        yield leader


@only_nats
async def test_a_frozen_leader_that_wakes_up_is_refused_and_stops(
    program, bus, declared, subjects, beside
):
    own = await beside("successor")
    await until(lambda: program.lines, describe="the first leader")
    stream = declared.state.name

    async def published() -> bool:
        return (await bus.info(stream)).last_seq > 200

    await until(published, describe="facts of the first leader")
    program.send_signal(signal.SIGSTOP)

    term = asyncio.get_running_loop().create_future()

    async def lead(begun) -> None:
        term.set_result(begun)
        await leader_process.publish_for_ever(bus, "successor", begun)

    successor = leader_process.leadership(own, "successor", present=True)
    leading = asyncio.create_task(successor.run(lead))
    async with within(AT_ONCE_S):
        begun = await term
    program.send_signal(signal.SIGCONT)
    await until(lambda: "ended" in program.lines, describe="the zombie to stop")
    mark = begun.token(stream).sequence
    await asyncio.sleep(0.3)
    messages = await bus.snapshot(stream, [subjects.state("pods", "ns/successor-1")])
    assert messages
    assert messages[0].sequence > mark
    last = (await bus.info(stream)).last_seq
    after = [await bus.get(stream, s) for s in range(mark + 1, last + 1)]
    assert {m.payload.partition(b"/")[0] for m in after if m} == {b"successor"}
    assert program.lines == [program.lines[0], "ended"]
    await ended(leading)


@only_nats
async def test_a_killed_leader_is_followed_at_once(program, bus, beside):
    own = await beside("successor")
    await until(lambda: program.lines, describe="the first leader")
    began = asyncio.Event()

    async def lead(_) -> None:
        began.set()
        await asyncio.Event().wait()

    successor = leader_process.leadership(own, "successor", present=True, timing=PATIENT)
    leading = asyncio.create_task(successor.run(lead))
    await asyncio.sleep(0.5)
    program.send_signal(signal.SIGKILL)
    async with within(AT_ONCE_S):
        await began.wait()
    await ended(leading)


async def test_a_leader_begins_a_new_term_when_its_stream_is_made_anew(bus, declared, server):
    terms = []

    async def lead(term) -> None:
        terms.append(term)
        await leader_process.publish_for_ever(bus, "a", term)

    leading = asyncio.create_task(leader_process.leadership(bus, "a").run(lead))
    await until(lambda: terms, describe="the first term")
    await server.restart(kill=True)
    await until(lambda: len(terms) > 1, describe="the second term")

    async def published() -> bool:
        return (await bus.info(declared.state.name)).last_seq > 50

    await until(published, describe="facts of the new term")
    assert terms[-1].number > terms[0].number
    await ended(leading)


async def test_a_leader_that_ends_in_order_hands_over_at_once(bus, open_bus):
    changes = []
    first = asyncio.create_task(
        leader_process.leadership(bus, "a", changes.append).run(lambda _: asyncio.Event().wait())
    )
    await until(lambda: changes, describe="the first leader")
    began = asyncio.Event()

    async def lead(_) -> None:
        began.set()
        await asyncio.Event().wait()

    successor = leader_process.leadership(await open_bus(), "b", timing=PATIENT)
    second = asyncio.create_task(successor.run(lead))
    await asyncio.sleep(0.3)
    await ended(first)
    async with within(AT_ONCE_S):
        await began.wait()
    assert changes[-1] is None
    await ended(second)


async def test_a_process_whose_parts_all_end_at_once_still_hands_over(bus, open_bus, start_bus):
    changes = []
    ending = await open_bus()
    bus_of_ending = start_bus.tasks[-1]
    first = asyncio.create_task(
        leader_process.leadership(ending, "a", changes.append).run(lambda _: asyncio.Event().wait())
    )
    await until(lambda: changes, describe="the first leader")
    began = asyncio.Event()

    async def lead(_) -> None:
        began.set()
        await asyncio.Event().wait()

    second = asyncio.create_task(leader_process.leadership(bus, "b", timing=PATIENT).run(lead))
    await asyncio.sleep(0.3)
    bus_of_ending.cancel()
    first.cancel()
    async with within(AT_ONCE_S):
        await began.wait()
        await asyncio.wait([bus_of_ending, first])
    await ended(second)


async def test_a_mark_read_before_the_successors_cannot_fence_it_out(bus, declared, subjects):
    publisher = bus.publisher(declared.state.name)
    before = await bus.last(declared.state.name, subjects.leader("state"))
    assert before is None
    await publisher.publish(subjects.leader("state"), b"successor", expect_last=0)
    with pytest.raises(WrongSequence):
        await publisher.publish(subjects.leader("state"), b"zombie", expect_last=0)
