"""Marks tests by their folder and offers the servers of `tests.support.stack` to all of them."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# The machine may be busy: how long an example takes says nothing about the law it checks.
settings.register_profile("pumice", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("pumice")

pytest_plugins = ["tests.support.stack"]

MARKS = {"contract": ["nats"], "integration": ["kube"], "restart": ["kube", "restart"]}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        folder = item.path.relative_to(here).parts[0]
        for mark in MARKS.get(folder, []):
            item.add_marker(mark)
