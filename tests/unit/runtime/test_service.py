"""A service as a process: readiness, signals, exit codes and its one line of complaint."""

import argparse
import contextlib
import json
import os
import pathlib
import signal
import socket
import sys
import textwrap

import aiohttp
import pytest

from pumice.cli import status
from pumice.local import state
from shared.runtime.errors import Rejected
from shared.runtime.faults import POINTS, Faults
from shared.runtime.health import parse_address
from tests.support.program import Program, running
from tests.support.wait import until

PROGRAM = """
import asyncio, time
from shared.bus.service import refused_readers
from shared.runtime.common import CommonSettings
from shared.runtime.errors import Retryable
from shared.runtime.entry import settings_or_exit
from shared.runtime.service import run

class Settings(CommonSettings, frozen=True, kw_only=True):
    mode: str = ""

class Part:
    name = "worker"
    def __init__(self, settings, context):
        self.settings, self.context = settings, context
        self.gate = context.readiness.gate("synced")
    async def run(self):
        self.gate.set(False, "no marker yet")
        if self.settings.mode == "fail":
            raise Retryable("the API server at https://x does not answer")
        if self.settings.mode == "bug":
            raise ZeroDivisionError("by zero")
        if self.settings.mode == "aside":
            registry = self.context.quarantine.registry
            registry.put("pods", "a/b", stage="fold", reason="boom", now=1.0)
        if self.settings.mode == "refused":
            refused_readers(self.context)("EVENTS", "maximum consumers limit reached")
        if self.settings.mode == "fault":
            self.context.faults.point("binder.after-write")
            self.context.faults.point("binder.after-write")
        while self.settings.mode != "unready":
            self.gate.set(True)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if self.settings.mode == "deaf":
                    continue
                if self.settings.mode == "blocked":
                    time.sleep(60)
                raise
        await asyncio.Event().wait()

async def build(settings, context):
    return [Part(settings, context)]

if __name__ == "__main__":
    run("binder", settings_or_exit("binder", Settings), build)
"""


class Process(Program):
    @property
    def lines(self) -> list[str]:
        return self.err.splitlines()

    def events(self) -> dict[str, dict]:
        parsed = [json.loads(line) for line in self.lines if line.startswith("{")]
        return {event["event"]: event for event in parsed}

    async def address(self, event: str = "service_ready") -> str:
        seen = await until(lambda: self.events().get(event), describe=event)
        return seen["listen"]

    async def end(self) -> tuple[int, list[str]]:
        code = await self.ends(deadline_s=10)
        return code, [line for line in self.lines if not line.startswith("{")]


@contextlib.asynccontextmanager
async def service(tmp_path, *argv: str, python: tuple[str, ...] = (), **environ: str):
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    async with running(
        Process,
        *(sys.executable, *python, str(program), *argv),
        env={"PYTHONPATH": str(pathlib.Path.cwd()), "PATH": os.environ["PATH"], **environ},
    ) as process:
        yield process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_service_serves_its_pages_and_ends_well_on_a_signal(tmp_path, number) -> None:
    async with service(tmp_path) as running, aiohttp.ClientSession() as session:
        base = f"http://{await running.address()}"
        async with session.get(f"{base}/healthz") as answer:
            assert answer.status == 200
        async with session.get(f"{base}/readyz") as answer:
            assert (answer.status, await answer.json()) == (200, [])
        async with session.get(f"{base}/readyz/started,later") as answer:
            found = [{"gate": "later", "reason": "not started"}]
            assert (answer.status, await answer.json()) == (503, found)
        async with session.get(f"{base}/readyz/started") as answer:
            assert (answer.status, await answer.json()) == (200, [])
        async with session.get(f"{base}/metrics") as answer:
            page = await answer.text()
        assert "process_resident_memory_bytes" in page
        assert "pumice_loop_lag_seconds" in page
        running.process.send_signal(number)
        assert await running.end() == (0, [])
        assert "service_stopped" in running.events()


async def test_a_service_starts_beside_links_of_kubernetes_and_names_them(tmp_path) -> None:
    link = "PUMICE_BINDER_PORT"
    async with service(tmp_path, **{link: "tcp://10.0.0.1:443"}) as running:
        await running.address()
        assert running.events()["service_links_ignored"]["variables"] == link


async def status_beside(tmp_path, running, address: str) -> int:
    """Run `pumice status` on a cluster whose one program is the running service."""
    directory = tmp_path / "cluster"
    with state.locked(directory):
        program = state.Program(name="binder", pid=running.process.pid, address=address, log="x")
        state.write(directory, state.State(phase="ready", pid=1, programs=(program,)))
        return await status.run(argparse.Namespace(data_dir=directory))


async def test_what_is_quarantined_is_on_a_page_and_in_the_status_of_the_cluster(
    tmp_path, capsys
) -> None:
    async with service(tmp_path, "--mode=aside") as running, aiohttp.ClientSession() as session:
        address = await running.address()
        async with session.get(f"http://{address}/quarantine") as answer:
            (item,) = await answer.json()
        assert (item["kind"], item["key"], item["reason"]) == ("pods", "a/b", "boom")
        async with session.get(f"http://{address}/metrics") as answer:
            assert 'pumice_quarantined_objects{kind="pods"} 1.0' in await answer.text()
        assert await status_beside(tmp_path, running, address) == 0
    assert "quarantined: pods a/b (fold): boom" in capsys.readouterr().out


async def test_a_stream_without_room_for_a_reader_is_told_by_a_service_that_is_ready(
    tmp_path, capsys
) -> None:
    said = {"gate": "reader of EVENTS", "reason": "maximum consumers limit reached"}
    async with (
        service(tmp_path, "--mode=refused") as running,
        aiohttp.ClientSession() as session,
    ):
        address = await running.address()
        async with session.get(f"http://{address}/readyz") as answer:
            assert (answer.status, await answer.json()) == (200, [said])
        async with session.get(f"http://{address}/metrics") as answer:
            assert 'pumice_bus_refused{stream="EVENTS"} 1.0' in await answer.text()
        assert await status_beside(tmp_path, running, address) == 0
    line = "goes on without: reader of EVENTS (maximum consumers limit reached)"
    assert line in capsys.readouterr().out


async def test_a_shut_gate_is_told_with_its_reason(tmp_path) -> None:
    async with service(tmp_path, "--mode=unready") as running, aiohttp.ClientSession() as session:
        url = f"http://{await running.address('service_started')}/readyz"

        async def settled():
            async with session.get(url) as answer:
                assert answer.status == 503
                return await answer.json() == [{"gate": "synced", "reason": "no marker yet"}]

        await until(settled, describe="the gate's reason")


@pytest.mark.parametrize(
    ("argv", "code", "complaint"),
    [
        (["--mode=fail"], 1, "error: the API server at https://x does not answer"),
        (["--mode=bug"], 1, "error: part worker failed unexpectedly: ZeroDivisionError: by zero"),
        (["--mod=x"], 2, "error: unknown flag --mod (did you mean --mode?)"),
        (["--fault=binder.nowhere"], 2, "error: --fault: no fault point 'binder.nowhere'; there"),
        (["--listen-address=x"], 2, "error: --listen-address: 'x' is not host:port"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
async def test_a_failure_is_one_clear_line_and_a_code(tmp_path, argv, code, complaint) -> None:
    async with service(tmp_path, *argv) as running:
        ended, complaints = await running.end()
    assert ended == code
    assert len(complaints) == 1
    assert complaints[0].startswith(complaint)


async def test_a_taken_port_says_which_and_what_to_do(tmp_path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        async with service(tmp_path, f"--listen-address={address}") as running:
            code, complaints = await running.end()
    assert code == 2
    (complaint,) = complaints
    assert complaint == (
        f"error: listen address {address} is taken: choose another with --listen-address "
        "(':0' picks a free one)"
    )


async def test_optimised_python_is_refused(tmp_path) -> None:
    async with service(tmp_path, python=("-O",)) as running:
        code, complaints = await running.end()
    assert code == 2
    assert complaints[0].startswith("error: python -O removes the asserts")


@pytest.mark.parametrize(
    ("mode", "complaint"),
    [
        ("deaf", "error: still running after the grace: worker"),
        ("blocked", "error: a thread is stuck after the grace"),
    ],
)
async def test_a_stuck_part_ends_with_the_grace_and_is_named(tmp_path, mode, complaint) -> None:
    async with service(tmp_path, f"--mode={mode}", "--grace=200ms") as running:
        await running.address()
        running.process.terminate()
        assert await running.end() == (3, [complaint])


async def test_a_fault_point_leaves_its_mark_and_kills_at_the_nth_passage(tmp_path) -> None:
    marks = tmp_path / "marks"
    async with service(
        tmp_path, "--mode=fault", "--fault=binder.after-write@2", f"--fault-dir={marks}"
    ) as running:
        code, _ = await running.end()
        assert code == -signal.SIGKILL
        assert (marks / "binder.after-write").read_text() == f"{running.process.pid}\n"


@pytest.mark.parametrize("spec", ["binder.after-write@0", "binder.after-write@x", "nowhere"])
def test_a_wrong_fault_is_refused(spec) -> None:
    with pytest.raises(Rejected, match="--fault"):
        Faults(spec, "/tmp")


def test_points_pass_when_no_fault_is_set(tmp_path: pathlib.Path) -> None:
    faults = Faults("", str(tmp_path))
    for name in POINTS:
        faults.point(name)
    assert list(tmp_path.iterdir()) == [], "marks of faults"


@pytest.mark.parametrize(
    ("text", "parsed"),
    [(":8080", (None, 8080)), ("127.0.0.1:0", ("127.0.0.1", 0)), ("[::1]:80", ("::1", 80))],
)
def test_addresses_read_as_in_volcano(text, parsed) -> None:
    assert parse_address(text, flag="listen-address") == parsed
