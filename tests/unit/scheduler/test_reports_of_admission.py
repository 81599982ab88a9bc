"""Admission of jobs as users reported it, with the values that are right."""

import pytest

from pumice.testing import Cluster, binds_of, evictions_of, phase_in
from shared.api import kinds


def two_spark_applications():
    """Two drivers of 1 CPU whose executors come later, in a queue with room for one of them."""
    world = Cluster().node("n1", cpu="8").queue("spark", capability={"cpu": "2"})
    for name, created in (("one", "2026-01-01T00:00:00Z"), ("two", "2026-01-02T00:00:00Z")):
        minimum = {"cpu": "2"}
        world.group(name, phase="Pending", queue="spark", minResources=minimum, created=created)
        world.pod(f"{name}-driver", name, cpu="1")
    return world


def test_of_two_spark_applications_one_is_admitted_with_room_for_its_executor():
    """Reported as volcano#2037: both drivers ran, and no executor fitted."""
    world = two_spark_applications()
    plan = world.decide()
    assert phase_in(plan, "one") == "Inqueue"
    assert phase_in(plan, "two") != "Inqueue"
    assert list(binds_of(plan)) == ["one-driver"]


def test_the_executor_of_the_admitted_application_runs_and_the_other_driver_waits():
    world = two_spark_applications()
    minimum = {"cpu": "2"}
    world.group("one", phase="Running", queue="spark", minResources=minimum)
    world.pod("one-driver", "one", cpu="1", node="n1", phase="Running")
    world.pod("one-exec-1", "one", cpu="1")
    plan = world.decide()
    assert list(binds_of(plan)) == ["one-exec-1"]
    assert phase_in(plan, "two") != "Inqueue"


def test_the_second_application_is_admitted_when_the_first_is_gone():
    world = two_spark_applications()
    minimum = {"cpu": "2"}
    world.group("one", phase="Completed", queue="spark", minResources=minimum)
    world.pod("one-driver", "one", cpu="1", node="n1", phase="Succeeded")
    plan = world.decide()
    assert phase_in(plan, "two") == "Inqueue"
    assert list(binds_of(plan)) == ["two-driver"]


def test_a_job_is_held_up_only_by_resources_that_it_asks_for():
    """Reported as volcano#5199: cards of a queue were reserved, and a job without any waited."""
    world = Cluster().node("n1", cpu="32", nvidia_com__gpu="8")
    world.queue("team", capability={"cpu": "32", "nvidia.com/gpu": "8"})
    cards = {"cpu": "1", "nvidia.com/gpu": "8"}
    world.group("cards", phase="Inqueue", queue="team", minResources=cards)
    world.group("plain", phase="Pending", queue="team", minResources={"cpu": "4"})
    world.pod("plain-0", "plain", cpu="4")
    plan = world.decide()
    assert phase_in(plan, "plain") == "Inqueue"
    assert list(binds_of(plan)) == ["plain-0"]


def test_a_group_whose_pods_are_gone_leaves_its_room_to_the_next():
    """Reported as kuberay#5183: the queue went on counting a cluster that was suspended."""
    world = Cluster().node("n1", cpu="16").queue("ray", capability={"cpu": "4", "memory": "6Gi"})
    minimum = {"cpu": "3", "memory": "3Gi"}
    world.group("alpha", phase="Running", queue="ray", min_member=3, minResources=minimum)
    world.group("beta", phase="Pending", queue="ray", min_member=3, minResources=minimum)
    for number in range(3):
        world.pod(f"beta-{number}", "beta", cpu="1", memory="1Gi")
    plan = world.decide()
    assert phase_in(plan, "beta") == "Inqueue"
    assert set(binds_of(plan)) == {"beta-0", "beta-1", "beta-2"}


TREE = """
actions: "enqueue, allocate, reclaim, backfill"
tiers:
- plugins: [{name: priority}, {name: gang, enablePreemptable: false}, {name: conformance}]
- plugins:
  - {name: drf, enablePreemptable: false}
  - name: predicates
  - {name: capacity, enableHierarchy: true}
  - name: nodeorder
"""
GPU = "nvidia.com/gpu"


@pytest.mark.parametrize("jobs_of_a", [1, 4])
def test_a_queue_is_admitted_to_what_it_deserves_although_the_whole_tree_is_full(jobs_of_a: int):
    """Reported as volcano#4679 and #4817: not admitted, so that reclaim passed it, for ever."""
    world = Cluster(TREE).node("n1", cpu="16", nvidia_com__gpu="4").queue("root")
    for team in ("a", "b"):
        share = {"reclaimable": True, "capability": {GPU: "4"}, "deserved": {GPU: "2"}}
        world.queue(team, parent="root", **share).queue(f"{team}-1", parent=team, **share)
    for number in range(4):
        group = f"holder-{number % jobs_of_a}"
        world.group(group, phase="Running", queue="a-1", minResources={"cpu": "1", GPU: "1"})
        world.pod(f"holder-{number}", group, cpu="1", requests={GPU: "1"}, node="n1")
    claim = {"cpu": "2", GPU: "2"}
    world.group("claimer", phase="Pending", queue="b-1", min_member=2, minResources=claim)
    for number in range(2):
        world.pod(f"claimer-{number}", "claimer", cpu="1", requests={GPU: "1"})
    plan = world.step()
    assert phase_in(plan, "claimer") == "Inqueue"
    evicted = evictions_of(plan)
    assert len(evicted) == 2
    for victim in evicted:
        world.delete(kinds.POD, f"ns/{victim}")
    assert set(binds_of(world.step())) == {"claimer-0", "claimer-1"}


@pytest.mark.parametrize("conf", [None, TREE], ids=["default", "capacity"])
def test_a_bound_of_a_resource_that_is_none_bounds_nothing(conf: str | None):
    """The queue of volcano#4867 said `mem` for `memory`."""
    world = Cluster(conf).node("n1", cpu="32").queue("root").queue("default", parent="root")
    world.queue("typo", parent="root", capability={"cpu": "20", "mem": "400Gi"})
    minimum = {"cpu": "2", "memory": "2Gi"}
    world.group("job", phase="Pending", queue="typo", min_member=2, minResources=minimum)
    for number in range(2):
        world.pod(f"job-{number}", "job", cpu="1", memory="1Gi")
    assert set(binds_of(world.decide())) == {"job-0", "job-1"}


def test_jobs_that_want_one_full_node_do_not_keep_a_higher_one_from_an_empty_node():
    """Reported as volcano#3670: reservations filled the cluster on paper."""
    world = Cluster()
    for name in ("n1", "n2"):
        world.node(name, cpu="8", labels={"name": name})
    world.queue("low", weight=1).queue("high", weight=100)
    for name, value in (("low", 10), ("high", 100)):
        world.put(kinds.PRIORITYCLASS, {"metadata": {"name": name, "uid": name}, "value": value})

    def job(name: str, queue: str, node: str, number: int = 0) -> None:
        group = {"phase": "Pending", "queue": queue, "minResources": {"cpu": "2"}}
        created = f"2026-01-01T00:00:{number:02}Z"
        world.group(name, priorityClassName=queue, created=created, **group)
        world.pod(f"{name}-0", name, cpu="2", nodeSelector={"name": node})

    for number in range(30):
        job(f"low-{number}", "low", "n1", number)
    for name, node in binds_of(world.step()).items():
        group = name.removesuffix("-0")
        world.pod(name, group, cpu="2", node=node)
        minimum = {"cpu": "2"}
        world.group(group, phase="Running", queue="low", minResources=minimum)
    world.step()
    job("high", "high", "n2", 59)
    assert binds_of(world.step()) == {"high-0": "n2"}


@pytest.mark.parametrize("first", ["limits-only", "says-nothing"])
def test_a_gang_that_a_minimum_without_limits_let_in_is_not_torn(first: str):
    """Reported as kueue#15020: as in Volcano, minResources count no limit without a request (J28).

    The API server makes requests of limits, and of a LimitRange, once there are pods: these count.
    """
    world = Cluster().node("n1", cpu="16").queue("four", capability={"cpu": "4"})
    pods = {"limits-only": (1, "3"), "says-nothing": (2, "1")}
    for name in sorted(pods, key=lambda name: name != first):
        number, cpu = pods[name]
        world.group(name, phase="Pending", queue="four", min_member=number, minResources={})
        for index in range(number):
            world.pod(f"{name}-{index}", name, cpu=cpu)
    bound = binds_of(world.step()) | binds_of(world.step())
    running = {name.rpartition("-")[0] for name in bound}
    assert len(running) == 1
    (one,) = running
    assert len(bound) == pods[one][0]
