"""Marks tests by their folder and offers the servers of `tests.support.stack` to all of them."""

import gc
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import xdist.scheduler
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

# The machine may be busy: how long an example takes says nothing about the law it checks. The suite
# tries the same examples each time: a change makes it fail, not chance. `make search` draws others.
settings.register_profile(
    "suite", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
settings.register_profile(
    "search", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "suite")
settings.load_profile(PROFILE)
if PROFILE == "suite":
    # Hypothesis also draws constants of those modules of the project that are imported by then:
    # which ones depends on the tests that this process ran before.
    providers._get_local_constants = Constants

pytest_plugins = ["tests.support.stack"]

MARKS = {
    "property": ["laws"],
    "sim": ["laws"],
    "contract": ["nats"],
    "integration": ["kube"],
    "native": ["native"],
    "restart": ["kube", "restart"],
    "web": ["web"],
}
ON_REAL_SERVERS = {"contract", "integration", "native", "restart"}
ON_REAL_SERVERS_S = 150
"""Long enough for a few waits of a test to end with their own words where the machine is busy."""
LAWS_S = 3600
"""Laws compute in what the other stages leave of the machine, which may be a fiftieth of it."""
REAL_API_SERVER = Path("contract", "apiserver")
"""A contract that is held with the real API server, and so has the marks of its tests."""
PACKAGE = "__init__.py"
WITH_OWN_SERVERS = {"test_three_nats_servers.py"}
"""Files of restart tests that have a control plane of their own."""


class ByControlPlane(xdist.scheduler.LoadFileScheduling):
    """Gives a worker at once what shares a control plane, which is six programs.

    That is a file; a folder that is a package, whose control plane ends with its last test; and of
    the restart tests, which have one per worker, each test but those with servers of their own.
    """

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)


def unit_of(nodeid: str) -> str:
    """Return what a worker is given at once: a folder, a file or a test."""
    file = nodeid.partition("::")[0]
    tests = Path(__file__).parent
    folder = tests.parent.joinpath(file).parent
    if folder.parent == tests / "integration" and (folder / PACKAGE).exists():
        return folder.relative_to(tests.parent).as_posix()
    if folder == tests / "restart" and Path(file).name not in WITH_OWN_SERVERS:
        return nodeid
    return file


def pytest_xdist_make_scheduler(
    config: pytest.Config, log: object
) -> xdist.scheduler.LoadFileScheduling | None:
    if config.getvalue("dist") == "loadfile":
        return ByControlPlane(config, log)
    return None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Have the garbage collector look at what the tests make, not at the tests: they stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


@cache
def folder_of(file: Path) -> str:
    """Return the folder whose marks the tests of a file have, which has many tests."""
    file = file.relative_to(Path(__file__).parent)
    return "integration" if file.is_relative_to(REAL_API_SERVER) else file.parts[0]


def limit_of(item: pytest.Item, folder: str) -> int | None:
    """Return the seconds that a test may last, if its folder or marks say so."""
    if item.get_closest_marker("laws") is not None:
        return LAWS_S
    return ON_REAL_SERVERS_S if folder in ON_REAL_SERVERS else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        folder = folder_of(item.path)
        for mark in MARKS.get(folder, []):
            item.add_marker(mark)
        if item.get_closest_marker("timeout") is None and (limit := limit_of(item, folder)):
            item.add_marker(pytest.mark.timeout(limit))
        fixtures = getattr(item, "fixturenames", ())
        if "programs" in fixtures:
            item.add_marker("helm" if "charting" in fixtures else "kubectl")
