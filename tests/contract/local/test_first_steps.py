"""What README tells a new user to do works as it stands there, and ends."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pumice.local import state
from tests.contract.local.conftest import ROOT, pumice

pytestmark = pytest.mark.timeout(900)


def use_it():
    """Return the lines of the first block under `## Use it`."""
    text = (ROOT / "README.md").read_text()
    block = re.search(r"## Use it\n```\n(.*?)```", text, re.DOTALL)
    assert block is not None
    return block[1].splitlines()


@pytest.fixture
def checkout(tmp_path):
    """A folder that looks like the checkout, in which commands may leave files.

    Its environment is ready: `make setup` finds nothing to do, and leaves that of the suite alone.
    """
    folder = tmp_path / "checkout"
    (folder / ".venv").mkdir(parents=True)
    for name in ("Makefile", "requirements", "pyproject.toml", "distributions", "examples"):
        (folder / name).symlink_to(ROOT / name)
    for path in Path(sys.prefix).iterdir():
        if path.name != ".ready":
            (folder / ".venv" / path.name).symlink_to(path)
    (folder / ".venv" / ".ready").touch()
    return folder


def test_each_line_of_use_it_works_and_all_of_them_end(checkout, programs, tmp_path):
    lines = use_it()
    assert lines[0] == "make setup && . .venv/bin/activate"
    script = "".join(f"echo '> {n}'\n{line}\n" for n, line in enumerate(lines))
    done = subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=checkout,
        env={
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "XDG_STATE_HOME": str(tmp_path / "state"),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    assert (done.returncode, done.stderr) == (0, "")
    said = dict(zip(lines, re.split(r"> \d+\n", done.stdout)[1:], strict=True))
    events = next(text for line, text in said.items() if line.startswith("pumice events"))
    assert all(each in events for each in ("gang.admitted", "gang.placed", "Completed"))
    status = next(text for line, text in said.items() if line.startswith("pumice status"))
    assert status.count(" ready") >= 5
    assert not (tmp_path / "state" / "pumice" / "local").exists()


def test_two_clusters_run_beside_each_other_and_flags_of_services_are_taken(cluster, tmp_path):
    other = tmp_path / "other"
    words = ("--data-dir", other, "--schedule-period=500ms", "--log-dir", tmp_path / "logs")
    started = pumice("up", *words, "--nodes-file", ROOT / "examples" / "local" / "nodes.yaml")
    try:
        assert started.returncode == 0, started.stderr
        assert "12 fake nodes are ready" in started.stdout
        assert f"logs:     {tmp_path / 'logs'}" in started.stdout
        for directory in (cluster, other):
            status = pumice("status", "--data-dir", directory)
            assert status.returncode == 0, status.stdout
        assert (tmp_path / "logs" / "scheduler.log").exists()
        (scheduler,) = (p for p in state.read(other).programs if p.name == "scheduler")
        assert b"--schedule-period=500ms" in Path(f"/proc/{scheduler.pid}/cmdline").read_bytes()
    finally:
        stopped = pumice("down", "--purge", "--data-dir", other)
    assert stopped.returncode == 0
    assert not other.exists()
    assert pumice("status", "--data-dir", cluster).returncode == 0


def test_a_machine_of_the_cluster_has_what_the_flags_said(ctl):
    found = ctl("get", "nodes", "-o", "jsonpath={.items[*].status.allocatable.nvidia\\.com/gpu}")
    assert found.stdout == "8 8"
    assert set(ctl("get", "hypernodes", "-o", "name").stdout.split()) == {
        f"hypernode.topology.volcano.sh/{name}" for name in ("rack-0", "rack-1", "spine")
    }
