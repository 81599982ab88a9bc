"""Jobs to come as they are imagined: known from the cluster state, and from events."""

from collections.abc import Iterable
from itertools import pairwise

import msgspec
import numpy as np
import pytest

from pumice.events import GangAdmitted
from pumice.testing import Cluster
from services.scheduler import messages
from services.visibility.forecast.arrivals import KEPT, JobArrivals
from services.visibility.forecast.shapes import ArrivalShape
from shared.api import keys, kinds
from shared.api import time as times
from tests.support.world import named

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


def imagined(arrivals: JobArrivals, count: int = 40) -> list[tuple[float, ArrivalShape]]:
    """Return the jobs of one play, with their times."""
    coming = arrivals.future(NOW, np.random.default_rng(3).random)
    assert coming.at < float("inf"), "no job is to come"
    return [(coming.at, coming.take()) for _ in range(count)]


def told(cluster: Cluster) -> list[GangAdmitted]:
    """Return what the scheduler tells of those that it lets in."""
    return messages.admissions(cluster.decide(now=NOW), cluster.cluster_state)


def noted(cluster: Cluster) -> JobArrivals:
    """Return what is known by having been there when the jobs came."""
    arrivals = JobArrivals()
    arrivals.review(world().cluster_state, NOW)
    arrivals.review(cluster.cluster_state, NOW)
    return arrivals


def test_events_on_admissions_tell_of_the_same_jobs_to_come_as_the_cluster_state_did():
    cluster = world()
    jobs_come(cluster)
    events = told(cluster)
    assert len(events) == 20
    again = JobArrivals()
    for event in reversed(events):
        again.learn(event)
    found = imagined(noted(cluster))
    assert imagined(again) == found
    assert {arrival.pods[0].priority for _, arrival in found} == {7}
    assert {arrival.subject.template for _, arrival in found} == {"ns/train"}
    assert any(later > at for (at, _), (later, _) in pairwise(found))


def come(arrivals: JobArrivals, times_s: Iterable[float], name: str = "x") -> JobArrivals:
    """Note jobs that came so many seconds before `NOW`."""
    cluster = world()
    comes(cluster, 0)
    (event,) = told(cluster)
    for number, ago_s in enumerate(times_s):
        uid = f"{name}-{number:05}"
        created = f"{times.format_seconds(NOW - ago_s)}"
        arrivals.learn(msgspec.structs.replace(event, uid=uid, created=created))
    return arrivals


def come_within(
    arrivals: JobArrivals,
    ahead_s: float,
    *,
    after_s: float = 0.0,
    now: float = NOW,
    plays: int = 100,
) -> float:
    """Return how many jobs come in a time, as the mean of many plays."""
    count = 0
    for seed in range(plays):
        coming = arrivals.future(now, np.random.default_rng(seed).random)
        while coming.at <= now + ahead_s:
            count += coming.at > now + after_s
            coming.take()
    return count / plays


def burst(number: int, *, ago_s: float = 0.0) -> list[float]:
    """Return when jobs came that all came within three seconds, in seconds ago."""
    return [ago_s + 3.0 - 3 * place // number for place in range(number)]


def test_a_burst_of_seconds_is_no_sign_of_as_many_each_second():
    arrivals = come(JobArrivals(), burst(100))

    def within_an_hour(later_s: float) -> float:
        return come_within(arrivals, 3_600.0, now=NOW + later_s, plays=200)

    assert within_an_hour(10.0) == pytest.approx(100.0, rel=0.3)
    assert within_an_hour(4 * 3_600.0) == pytest.approx(25.0, rel=0.4), "100 in four hours"
    assert come_within(arrivals, 180.0, now=NOW + 10.0) < 20.0


def test_a_burst_that_still_goes_on_may_go_on_for_a_few_jobs_more():
    arrivals = come(JobArrivals(), burst(100))
    assert 5.0 < come_within(arrivals, 10.0) < 20.0


def test_jobs_of_a_burst_follow_each_other_again_where_one_has_come_now():
    pairs = [at + 2.0 * second for at in range(72_000, 0, -1_800) for second in (1, 0)]
    arrivals = come(JobArrivals(), pairs)
    assert come_within(arrivals, 5.0, now=NOW - 1_800.0, plays=200) == pytest.approx(0.5, rel=0.2)
    assert come_within(arrivals, 5.0, now=NOW - 1_700.0, plays=200) < 0.1


def test_jobs_that_come_steadily_go_on_to_come_as_many():
    arrivals = come(JobArrivals(), np.arange(7_200.0, 0.0, -20.0))
    assert come_within(arrivals, 600.0) == pytest.approx(30.0, rel=0.1)


def test_jobs_of_hours_tell_how_many_come_where_the_latest_are_all_of_one_burst():
    arrivals = come(JobArrivals(), [*np.arange(86_400.0, 700.0, -720.0), *burst(400)])
    reach_h = 63 / 5  # the burst, and 63 minutes before in which one job came each
    found = come_within(arrivals, reach_h * 3_600.0, now=NOW + 10.0)
    assert found == pytest.approx(63 + 400, rel=0.3)


def test_what_was_seen_of_a_time_without_jobs_counts():
    arrivals = JobArrivals()
    arrivals.review(world().cluster_state, NOW - 10 * 3_600.0)
    come(arrivals, burst(100))
    found = come_within(arrivals, 10 * 3_600.0, now=NOW + 10.0)
    assert found == pytest.approx(100.0, rel=0.3)


def test_more_is_counted_the_farther_one_looks():
    arrivals = come(JobArrivals(), [12 * 3_600.0, *np.arange(4_800.0, 0.0, -12.0)])
    assert come_within(arrivals, 3_600.0) == pytest.approx(300.0, rel=0.1)
    half_days = (12 * 3_600.0, 24 * 3_600.0)
    found = come_within(arrivals, half_days[1], after_s=half_days[0], plays=20)
    assert found == pytest.approx(401.0, rel=0.3), "as many in twelve hours as came in them"


def test_a_burst_of_thousands_takes_little_room_and_keeps_what_was_before():
    steady, many = np.arange(86_400.0, 700.0, -720.0), 3_000
    arrivals = come(come(JobArrivals(), steady, "steady"), burst(many), "burst")
    assert len(arrivals) == many + len(steady)
    assert arrivals.stretches <= KEPT
    coming = arrivals.future(NOW, np.random.default_rng(3).random)
    before = set()
    while coming.at < NOW + 7 * 86_400.0:
        before.add(coming.take().at)
    assert len([at for at in before if at < NOW - 60.0]) > 50
    found = come_within(arrivals, 63 * 720.0, now=NOW + 10.0, plays=40)
    assert found == pytest.approx(63 + many, rel=0.5)


def test_jobs_that_are_kept_together_come_as_evenly_as_they_came():
    arrivals = come(JobArrivals(recent=16, kept=64), np.arange(7_200.0, 0.0, -2.0))
    assert (len(arrivals), arrivals.stretches <= 64) == (3_600, True)
    coming = arrivals.future(NOW, np.random.default_rng(1).random)
    in_minutes = [0] * 60
    while coming.at < NOW + 3_600.0:
        in_minutes[int((coming.at - NOW) // 60)] += 1
        coming.take()
    assert sum(in_minutes) == pytest.approx(1_800, rel=0.1)
    assert sorted(in_minutes)[6] >= 15, "nine minutes of ten have half of their jobs at least"


def test_a_job_of_which_the_state_told_long_ago_is_not_counted_again():
    arrivals = come(JobArrivals(uids=10), np.arange(3_600.0, 0.0, -60.0))
    come(arrivals, np.arange(3_600.0, 900.0, -60.0))
    assert len(arrivals) == 60


def test_jobs_of_longer_ago_than_a_simulation_looks_are_forgotten():
    arrivals = JobArrivals(recent=16, kept=32)
    come(arrivals, np.arange(20 * 86_400.0, 10 * 86_400.0, -86_400.0), "old")
    come(arrivals, np.arange(3_600.0, 0.0, -120.0), "new")
    assert len(arrivals) == 30


@pytest.mark.parametrize("events_first", [True, False])
def test_jobs_that_wait_for_their_admission_are_known_after_a_restart(events_first):
    cluster = world()
    jobs_come(cluster, 12)
    events = told(cluster)
    for number in range(12, 16):
        comes(cluster, number)
    again = JobArrivals()
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
    again = JobArrivals()
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


def test_the_latest_jobs_are_kept_one_by_one_in_whatever_order_they_are_told():
    cluster = world()
    jobs_come(cluster, 20)
    events = told(cluster)
    arrivals = JobArrivals(recent=9, kept=12)
    for event in [*events[10:], *events[:10]]:
        arrivals.learn(event)
    assert len(arrivals) == 20
    assert arrivals.stretches <= 12
    latest = {times.parse(f"2026-01-01T00:00:{number}Z") for number in range(11, 20)}
    assert {arrival.at for _, arrival in imagined(arrivals, 400)} >= latest


@pytest.mark.parametrize(
    "changes",
    [{"created": ""}, {"created": "yesterday"}, {"min_resources": {"cpu": "many"}}],
    ids=["an event of an older release", "a time of another form", "an amount of another form"],
)
def test_an_event_that_tells_too_little_is_left_out(changes):
    cluster = world()
    jobs_come(cluster, 1)
    (event,) = told(cluster)
    arrivals = JobArrivals()
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
