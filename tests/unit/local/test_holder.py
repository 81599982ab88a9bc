"""The process that holds a local cluster says why it could not."""

import asyncio
import errno
import io
import sys
from pathlib import Path

import pytest
from typing_extensions import override

from pumice.local import holder, state
from pumice.local.errors import LocalError
from pumice.local.process import Process, ProcessSpec
from pumice.local.services import Supervised, Supervisor
from shared.runtime.tasks import TaskGroup
from tests.support.wait import until


def test_the_reasons_of_a_start_that_failed_are_told_however_deep_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def fails(reason: str) -> None:
        raise LocalError(reason)

    async def serve(directory: Path) -> None:
        async with TaskGroup() as outer:
            async with TaskGroup() as inner:
                inner.create_task(fails("the port is taken"), name="a")
                inner.create_task(fails("the cache has died"), name="b")
            outer.create_task(asyncio.sleep(0), name="c")

    monkeypatch.setattr(holder, "_serve", serve)
    assert asyncio.run(holder._hold(tmp_path)) == 1
    assert "the port is taken; the cache has died" in capsys.readouterr().out
    left = state.read(tmp_path)
    assert left is not None
    assert left.message == "the port is taken; the cache has died"


class FullDisk(io.StringIO):
    """A log on a disk without room."""

    @override
    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


async def test_a_state_that_a_full_disk_refuses_is_written_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "cluster"
    directory.write_text("no directory: nothing can be written below it")
    now = state.State(phase="ready", pid=7)
    record = holder.StateRecord(directory, lambda: now)
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", FullDisk())
        record.write()
        record.write()
        directory.unlink()
        running = asyncio.create_task(record.run())
        await until(directory.exists, deadline_s=20, describe="it is written again")
        await until(lambda: state.read(directory) == now, deadline_s=20, describe="the state")
        running.cancel()
        await asyncio.wait([running])


async def test_a_program_that_cannot_start_on_a_full_disk_starts_once_there_is_room() -> None:
    sleeps = (sys.executable, "-c", "import time; time.sleep(600)")
    process = Process(ProcessSpec(name="part", argv=sleeps, log=None))
    room = False
    said: list[str] = []

    async def start() -> None:
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        process.start()

    process.start()
    supervisor = Supervisor([Supervised(process=process, start=start)], report=said.append)
    running = asyncio.create_task(supervisor.run())
    try:
        process.kill()
        await until(
            lambda: any("No space left" in line for line in said), deadline_s=20, describe="said"
        )
        room = True
        await until(lambda: bool(process.pid), deadline_s=20, describe="it runs again")
        assert not running.done()
    finally:
        running.cancel()
        await asyncio.wait([running])
        process.kill()
