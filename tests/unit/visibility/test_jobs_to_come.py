"""Jobs to come as they are imagined: known from the cluster state, and from events."""

from itertools import pairwise

import msgspec
import numpy as np
import pytest

from pumice.events import GangAdmitted
from pumice.testing import Cluster
from services.scheduler import messages
from services.visibility.forecast.shapes import Arrival, Arrivals
from shared.api import keys, kinds
from shared.api import time as times
from tests.support.facts import named

NOW = times.parse("2026-01-01T00:10:00Z")
CONF = """
actions: "enqueue, allocate"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: overcommit}, {name: predicates}]
"""


def world() -> Cluster:
    """Return a cluster with room for what all of `jobs_come` need."""
    found = Cluster(CONF).node("n1", cpu="400", memory="100Gi")
    rank = {"metadata": named("urgent"), "value": 7}
    return found.put(kinds.PRIORITYCLASS, rank)


def comes(cluster: Cluster, number: int, *, pods: int = 2) -> None:
    """Add a group that waits for its admission."""
    owner = {"apiVersion": "v1", "kind": "Thing", "name": "x", "uid": "x", "controller": True}
    meta = named(
        f"ns/train-{number}",
        creationTimestamp=f"2026-01-01T00:00:{number:02}Z",
        ownerReferences=[owner],
        annotations={keys.EXPECTED_DURATION: "90"} if number % 2 else {},
    )
    spec = {
        "minMember": pods,
        "queue": "default",
        "priorityClassName": "urgent",
        "minResources": {"cpu": f"{2 * pods}", "memory": "3Gi"},
    }
    cluster.put(kinds.PODGROUP, {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}})


def jobs_come(cluster: Cluster, count: int = 20) -> None:
    for number in range(count):
        comes(cluster, number, pods=1 + number % 3)


def imagined(arrivals: Arrivals, count: int = 40) -> list[tuple[float, Arrival]]:
    """Return the jobs of one play, with their times."""
    coming = arrivals.future(NOW, np.random.default_rng(3).random)
    assert coming.at < float("inf"), "no job is to come"
    return [(coming.at, coming.take()) for _ in range(count)]


def told(cluster: Cluster) -> list[GangAdmitted]:
    """Return what the scheduler tells of those that it lets in."""
    return messages.admissions(cluster.decide(now=NOW), cluster.cluster_state)


def noted(cluster: Cluster) -> Arrivals:
    """Return what is known by having been there when the jobs came."""
    arrivals = Arrivals()
    arrivals.review(world().cluster_state, NOW)
    arrivals.review(cluster.cluster_state, NOW)
    return arrivals


def test_events_on_admissions_tell_of_the_same_jobs_to_come_as_the_cluster_state_did():
    cluster = world()
    jobs_come(cluster)
    events = told(cluster)
    assert len(events) == 20
    again = Arrivals()
    for event in reversed(events):
        again.learn(event)
    found = imagined(noted(cluster))
    assert imagined(again) == found
    assert {arrival.pods[0].priority for _, arrival in found} == {7}
    assert {arrival.subject.template for _, arrival in found} == {"ns/train"}
    assert any(later > at for (at, _), (later, _) in pairwise(found))


def test_many_at_once_and_none_since_are_no_sign_of_as_many_each_moment():
    cluster = world()
    jobs_come(cluster, 20)
    arrivals = noted(cluster)

    def come_within(quiet_s: float, within_s: float) -> float:
        """Return how many jobs come in a time, as the mean of many plays."""
        now = times.parse("2026-01-01T00:00:19Z") + quiet_s
        coming = [arrivals.future(now, np.random.default_rng(seed).random) for seed in range(100)]
        counts = []
        for each in coming:
            counts.append(0)
            while each.at <= now + within_s:
                each.take()
                counts[-1] += 1
        return sum(counts) / len(counts)

    assert come_within(0.0, 600.0) == pytest.approx(600.0 * 20 / 19, rel=0.1)
    assert come_within(600.0, 6_190.0) == pytest.approx(200, rel=0.1), "20 in 619 s, and so on"


@pytest.mark.parametrize("events_first", [True, False])
def test_jobs_that_wait_for_their_admission_are_known_after_a_restart(events_first):
    cluster = world()
    jobs_come(cluster, 12)
    events = told(cluster)
    for number in range(12, 16):
        comes(cluster, number)
    again = Arrivals()
    if not events_first:
        again.review(cluster.cluster_state, NOW)
        assert len(again) == 0
    for event in events:
        again.learn(event)
    again.review(cluster.cluster_state, NOW)
    assert len(again) == 16
    assert imagined(again) == imagined(noted(cluster))


def test_a_job_that_waits_since_before_all_that_events_tell_of_is_none_of_the_latest():
    cluster = world()
    for number in range(10, 20):
        comes(cluster, number)
    events = told(cluster)
    comes(cluster, 5)
    again = Arrivals()
    for event in events:
        again.learn(event)
    again.review(cluster.cluster_state, NOW)
    assert len(again) == 10


def test_a_job_that_is_admitted_again_came_once():
    cluster = world()
    jobs_come(cluster, 10)
    arrivals = noted(cluster)
    for event in 2 * told(cluster):
        arrivals.learn(event)
    assert len(arrivals) == 10


def test_the_latest_jobs_are_kept_in_whatever_order_they_are_told():
    cluster = world()
    jobs_come(cluster, 20)
    events = told(cluster)
    arrivals = Arrivals(recent=9)
    for event in [*events[10:], *events[:10]]:
        arrivals.learn(event)
    assert len(arrivals) == 9
    expected = {times.parse(f"2026-01-01T00:00:{number}Z") for number in range(11, 20)}
    assert {arrival.at for _, arrival in imagined(arrivals, 200)} <= expected


@pytest.mark.parametrize(
    "changes",
    [{"created": ""}, {"created": "yesterday"}, {"min_resources": {"cpu": "many"}}],
    ids=["an event of an older release", "a time of another form", "an amount of another form"],
)
def test_an_event_that_tells_too_little_is_left_out(changes):
    cluster = world()
    jobs_come(cluster, 1)
    (event,) = told(cluster)
    arrivals = Arrivals()
    arrivals.learn(msgspec.structs.replace(event, **changes))
    assert len(arrivals) == 0
    arrivals.learn(event)
    assert len(arrivals) == 1


def test_an_admission_says_which_version_of_its_group_was_decided_on():
    cluster = world()
    meta = named("ns/a", resourceVersion="12", creationTimestamp="2026-01-01T00:00:00Z")
    spec = {"minMember": 1, "queue": "default"}
    cluster.put(kinds.PODGROUP, {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}})
    (event,) = told(cluster)
    assert (event.gang, event.resource_version, event.min_member) == ("ns/a", "12", 1)
    assert event.min_resources == {}
