"""Bugs that are planted into the services are found within a few seeds, and told with a story."""

import re

import pytest

from services.binder.adapters.commands import Commands
from services.binder.adapters.outcomes import Finished
from services.scheduler.engine.replica import Replica
from shared.kube.client import Kube
from tests.sim.simulation import simulate

pytestmark = pytest.mark.timeout(300)

SEEDS = range(12)


def binder_that_ignores_uid_and_duplicates(monkeypatch):
    """Executes a command as often as it is delivered, on whatever bears the pod's name."""
    bind = Kube.bind

    async def bind_by_name(self, namespace, name, *, uid, node, annotations=None):
        await bind(self, namespace, name, uid="", node=node, annotations=annotations)

    async def has_not(self, intent):
        return False

    monkeypatch.setattr(Kube, "bind", bind_by_name)
    monkeypatch.setattr(Finished, "has", has_not)


def scheduler_that_forgets_what_it_asked_for(monkeypatch):
    """Counts a pod on its node only once STATE shows it there."""
    monkeypatch.setattr(Replica, "assume", lambda self, intent, binds: None)


def binder_that_acknowledges_before_it_acts(monkeypatch):
    """Loses the intents that it has in hand when it is killed."""
    end = Commands._end

    async def ack_first(self, delivery, intent, epoch):
        await delivery.ack()
        await end(self, delivery, intent, epoch)

    monkeypatch.setattr(Commands, "_end", ack_first)


BUGS = [
    pytest.param(
        binder_that_ignores_uid_and_duplicates,
        ("ladder", ["duplicate", "delay", "faults", "kills"]),
        r"node .*: cpu|is Running and not|has \d+ outcomes",
        id="binder ignores uid and duplicates",
    ),
    pytest.param(
        scheduler_that_forgets_what_it_asked_for,
        ("burst", ["delay", "reorder"]),
        r"node node-\d: cpu",
        id="scheduler forgets what it asked for",
    ),
    pytest.param(
        binder_that_acknowledges_before_it_acts,
        ("burst", ["faults", "kills"]),
        r"has 0 outcomes|and not Completed",
        id="binder acknowledges before it acts",
    ),
]


@pytest.mark.parametrize(("plant", "scene", "wanted"), BUGS)
def test_a_planted_bug_is_found_and_told(plant, scene, wanted, monkeypatch):
    plant(monkeypatch)
    workload, nemeses = scene
    for seed in SEEDS:
        report = simulate(seed, workload=workload, nemesis_names=nemeses)
        if not report.ok:
            break
    assert re.search(wanted, report.violations[0]), report.violations
    assert "promise broken" in report.story
    assert "intent" in report.story
