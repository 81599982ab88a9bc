"""`pumice up`, `status`, `down` and `run` as a person uses them: as processes, from outside."""

import asyncio
import json
import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from pumice.local import state
from pumice.local.names import SERVICES
from tests.support.program import completed
from tests.support.pumice_run import pumice_run
from tests.support.wait import until

REAL = ("--api", "real")
PUMICE = (sys.executable, "-m", "pumice")


async def pumice(*words, environ=None):
    """Run one command to its end; returns exit code, stdout and stderr."""
    return await completed(*PUMICE, *words, env={**os.environ, **(environ or {})})


@pytest.fixture
async def directory(tmp_path):
    """A data directory whose cluster is gone after the test."""
    yield tmp_path / "cluster"
    await pumice("down", "--purge", "--data-dir", str(tmp_path / "cluster"))


def running(directory):
    """Return the pids of programs that were started for a directory and still run."""
    pids = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                line = Path(entry.path, "cmdline").read_bytes()
            except OSError:
                continue
            if str(directory).encode() in line:
                pids.append(int(entry.name))
    return pids


@pytest.mark.timeout(120)
async def test_a_cluster_goes_up_shows_itself_and_goes_down(directory, tmp_path):
    where = ("--data-dir", str(directory))
    out_file = tmp_path / "kubeconfig"
    code, out, err = await pumice(
        "up", *where, *REAL, "--nodes", "2", "--cpu", "4", "--kubeconfig-out", str(out_file)
    )
    assert (code, err) == (0, "")
    assert f"export KUBECONFIG={out_file}" in out
    assert out_file.stat().st_mode & 0o777 == 0o600

    code, out, _ = await pumice("status", *where)
    assert code == 0, out
    assert all(name in out for name in ("etcd", "kwok", "cache", "scheduler", "binder"))

    code, _, err = await pumice("up", *where)
    assert code == 1
    assert "running already" in err

    code, out, _ = await pumice("down", "--purge", *where)
    assert code == 0
    assert not directory.exists()
    assert running(directory) == []


@pytest.mark.timeout(120)
async def test_nothing_outlives_a_holder_that_is_killed(directory):
    where = ("--data-dir", str(directory))
    code, out, err = await pumice("up", *where, *REAL, "--only", "control-plane", "--nodes", "0")
    assert code == 0, err
    assert len(running(directory)) > 4
    os.kill(state.read(directory).pid, signal.SIGKILL)
    await until(lambda: running(directory) == [], describe="everything is gone")
    code, out, _ = await pumice("status", *where)
    assert code == 3
    assert "its holder was killed" in out


@pytest.mark.timeout(120)
async def test_a_part_that_dies_comes_back(directory):
    where = ("--data-dir", str(directory))
    code, _, err = await pumice("up", *where, *REAL, "--only", "control-plane", "--nodes", "0")
    assert code == 0, err

    def pid():
        programs = json.loads((directory / "state.json").read_text())["programs"]
        return next(program["pid"] for program in programs if program["name"] == "kwok")

    first = pid()
    os.kill(first, signal.SIGKILL)
    await until(lambda: pid() not in (0, first), deadline_s=30, describe="another kwok runs")


async def test_a_taken_port_is_refused_before_anything_starts(directory):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, _, err = await pumice("up", "--data-dir", str(directory), "--port", str(port))
    assert code == 1
    assert f"port {port} for the API server is taken" in err
    assert running(directory) == []


@pytest.mark.timeout(120)
async def test_the_services_run_against_a_cluster_until_a_signal(control_plane, tmp_path):
    logs = tmp_path / "logs"
    words = ("--kubeconfig", str(control_plane.kubeconfig), "--log-dir", str(logs))
    async with pumice_run(*words, "--schedule-period=500ms", forks=False) as run:
        await run.ready()
        assert sum(" listens on 127.0.0.1:" in line for line in run.lines) == len(SERVICES)
        (told,) = (line for line in run.lines if "pumice events --follow --data-dir " in line)
        place = Path(told.rpartition(" ")[2])
        code, out, err = await pumice("events", "--data-dir", str(place))
        assert (code, err) == (0, "")
        assert "leader.changed" in out
        await run.stop()
    assert run.lines[-1] == "pumice run: stopped"
    assert not place.exists()
    assert {file.name for file in logs.iterdir()} == {
        "cache.log",
        "scheduler.log",
        "binder.log",
        "controller.log",
        "admission.log",
        "visibility.log",
    }


@pytest.mark.timeout(120)
async def test_a_service_that_cannot_start_ends_run_with_its_words(control_plane, tmp_path):
    conf = tmp_path / "conf.yaml"
    conf.write_text("actions: [")
    words = ("--kubeconfig", str(control_plane.kubeconfig), "--admission-conf", str(conf))
    async with pumice_run(*words) as run:
        assert await asyncio.wait_for(run.process.wait(), 60) == 1
    assert run.lines[-1].startswith("error: admission exited with ")


async def test_a_configuration_that_cannot_be_read_is_refused_first(control_plane, tmp_path):
    conf = tmp_path / "conf.yaml"
    conf.write_text("actions: [")
    words = ("--kubeconfig", str(control_plane.kubeconfig), "--scheduler-conf", str(conf))
    async with pumice_run(*words) as run:
        assert await asyncio.wait_for(run.process.wait(), 60) == 2
    (line,) = run.lines
    assert line.startswith(f"error: --scheduler-conf {conf}: ")
