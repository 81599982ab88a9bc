"""A few seeds of the simulation with every build; `make sim` plays hundreds."""

import shlex
import subprocess
import sys

import pytest

from tests.sim import __main__ as main_module
from tests.sim import simulation
from tests.sim.nemeses import NEMESES
from tests.sim.simulation import choose, simulate
from tests.sim.workloads import WORKLOADS
from tests.support import pages

SEEDS = range(5)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_job_comes_to_its_end_and_no_promise_is_broken(seed):
    report = simulate(seed)
    assert report.ok, f"{report.story}\n{report.violations}\npython -m tests.sim --seed {seed}"


PLAYED = [
    line.removeprefix(".venv/bin/python ")
    for block in pages.blocks(pages.ROOT / "docs" / "simulation.md")
    for line in block.commands
    if line.startswith(".venv/bin/python -m tests.sim --seed ")
]
"""Commands of the page that play one seed."""


@pytest.mark.parametrize("line", PLAYED)
def test_each_seed_that_the_page_plays_is_well(line):
    done = subprocess.run(
        [sys.executable, *shlex.split(line)],
        cwd=pages.ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr


def test_the_page_plays_a_seed():
    assert PLAYED


def test_two_hundred_seeds_choose_every_workload_and_every_nemesis():
    chosen = [choose(seed) for seed in range(200)]
    assert {workload for workload, _ in chosen} == set(WORKLOADS)
    assert {name for _, names in chosen for name in names} == set(NEMESES)


def test_processes_that_import_no_main_module_can_play_a_seed():
    """Python 3.14 starts them so on Linux, and other systems always have."""
    assert vars(main_module)["play"].__module__ == simulation.__name__
