"""States of plugins of other distributions: they count, and a failure switches the plugin off."""

from collections import Counter
from contextlib import suppress

import pytest

from pumice.plugins import Fold, PolicyState, Reason
from pumice.testing import Cluster, binds_of
from services.scheduler.engine.state.memory import memory_of

CONF = """
actions: "allocate"
tiers:
- plugins:
  - name: gang
  - name: licences
"""
LICENCE = "acme.com/licences"


class Licences(PolicyState):
    """Licences per node by label; a pod takes one if its annotation says so."""

    name = "free"

    def __init__(self):
        self.total: dict[str, int] = {}
        self.used: Counter[str] = Counter()

    def folds(self):
        return {"nodes": Fold(self.put, lambda name: self.total.pop(name, None))}

    def put(self, name, node):
        self.total[name] = int(node.metadata.labels.get(LICENCE, "0"))

    def demand(self, pod):
        return int(pod.metadata.annotations.get(LICENCE, "0"))

    def count(self, task, sign):
        self.used[task.node] += sign * task.task_class.demands[self]

    def free(self, name):
        return self.total.get(name, 0) - self.used[name]


class LicencePlugin:
    name = "licences"
    states = (Licences,)

    def __init__(self, arguments):
        pass

    def contribute(self, hooks, cluster):
        licences = cluster.store(Licences)

        def predicate(task_class, rows):
            wants = task_class.demands.get(licences, 0)
            free = [licences.free(cluster.node_names[i]) for i in rows.index]
            return [wants * (1 + more) > left for left, more in zip(free, rows.extra, strict=True)]

        hooks.predicate(predicate, reasons=[Reason("no licence is free")])


def cluster() -> Cluster:
    found = Cluster(CONF, plugins=[LicencePlugin])
    found.node("a", labels={LICENCE: "1"}).node("b", labels={LICENCE: "2"}).node("c")
    for name in "xyzw":
        found.gang(name, tasks=1, cpu="1", metadata={"annotations": {LICENCE: "1"}})
    return found


def licences(found: Cluster) -> Licences:
    return found.cluster_state.store(Licences)


def test_a_state_counts_what_is_placed_and_what_is_taken_back():
    found = cluster()
    plan = found.step()
    assert sorted(binds_of(plan).values()) == ["a", "b", "b"]
    assert [licences(found).free(name) for name in "abc"] == [0, 0, 0]


def test_memory_of_a_state_is_dumped_under_the_name_of_its_plugin(monkeypatch):
    monkeypatch.setattr(Licences, "dump", lambda self: self.total)
    memory = memory_of(cluster().cluster_state)
    assert memory["licences.free"] == {"a": 1, "b": 2, "c": 0}


@pytest.mark.parametrize("point", ["count", "demand", "put", "join", "begin", "dump", "lacking"])
def test_a_state_that_fails_switches_its_plugin_off_and_harms_nothing_else(point, monkeypatch):
    def broken(*_, **__):
        raise OSError("no licence server")

    monkeypatch.setattr(Licences, point, broken)
    found = cluster()
    memory_of(found.cluster_state)
    with suppress(AssertionError):  # the plugin fails
        found.decide()
    plan = found.decide()
    assert [(each.plugin, each.error) for each in found.failures] == [
        ("licences", "OSError: no licence server")
    ]
    assert len(binds_of(plan)) == 4


def test_a_state_that_reads_a_kind_that_is_not_on_the_bus_is_named(monkeypatch):
    monkeypatch.setattr(Licences, "folds", lambda self: {"secrets": Fold(print, print)})
    found = cluster()
    (failure,) = found.failures
    assert failure.error == "ValueError: secrets: no such kind is on the bus"
