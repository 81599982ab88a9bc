"""Bugs that are planted into the services are found within a few seeds, and told with a story."""

import asyncio
import re

import pytest

from services.binder.adapters.commands import Commands
from services.binder.adapters.outcomes import FinishedIntents
from services.binder.intents import evict
from services.controller.adapters.store import IndexedStore
from services.scheduler.engine.state.cluster_state import ClusterState
from shared.bus.publisher import Publisher
from shared.kube.client import Kube
from tests.sim.nemeses import NEMESES
from tests.sim.simulation import simulate
from tests.sim.story import Story

SEEDS = range(12)


def binder_that_ignores_uid_and_duplicates(monkeypatch):
    """Executes a command as often as it is delivered, on whatever bears the pod's name.

    Nine of ten acknowledgements are lost, so that commands come again after their pods have gone.
    """
    bind = Kube.bind

    async def bind_by_name(self, namespace, name, *, uid, node, annotations=None):
        await bind(self, namespace, name, uid="", node=node, annotations=annotations)

    async def has_not(self, intent):
        return False

    async def acks_lost(sim):
        sim.network.lost_share = 0.9

    monkeypatch.setattr(Kube, "bind", bind_by_name)
    monkeypatch.setattr(FinishedIntents, "has", has_not)
    monkeypatch.setitem(NEMESES, "acks_lost", acks_lost)


def scheduler_that_forgets_what_it_asked_for(monkeypatch):
    """Counts a pod on its node only once STATE shows it there, a few cycles later."""

    async def slow(sim):
        sim.network.mean_s = 0.1

    monkeypatch.setattr(ClusterState, "assume", lambda self, intent, binds: None)
    monkeypatch.setitem(NEMESES, "slow", slow)


def binder_that_acknowledges_before_it_acts(monkeypatch):
    """Loses the intents that it has in hand when it is killed, which happens with the first."""
    end = Commands._execute
    waiting = []

    async def ack_first(self, delivery, intent, epoch):
        await delivery.ack()
        for acknowledged in waiting:
            acknowledged.set()
        await end(self, delivery, intent, epoch)

    async def killed(sim):
        acknowledged = asyncio.Event()
        waiting[:] = [acknowledged]
        await acknowledged.wait()
        for machine in [machine for machine in sim.machines if machine.service == "binder"]:
            machine.kill()
            sim.restart_later(machine)

    monkeypatch.setattr(Commands, "_execute", ack_first)
    monkeypatch.setitem(NEMESES, "binders_killed", killed)


def binder_that_evicts_by_uid_alone(monkeypatch):
    """Deletes its victims whatever has become of them since they were chosen."""
    delete = Kube.delete

    async def by_uid(self, kind, namespace, name, *, uid, resource_version=""):
        return await delete(self, kind, namespace, name, uid=uid)

    monkeypatch.setattr(Kube, "delete", by_uid)
    monkeypatch.setattr(evict, "_ended_without_delete", lambda victim, seen: None)
    freeze_when_victims_are_chosen(monkeypatch)


def freeze_when_victims_are_chosen(monkeypatch):
    """Has the binders frozen from the first eviction on, until its victims may have finished."""
    waiting = []
    tell = Story.tell

    def told(self, who, what, /, **about):
        tell(self, who, what, **about)
        if what == "intent evict":
            for chosen in waiting:
                chosen.set()

    async def frozen(sim):
        chosen = asyncio.Event()
        waiting[:] = [chosen]
        await chosen.wait()
        binders = [machine for machine in sim.machines if machine.service == "binder"]
        await asyncio.gather(*(machine.cut_off(13.0) for machine in binders))

    monkeypatch.setattr(Story, "tell", told)
    monkeypatch.setitem(NEMESES, "binders_frozen", frozen)


def messages_that_never_end(monkeypatch):
    """Says for ever what was to be said for a while."""
    submit = Publisher.submit

    async def for_ever(self, subject, payload, *, ttl_s=None, **how):
        return await submit(self, subject, payload, **how)

    monkeypatch.setattr(Publisher, "submit", for_ever)


def marks_of_leaders_that_stay(monkeypatch):
    """Leaves a mark behind for each term."""
    submit = Publisher.submit

    async def beside_the_others(self, subject, payload, *, rollup=False, **how):
        return await submit(self, subject, payload, **how)

    monkeypatch.setattr(Publisher, "submit", beside_the_others)


def scheduler_that_keeps_what_is_gone(monkeypatch):
    """Ignores that an object is gone, as it did when another one of that name had been in between.

    The audit finds it and has STATE read anew.
    """
    monkeypatch.setattr(ClusterState, "delete", lambda self, kind, key, uid: None)


def controller_that_keeps_what_is_gone(monkeypatch):
    """Ignores that an object is gone, unless it has deleted it."""
    drop = IndexedStore.drop

    def own_only(self, key, uid=None, *, as_of=None):
        return drop(self, key, uid) if as_of is None else None

    monkeypatch.setattr(IndexedStore, "drop", own_only)


BUGS = [
    pytest.param(
        binder_that_ignores_uid_and_duplicates,
        ("ladder", ["acks_lost"]),
        r"node .*: cpu|is Running and not|has \d+ outcomes",
        id="binder ignores uid and duplicates",
    ),
    pytest.param(
        scheduler_that_forgets_what_it_asked_for,
        ("ladder", ["slow"]),
        r"node node-\d: cpu",
        id="scheduler forgets what it asked for",
    ),
    pytest.param(
        binder_that_acknowledges_before_it_acts,
        ("burst", ["binders_killed"]),
        r"has 0 outcomes|and not Completed",
        id="binder acknowledges before it acts",
    ),
    pytest.param(
        binder_that_evicts_by_uid_alone,
        ("ladder", ["binders_frozen"]),
        r"was evicted after it had finished",
        id="binder evicts by uid alone",
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


LEFT = [
    pytest.param(
        messages_that_never_end,
        ("steady", []),
        r"desired\..* stays on PUMICE_local_DESIRED for ever",
        id="messages that never end",
    ),
    pytest.param(
        marks_of_leaders_that_stay,
        ("steady", ["kills"]),
        r"command\.leader is kept more than once",
        id="marks of leaders that stay",
    ),
]


@pytest.mark.parametrize(
    ("plant", "service"),
    [
        (scheduler_that_keeps_what_is_gone, "scheduler"),
        (controller_that_keeps_what_is_gone, "controller"),
    ],
    ids=["scheduler", "controller"],
)
def test_a_service_that_keeps_what_is_gone_finds_it_and_reads_the_state_anew(
    plant, service, monkeypatch
):
    plant(monkeypatch)
    reports = (simulate(seed, workload="ladder", nemesis_names=[]) for seed in SEEDS)
    violations = next(report.violations for report in reports if not report.ok)
    assert re.search(rf"{service}.*: \d+ objects differ from STATE", "\n".join(violations)), (
        violations
    )


@pytest.mark.parametrize(("plant", "scene", "wanted"), LEFT)
def test_a_message_that_would_stay_for_ever_is_found(plant, scene, wanted, monkeypatch):
    plant(monkeypatch)
    workload, nemeses = scene
    reports = (simulate(seed, workload=workload, nemesis_names=nemeses) for seed in SEEDS)
    violations = next(report.violations for report in reports if not report.ok)
    assert re.search(wanted, "\n".join(violations)), violations
