"""Before the real API server is built, its price is told, and on a terminal agreed to."""

import os
import pty
import subprocess
import sys

import pytest

from pumice.local import build, parts


@pytest.fixture
def bare(tmp_path):
    """A machine without any part and without Go."""
    kept = {k: v for k, v in os.environ.items() if k not in {"KUBEBUILDER_ASSETS", "GOROOT"}}
    return kept | {"PATH": "/usr/bin:/bin", "XDG_CACHE_HOME": str(tmp_path / "cache")}


def test_the_price_names_what_is_built_and_what_it_takes(bare):
    said = build.cost(bare)
    assert all(name in said for name in ("kubernetes", "etcd", "kwok", "about 7 min", "5 GB"))


def test_nothing_is_said_when_everything_is_there(tmp_path):
    for part in parts.PARTS.values():
        program = tmp_path / part.name
        program.write_text(f"#!/bin/sh\necho {part.version}\n")
        program.chmod(0o755)
    assert build.cost({"KUBEBUILDER_ASSETS": str(tmp_path), "PATH": "/usr/bin:/bin"}) == ""


def test_a_person_at_a_terminal_is_asked_and_may_decline(bare, tmp_path):
    ours, theirs = pty.openpty()
    words = ["up", "--api", "real", "--data-dir", str(tmp_path / "cluster")]
    with subprocess.Popen(
        [sys.executable, "-m", "pumice", *words], stdin=theirs, stdout=theirs, env=bare
    ) as process:
        os.close(theirs)
        said = b""
        while b"go on? [Y/n]" not in said:
            said += os.read(ours, 4096)
        os.write(ours, b"n\n")
        assert process.wait(30) == 1
    os.close(ours)
    assert b"about 7 min" in said
    assert not (tmp_path / "cache").exists()
    assert not (tmp_path / "cluster" / "up.json").exists()
