"""A program of the local stack is started, watched and never left behind."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys

import pytest

from pumice.local import ports
from pumice.local.errors import LocalError
from pumice.local.ports import claim, free_port
from pumice.local.process import Process, ProcessSpec, go_environ, tail
from tests.support.wait import until


def python(tmp_path, code, **fields):
    argv = (sys.executable, "-u", "-c", code)
    return Process(ProcessSpec(name="probe", argv=argv, log=tmp_path / "log", **fields))


@pytest.fixture
async def started(tmp_path):
    """Start programs, and kill them whatever the test does."""
    processes = []

    def start(code, **fields):
        process = python(tmp_path, code, **fields)
        processes.append(process)
        process.start()
        return process

    yield start
    for process in processes:
        process.kill()


async def never():
    return "it never says so"


async def test_a_program_that_dies_during_start_is_reported_with_its_last_words(started, tmp_path):
    process = started("print('the port is taken'); raise SystemExit(3)")
    with pytest.raises(LocalError) as died:
        await process.ready(never, deadline_s=20)
    assert str(died.value) == f"probe exited with 3: the port is taken; log: {tmp_path / 'log'}"


async def test_a_program_that_is_never_ready_is_reported_with_what_it_lacks(started):
    process = started("import time; time.sleep(60)")
    with pytest.raises(LocalError, match="not ready after 0 s: it never says so"):
        await process.ready(never, deadline_s=0.1)


async def test_a_program_that_yields_has_a_higher_niceness_than_we_have(started):
    process = started("import time; time.sleep(60)", nice=3)
    niceness = os.getpriority(os.PRIO_PROCESS, process.pid)
    assert niceness == min(19, os.getpriority(os.PRIO_PROCESS, 0) + 3)


async def test_a_program_that_ignores_the_signal_is_killed_after_its_grace(started, tmp_path):
    process = started(
        "import signal, time; signal.signal(15, signal.SIG_IGN); print('on'); time.sleep(60)"
    )
    await until(lambda: tail(tmp_path / "log", lines=1) == ["on"])
    await process.stop(grace_s=0.1)
    assert process.exit_code == -signal.SIGKILL
    assert "was killed by SIGKILL" in process.describe_end()


async def test_a_frozen_program_can_be_stopped(started, tmp_path):
    process = started("import time; print('on'); time.sleep(60)")
    await until(lambda: tail(tmp_path / "log", lines=1) == ["on"])
    process.suspend()
    await process.stop(grace_s=5)
    assert process.exit_code == -signal.SIGTERM


async def test_what_a_program_has_started_goes_with_it(started, tmp_path):
    process = started(
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print(child.pid); time.sleep(60)"
    )
    await until(lambda: tail(tmp_path / "log", lines=1))
    child = int(tail(tmp_path / "log", lines=1)[0])
    process.kill()
    await until(lambda: not runs(child), describe="the grandchild is gone")


def runs(pid):
    """Tell whether a process lives; one that nobody has waited for yet does not."""
    answer = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return answer.stdout.strip()[:1] not in {"", "Z"}


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's promise is Linux's")
async def test_a_program_dies_with_the_process_that_started_it(tmp_path):
    code = (
        "import sys, time; from pathlib import Path\n"
        "from pumice.local.process import Process, ProcessSpec\n"
        "argv = (sys.executable, '-c', 'import time; time.sleep(60)')\n"
        f"p = Process(ProcessSpec(name='p', argv=argv, log=Path({str(tmp_path / 'inner')!r})))\n"
        "p.start(); print(p.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        child = int(await asyncio.to_thread(parent.stdout.readline))
        assert runs(child)
        parent.kill()
    await until(lambda: not runs(child), describe="the orphan is gone")


async def test_without_a_log_lines_go_to_stderr_with_the_name_in_front(capfd):
    argv = (sys.executable, "-c", "print('hello'); raise SystemExit(2)")
    process = Process(ProcessSpec(name="probe", argv=argv, log=None))
    process.start()
    assert await process.exited() == 2
    await until(lambda: process.last_line() == "hello")
    assert "probe      | hello" in capfd.readouterr().err


def test_a_missing_program_is_named(tmp_path):
    argv = (str(tmp_path / "nowhere"),)
    process = Process(ProcessSpec(name="etcd", argv=argv, log=tmp_path / "log"))
    with pytest.raises(LocalError, match=r"etcd: .*nowhere is missing"):
        process.start()


def test_a_taken_port_is_refused_by_number_owner_and_flag():
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(LocalError, match=rf"port {port} for nats-server is taken.*--nats-port"):
            claim(port, owner="nats-server", flag="--nats-port")


def test_a_free_port_is_kept_and_zero_gives_one():
    port = free_port()
    assert claim(port, owner="x", flag="--port") == port
    assert claim(0, owner="x", flag="--port") > 0


def test_processes_that_choose_ports_at_the_same_time_choose_different_ones():
    program = (
        "from pumice.local import ports; ports._FREE = range(7_100, 7_120);"
        "print(*(ports.free_port() for _ in range(4)), flush=True); input()"
    )
    with contextlib.ExitStack() as stack:
        choosing = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
                )
            )
            for _ in range(3)
        ]
        chosen = [port for process in choosing for port in process.stdout.readline().split()]
        assert len(chosen) == len(set(chosen)) == 12
        for process in choosing:
            process.communicate(b"\n")


def test_no_port_is_chosen_that_an_outgoing_connection_may_take():
    first_of_outgoing = 32_768  # Linux' default; that of macOS is above it
    assert all(1024 < free_port() < first_of_outgoing for _ in range(100))


def test_it_is_said_when_no_port_is_free(monkeypatch):
    monkeypatch.setattr(ports, "_FREE", range(7_140, 7_142))
    with pytest.raises(LocalError, match="no port from 7140 to 7141 is free"):
        set(iter(free_port, 0))  # until it is raised


def test_the_log_of_a_program_that_never_ran_has_no_lines(tmp_path):
    assert tail(tmp_path / "none", lines=5) == []


def test_a_tail_keeps_the_order_and_drops_empty_lines(tmp_path):
    (tmp_path / "log").write_text("one\n\ntwo\n  three  \n\n")
    assert tail(tmp_path / "log", lines=2) == ["two", "three"]


@pytest.mark.parametrize(
    ("processors", "threads"), [(None, "1"), (1, "1"), (2, "1"), (4, "1"), (8, "2"), (64, "16")]
)
def test_a_go_program_beside_others_runs_on_a_quarter_of_the_processors(
    monkeypatch, processors, threads
):
    for name in ("GOGC", "GOMAXPROCS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: processors)
    assert go_environ() == {"GOGC": "200", "GOMAXPROCS": threads}
    assert go_environ(main=True) == {"GOGC": "200"}


def test_what_the_user_has_set_for_go_programs_stays(monkeypatch):
    monkeypatch.setenv("GOGC", "50")
    monkeypatch.setenv("GOMAXPROCS", "7")
    assert go_environ() == {}
