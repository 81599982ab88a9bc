"""One whole system for the scenarios of a worker: a cluster, and `pumice run` on it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.integration.scenarios.playing import Playing, Stage, whole_system

CONFIGURATION = """\
actions: "enqueue, allocate, preempt, reclaim, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false
  - name: conformance
- plugins:
  - name: drf
    enablePreemptable: false
  - name: predicates
  - name: capacity
  - name: nodeorder
  - name: network-topology-aware
  - name: deviceshare
    arguments:
      deviceshare.AscendHAMiVNPUEnable: true
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A scenario waits for its turn on the stage as well."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.timeout(400))


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """A control plane with roomy nodes, and the services as a user starts them."""
    async with whole_system(tmp_path_factory.mktemp("scenarios"), CONFIGURATION) as built:
        yield built


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def playing(stage: Stage, request: pytest.FixtureRequest) -> AsyncIterator[Playing]:
    """All selected scenarios, playing at the same time: those that take minutes first."""
    chosen = [
        item
        for item in request.session.items
        if item.path.parent == Path(__file__).parent and hasattr(item, "callspec")
    ]
    chosen.sort(key=lambda item: item.path.stem != "test_minutes")
    async with Playing(stage, [item.callspec.params["scenario"] for item in chosen]) as at_play:
        yield at_play
