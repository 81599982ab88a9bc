"""Admission of jobs as users reported it, with the values that are right."""

from pumice.testing import Cluster, binds_of, phase_in


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
