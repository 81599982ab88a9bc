"""Draws of a forecast that no longer hold: the job still waits, or it has other pods by now."""

from pumice.testing import Cluster
from services.visibility.forecast.durations import History
from services.visibility.forecast.forecaster import Forecaster
from services.visibility.forecast.simulation import SchedulerRules
from tests.unit.visibility.test_forecasts import CONF, NOW, lasting, pending, running, starts


def test_draws_that_the_wait_has_refuted_count_no_longer():
    """Old draws let the job start when `first` was to end; it runs on, so the job still waits."""
    world = Cluster(CONF).node("n1", cpu="4")
    running(world, "first", 100, "n1")
    pending(world, "a", 50)
    forecaster = Forecaster(SchedulerRules(world.config, world.plugins), History(), draws=6)
    for _ in range(6):
        forecaster.draw(world.cluster_state, now=NOW)
    assert starts({"ns/a": forecaster.expected("ns/a")}) == {"a": 100.0}

    forecaster.draw(world.cluster_state, now=NOW + 110)

    found = starts({"ns/a": forecaster.expected("ns/a")})["a"]
    assert found is not None
    assert found > 110.0


def test_the_basis_is_that_of_the_latest_draws():
    """The first draw saw an empty cluster, of which no duration is known."""
    world = Cluster(CONF).node("n1", cpu="4")
    forecaster = Forecaster(SchedulerRules(world.config, world.plugins), History(), draws=6)
    forecaster.draw(world.cluster_state, now=NOW)
    running(world, "first", 100, "n1")
    pending(world, "a", 50)

    forecaster.draw(world.cluster_state, now=NOW + 1)

    assert forecaster.expected("ns/a").basis == "annotation"


def test_a_start_is_not_known_while_pods_are_missing():
    """The API server may have refused them: nobody knows whether they come."""
    world = Cluster(CONF).node("n1", cpu="4")
    lasting(world, "none", 50, minResources={"cpu": "1"})
    lasting(world, "some", 50, pods=3, minResources={"cpu": "3"})
    world.pod("some-0", "some", cpu="1")
    forecaster = Forecaster(SchedulerRules(world.config, world.plugins), History(), draws=4)
    forecaster.draw(world.cluster_state, now=NOW)

    found = {name: forecaster.expected(f"ns/{name}") for name in ("none", "some")}

    assert [each.median for each in found.values()] == [None, None]
    assert found["none"].unknown == "its pod is not there yet"
    assert found["some"].unknown == "2 of 3 pods are not there yet"


def test_draws_of_a_job_without_pods_count_no_longer_once_it_has_them():
    world = Cluster(CONF).node("n1", cpu="4")
    running(world, "first", 100, "n1")
    lasting(world, "a", 50, phase="Pending", minResources={"cpu": "4"})
    forecaster = Forecaster(SchedulerRules(world.config, world.plugins), History(), draws=12)
    for _ in range(6):
        forecaster.draw(world.cluster_state, now=NOW)
    assert starts({"ns/a": forecaster.expected("ns/a")}) == {"a": 100.0}

    lasting(world, "a", 50, phase="Inqueue", minResources={"cpu": "4"})
    world.pod("a-0", "a", cpu="4", nodeSelector={"disk": "ssd"})
    for _ in range(2):
        forecaster.draw(world.cluster_state, now=NOW + 5)

    assert forecaster.expected("ns/a").median is None
