"""`pumice demo` as a person runs it: a process of its own, on a real stack, left alone or not."""

import asyncio
import os
import pty
import re
import signal
import stat
import struct
import sys
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from fcntl import ioctl
from pathlib import Path

import pytest

from tests.support.program import Program, running
from tests.support.wait import until

PUMICE = (sys.executable, "-m", "pumice")
JOBS = ("tensorflow-benchmark", "twenty-together", "mpi-pi", "elastic", "waits-for-room")
LINE = re.compile(r"\[ *\d+\.\d\d s\] [\w-]+: .+")


class Run(Program):
    """One `pumice demo`, and a temporary directory that is all its own."""

    temporary = Path()

    def left_behind(self) -> list[str]:
        """Return the programs and files that remain, once the demo has ended."""
        mark = f"TMPDIR={self.temporary}".encode()
        programs = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdecimal() and mark in (entry / "environ").read_bytes():
                    programs.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:  # it has ended, or is another user's
                continue
        return programs + [str(path) for path in self.temporary.rglob("*")]


@asynccontextmanager
async def demo(temporary: Path, *flags: str, **environ: str) -> AsyncIterator[Run]:
    """Start the demo with plain output; stop it when the test is done with it."""
    temporary.mkdir()
    async with running(
        Run,
        *(*PUMICE, "demo", *flags),
        env={**os.environ, "TMPDIR": str(temporary), **environ},
        start_new_session=True,
    ) as run:
        run.temporary = temporary
        try:
            yield run
        finally:
            run.send_signal(signal.SIGTERM)
            await run.process.wait()


@pytest.mark.timeout(120)
async def test_all_jobs_complete_it_is_told_and_nothing_is_left(tmp_path):
    async with demo(tmp_path / "demo") as run:
        assert await run.ends(deadline_s=90) == 0, run.out + run.err
    assert run.left_behind() == []
    assert run.err == ""
    told, _, summary = run.out.partition("\n job ")
    assert all(LINE.fullmatch(line) for line in told.splitlines())
    for name in JOBS:
        assert re.search(rf"{name}: job Completed after ", told)
        row = next(line for line in summary.splitlines() if line.startswith(f" {name} "))
        assert "Completed" in row
        assert " - " in row or re.search(r"\d\.\d", row)
    assert "waits-for-room: gang waits: " in told
    assert "5 of 5 jobs completed" in summary
    assert "embedded API server" in summary
    assert "pumice demo --api real" in summary
    assert "\x1b" not in run.out


@pytest.mark.parametrize(
    ("moment", "number", "code"),
    [
        pytest.param("setup: found", signal.SIGINT, 130, id="while the API server starts"),
        pytest.param("the API server answers", signal.SIGTERM, 143, id="while services start"),
        pytest.param("pods created", signal.SIGHUP, 129, id="while jobs run"),
    ],
)
async def test_a_signal_at_any_point_leaves_nothing_behind(tmp_path, moment, number, code):
    async with demo(tmp_path / "demo") as run:
        await run.says(moment)
        assert run.left_behind()
        run.send_signal(number)
        assert await run.ends() == code
    assert run.left_behind() == []
    assert run.err == f"stopped by {number.name}, nothing is left behind\n"


async def test_a_ctrl_c_in_the_middle_of_a_build_leaves_nothing_running(tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    go = tools / "go"
    go.write_text(
        "#!/bin/sh\n"
        'case "$1" in env) echo go1.99.0;; *) echo building; sleep 600 & sleep 600;; esac\n'
    )
    go.chmod(go.stat().st_mode | stat.S_IXUSR)
    async with demo(
        tmp_path / "demo",
        "--api=real",
        XDG_CACHE_HOME=str(tmp_path / "cache"),
        KUBEBUILDER_ASSETS=str(tmp_path / "nothing"),
        PATH=f"{tools}:/usr/bin:/bin",
    ) as run:
        await run.says("setup: building kubernetes")
        log = tmp_path / "cache" / "pumice" / "build-kubernetes.log"
        await until(lambda: "building" in log.read_text(), describe="the build runs")
        run.send_signal(signal.SIGINT)
        assert await run.ends() == 130
    assert run.left_behind() == []


async def test_a_demo_that_does_not_get_done_says_what_it_saw_and_keeps_its_logs(tmp_path):
    async with demo(tmp_path / "demo", "--deadline=2.5") as run:
        assert await run.ends() == 1
    first, *jobs, logs = run.err.splitlines()
    assert first == "error: not all jobs have completed within 2.5 s"
    assert any(line.startswith("  default/waits-for-room: ") for line in jobs)
    directory = Path(logs.removeprefix("  logs: "))
    assert {"apiserver.log", "scheduler.log"} <= {file.name for file in directory.iterdir()}
    assert all(
        directory in Path(path).parents or Path(path) == directory or Path(path) == directory.parent
        for path in run.left_behind()
    )


async def test_on_a_terminal_it_draws_and_an_impatient_ctrl_c_gives_the_terminal_back(tmp_path):
    master, slave = pty.openpty()
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    before = termios.tcgetattr(slave)
    temporary = tmp_path / "demo"
    temporary.mkdir()
    environ = {k: v for k, v in os.environ.items() if k not in ("CI", "NO_COLOR", "COLUMNS")}
    process = await asyncio.create_subprocess_exec(
        *PUMICE,
        "demo",
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**environ, "TMPDIR": str(temporary), "TERM": "xterm-256color", "LANG": "C.UTF-8"},
        start_new_session=True,
    )
    run = Run(process)
    run.temporary = temporary
    os.set_blocking(master, False)
    loop = asyncio.get_running_loop()

    def readable() -> None:
        run.out += os.read(master, 65536).decode(errors="replace")

    loop.add_reader(master, readable)
    try:
        await run.says("\x1b[?1049h")
        await run.says("twenty-together")
        ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 34, 120, 0, 0))
        await run.says("─" * 81)
        await run.says("pods created")
        for _ in range(20):
            run.send_signal(signal.SIGINT)
            await asyncio.sleep(0.05)
        assert await run.ends() == 130
    finally:
        loop.remove_reader(master)
        run.send_signal(signal.SIGTERM)
        await process.wait()
        after = termios.tcgetattr(slave)
        os.close(slave)
        os.close(master)
    assert run.out.rindex("\x1b[?1049l") > run.out.rindex("\x1b[?1049h")
    assert run.out.rindex("\x1b[?25h") > run.out.rindex("\x1b[?25l")
    assert after == before
    assert "stopped by SIGINT, nothing is left behind" in run.out
    assert run.left_behind() == []
