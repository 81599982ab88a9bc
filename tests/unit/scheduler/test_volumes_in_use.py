"""Volumes that pods have while they terminate: which pods are bound, and which have to wait."""

from typing import Any

import pytest

from pumice.testing import Cluster, binds_of, evictions_of
from shared.api import kinds
from tests.unit.scheduler.test_storage import claim, mounting, volume

CONF = """
actions: "{actions}"
tiers:
- plugins: [{{name: priority}}, {{name: gang}}, {{name: conformance}}]
- plugins: [{{name: predicates}}, {{name: proportion}}, {{name: nodeorder}}]
"""


def world_of(*nodes: str, actions: str = "allocate, preempt, backfill") -> Cluster:
    """Return nodes of 4 CPUs to which a driver attaches one volume each."""
    world = Cluster(CONF.format(actions=actions), queue=False)
    world.queue("rich", weight=1).queue("poor", weight=1)
    for name, value in (("low", 1), ("high", 9)):
        world.put(kinds.PRIORITYCLASS, {"metadata": {"name": name, "uid": name}, "value": value})
    for node in nodes:
        drivers = [{"name": "csi", "allocatable": {"count": 1}}]
        world.node(node, cpu="4")
        head = {"name": node, "uid": node}
        world.put(kinds.CSINODE, {"metadata": head, "spec": {"drivers": drivers}})
    return world


def disk(world: Cluster, name: str, mode: str = "ReadWriteOnce") -> dict[str, Any]:
    """Put a claim with its volume; return what the spec of a pod says that mounts it."""
    claim(volume(world, name, csi="csi"), name, volume=name)
    spec = {"storageClassName": "fast", "volumeName": name, "accessModes": [mode]}
    head = {"name": name, "namespace": "ns", "uid": f"uid-{name}"}
    world.put(kinds.PVC, {"metadata": head, "spec": spec})
    return mounting(name)


def running(world: Cluster, name: str, node: str, **spec: Any) -> None:
    world.group(name, queue="rich", min_member=0, phase="Running", priorityClassName="low")
    world.pod(f"{name}-0", name, cpu="4", node=node, priority=1, **spec)


def wanting(world: Cluster, name: str, cpu: str = "", queue: str = "rich", **spec: Any) -> None:
    world.group(name, queue=queue, priorityClassName="high" if cpu else "low")
    world.pod(f"{name}-0", name, cpu=cpu, priority=9 if cpu else 1, **spec)


@pytest.mark.parametrize("mode", ["ReadWriteOncePod", "ReadWriteOnce"])
def test_no_pod_is_bound_to_the_volume_of_a_victim_that_one_pod_alone_may_use_or_to_its_place(mode):
    world = world_of("n0")
    one = disk(world, "one", mode)
    other = one if mode == "ReadWriteOncePod" else disk(world, "other")
    running(world, "r", "n0", **one)
    wanting(world, "p", cpu="4")
    wanting(world, "q", **other)
    plan = world.step()
    assert evictions_of(plan) == {"r-0": "p-0"}
    assert binds_of(plan) == binds_of(world.step()) == {}
    world.delete(kinds.POD, "ns/r-0")
    assert binds_of(world.step()) == {"p-0": "n0", "q-0": "n0"}


@pytest.mark.parametrize(
    ("actions", "queue"),
    [
        ("allocate, preempt", "rich"),
        ("allocate, reclaim", "poor"),
        ("allocate, gangpreempt", "rich"),
    ],
)
def test_a_pod_waits_for_the_volume_of_its_victim_to_go_and_evicts_no_other_pod(actions, queue):
    world = world_of("n0", "n1", actions=actions)
    for node in ("n0", "n1"):
        running(world, f"r-{node}", node, **disk(world, node))
    wanting(world, "p", cpu="2", queue=queue, **disk(world, "mine"))
    gone = evictions_of(world.step())
    assert len(gone) == 1
    assert [evictions_of(world.step()) for _ in range(3)] == [{}, {}, {}]
    (victim,) = gone
    world.delete(kinds.POD, f"ns/{victim}")
    assert binds_of(world.step()) == {"p-0": victim[2:4]}


def test_a_volume_counts_for_a_pod_that_waits_and_is_not_attached_by_it():
    world = world_of("n0", actions="allocate, preempt, backfill")
    running(world, "r", "n0", **disk(world, "one"))
    wanting(world, "p", cpu="4", **disk(world, "mine"))
    wanting(world, "q", **mounting("mine"))
    plan = world.step()
    assert evictions_of(plan) == {"r-0": "p-0"}
    assert binds_of(plan) == {}


def attached(world: Cluster, name: str, node: str, **source: str) -> Cluster:
    spec = {"attacher": "csi", "nodeName": node}
    named = source or {"persistentVolumeName": name}
    head = {"name": f"csi-{name}", "uid": f"csi-{name}"}
    return world.put(kinds.VOLUMEATTACHMENT, {"metadata": head, "spec": {**spec, "source": named}})


def test_a_volume_takes_its_place_at_a_node_until_it_is_detached_though_its_pod_is_gone():
    world = world_of("n0", "n1")
    disk(world, "former")
    attached(world, "former", "n0")
    wanting(world, "p", cpu="1", **disk(world, "mine"))
    assert binds_of(world.step()) == {"p-0": "n1"}
    wanting(world, "q", cpu="1", **disk(world, "other"))
    assert binds_of(world.step()) == {}
    world.delete(kinds.VOLUMEATTACHMENT, "csi-former", "csi-former")
    assert binds_of(world.step()) == {"q-0": "n0"}


def test_a_pod_takes_no_second_place_for_a_volume_that_is_attached_to_its_node_still():
    world = world_of("n0")
    mine = disk(world, "mine")
    attached(world, "mine", "n0")
    wanting(world, "p", cpu="1", **mine)
    assert binds_of(world.step()) == {"p-0": "n0"}


@pytest.mark.parametrize("source", [{"persistentVolumeName": "gone"}, {"inlineVolumeSpec": "x"}])
def test_an_attachment_of_a_volume_that_has_no_object_counts_nowhere(source):
    world = world_of("n0")
    attached(world, "other", "n0", **source)
    wanting(world, "p", cpu="1", **disk(world, "mine"))
    assert binds_of(world.step()) == {"p-0": "n0"}


def test_no_second_pod_is_evicted_while_the_volume_of_a_victim_that_is_gone_is_detached():
    world = world_of("n0", "n1")
    for node in ("n0", "n1"):
        running(world, f"r-{node}", node, **disk(world, node))
        attached(world, node, node)
    wanting(world, "p", cpu="2", **disk(world, "mine"))
    (victim,) = evictions_of(world.step())
    world.delete(kinds.POD, f"ns/{victim}")
    node = victim[2:4]
    plan = world.step()
    assert evictions_of(plan) == binds_of(plan) == {}
    world.delete(kinds.VOLUMEATTACHMENT, f"csi-{node}", f"csi-{node}")
    assert binds_of(world.step()) == {"p-0": node}
