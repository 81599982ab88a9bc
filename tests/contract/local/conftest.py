"""What the tests of this folder share: commands as a person gives them, and kubectl."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.goprograms import at_a_terminal

ROOT = Path(__file__).parents[3]
Run = Callable[..., "subprocess.CompletedProcess[str]"]


def pumice(*words: object) -> "subprocess.CompletedProcess[str]":
    """Run one command of pumice to its end."""
    return subprocess.run(
        [sys.executable, "-m", "pumice", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
        cwd=ROOT,
    )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data directory of a cluster of this file's own, on the embedded API server."""
    directory = tmp_path_factory.mktemp("local") / "cluster"
    started = pumice("up", "--data-dir", directory, "--nodes", 2, "--gpus", 8, "--rack", 1)
    try:
        assert started.returncode == 0, started.stderr + started.stdout
        yield directory
    finally:
        pumice("down", "--purge", "--data-dir", directory)


@pytest.fixture
def ctl(cluster: Path, programs: Path) -> Run:
    """`ctl("get", "pods")`: kubectl on that cluster."""

    def run(*words: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
        return at_a_terminal(
            ["kubectl", *words],
            programs=programs,
            cwd=ROOT,
            stdin=stdin,
            timeout_s=60,
            KUBECONFIG=str(cluster / "kubeconfig"),
        )

    return run
