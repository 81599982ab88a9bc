"""Questions in processes of their own: their answers, their bounds, and what they leave behind."""

import asyncio
import contextlib
import os
import signal
import time

import msgspec
import pytest

from services.visibility.adapters.forked import ForkedQuery, ProcessLimits
from shared.runtime.clock import SystemClock
from shared.runtime.errors import Broken, Rejected, Retryable

MIB = 1024 * 1024


def limits(*, cpu_s: int = 30, memory: int = 512 * MIB, wall_s: float = 50.0) -> ProcessLimits:
    return ProcessLimits(cpu_s=cpu_s, memory_bytes=memory, wall_s=wall_s)


class Found(msgspec.Struct):
    """A result."""

    pid: int = 0
    text: str = ""


async def ask(work, **bounds):
    async with ForkedQuery(Found, limits=limits(**bounds), clock=SystemClock()) as question:
        question.start(work)
        return await question.result()


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def forever() -> Found:
    while True:
        pass


async def test_an_answer_comes_from_a_process_that_is_gone_then():
    found = await ask(lambda: Found(pid=os.getpid(), text="x" * 1_000_000))
    assert found.pid != os.getpid()
    assert len(found.text) == 1_000_000
    assert not is_there(found.pid)


async def test_what_the_process_changes_stays_with_it():
    state = [1]

    def work() -> Found:
        state.append(2)
        return Found(text=str(state))

    assert (await ask(work)).text == "[1, 2]"
    assert state == [1]


async def test_a_question_that_takes_too_much_of_a_processor_is_refused():
    with pytest.raises(Rejected, match="more than 1 s of a processor") as refused:
        await ask(forever, cpu_s=1)
    assert refused.value.field == "spec"


async def test_a_question_that_takes_too_much_memory_is_refused():
    with pytest.raises(Rejected, match="more than 64 MiB of memory") as refused:
        await ask(lambda: Found(text="x" * (1 << 30)), memory=64 * MIB)
    assert refused.value.field == "spec"


async def test_a_process_that_waits_for_ever_is_killed_at_the_end_of_its_time():
    def work() -> Found:
        time.sleep(3600)
        return Found()

    with pytest.raises(Retryable, match="no answer within"):
        await ask(work, wall_s=0.2)


async def test_a_process_that_another_one_kills_is_asked_again_later():
    def work() -> Found:
        os.kill(os.getpid(), signal.SIGKILL)
        return Found()

    with pytest.raises(Retryable, match="ended without a result"):
        await ask(work)


async def test_a_refusal_and_an_error_come_through():
    def refuse() -> Found:
        raise Rejected("no", field="spec.job")

    def fail() -> Found:
        raise KeyError("x")

    with pytest.raises(Rejected, match="no") as refused:
        await ask(refuse)
    assert refused.value.field == "spec.job"
    with pytest.raises(Broken, match="KeyError: 'x'"):
        await ask(fail)


async def test_who_stops_waiting_leaves_no_process_behind():
    question = ForkedQuery(Found, limits=limits(), clock=SystemClock())

    async def asking() -> None:
        async with question:
            question.start(forever)
            await question.result()

    task = asyncio.create_task(asking())
    await asyncio.sleep(0)
    pid = question.pid
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not is_there(pid)


async def test_who_stops_waiting_for_the_end_of_a_process_leaves_none_behind(monkeypatch):
    class Clock(SystemClock):
        async def sleep(self, seconds):
            task.cancel()
            await asyncio.sleep(3600)

    waitpid, not_yet = os.waitpid, [(0, 0)]
    monkeypatch.setattr(os, "waitpid", lambda *of: not_yet.pop() if not_yet else waitpid(*of))
    question = ForkedQuery(Found, limits=limits(wall_s=0.05), clock=Clock())
    pids = []

    async def asking() -> None:
        async with question:
            question.start(forever)
            pids.append(question.pid)
            await question.result()

    task = asyncio.create_task(asking())
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not is_there(pids[0])


async def test_a_process_comes_to_its_question_however_many_files_the_system_allows(monkeypatch):
    """Not every Python closes a range in one call."""

    def one_by_one(first: int, end: int) -> None:
        for number in range(first, end):
            with contextlib.suppress(OSError):
                os.close(number)

    monkeypatch.setattr(os, "closerange", one_by_one)
    monkeypatch.setattr(os, "sysconf", lambda _: 1 << 30)
    assert (await ask(lambda: Found(text="done"), cpu_s=5)).text == "done"


async def test_a_process_holds_no_connection_of_its_parent():
    read, write = os.pipe()

    def work() -> Found:
        try:
            os.write(write, b"x")
        except OSError as error:
            return Found(text=error.strerror or "")
        return Found(text="written")

    assert (await ask(work)).text == "Bad file descriptor"
    os.close(read)
    os.close(write)


async def test_other_work_goes_on_meanwhile():
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    with pytest.raises(Rejected):
        await ask(forever, cpu_s=1)
    task.cancel()
    assert turns > 1000
