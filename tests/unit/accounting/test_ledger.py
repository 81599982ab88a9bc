"""From events and facts to rows."""

import datetime as dt

from pumice.events import (
    GangAdmitted,
    GangUnschedulable,
    JobPhaseChanged,
    PodEvicted,
)
from services.accounting.books.rows import Allocation, EndReason, days_of
from shared.api import kinds
from tests.support import world
from tests.support.world import stored_group, stored_pod
from tests.unit.accounting.usage import DAY, GROUP, T, bound, event, pod_fact, recorded


def test_a_pod_uses_its_resources_from_its_bind_to_its_end():
    database = recorded(bound(), (pod_fact(), T + 1), (pod_fact(phase="Succeeded"), T + 60))
    assert database.allocations["uid-ns/p0"] == Allocation(
        pod_uid="uid-ns/p0",
        pod="p0",
        namespace="ns",
        job="train",
        job_uid="uid-train",
        queue="research",
        user="ann",
        node="n0",
        cpu_milli=2000,
        memory_bytes=1 << 30,
        started=T,
        ended=T + 60,
        reason=EndReason.COMPLETED,
    )


def test_an_evicted_pod_says_so():
    gone = world.gone("pods", "ns/p0", "uid-ns/p0")
    evicted = event(PodEvicted(pod="ns/p0", uid="uid-ns/p0", by="preempt"), T + 5)
    for order in ([evicted, (gone, T + 9)], [(gone, T + 9), evicted]):
        row = recorded(bound(), (pod_fact(), T + 1), *order).allocations["uid-ns/p0"]
        assert (row.reason, row.ended) == (EndReason.EVICTED, T + 9)


def test_the_event_of_a_bind_may_come_after_the_end_of_its_pod():
    gone = world.gone("pods", "ns/p0", "uid-ns/p0")
    row = recorded((gone, T + 9), bound()).allocations["uid-ns/p0"]
    assert (row.started, row.ended, row.reason) == (T, T + 9, EndReason.DELETED)
    assert row.approximate


def test_a_pod_never_ends_before_its_bind_whose_event_comes_later():
    ended = pod_fact(phase="Succeeded")
    database = recorded((pod_fact(), T), (ended, T), bound(at_s=T + 0.7))
    (row,) = database.allocations.values()
    assert row.started == T + 0.7
    assert row.ended == row.started


def test_a_pod_that_ended_unobserved_counts_until_it_was_last_observed():
    database = recorded(bound(), (pod_fact(), T + 1))
    ledger = database.ledger(observed_s=T + 100)
    database.complete(ledger)
    row = database.allocations["uid-ns/p0"]
    assert (row.ended, row.reason, row.approximate) == (T + 100, EndReason.UNOBSERVED, True)


def test_pods_of_other_schedulers_are_not_recorded():
    body = stored_pod("ns/other", node="n0", schedulerName="default-scheduler")
    assert recorded((world.fact("pods", body), T)).allocations == {}


def test_waits_are_counted_by_gate():
    created = dt.datetime.fromtimestamp(T, tz=dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    gang = {"gang": GROUP, "uid": "uid-group", "queue": "research", "job": "ns/train"}
    database = recorded(
        event(JobPhaseChanged(job="ns/train", uid="uid-train", phase="Pending"), T),
        event(
            GangAdmitted(
                **gang,
                created=created,
                min_member=2,
                min_resources={"cpu": "4", "memory": "2Gi", "count/pods": "2", "requests.cpu": "4"},
            ),
            T + 10,
        ),
        event(GangUnschedulable(**gang, gate="quota", message="…"), T + 15),
        bound(at_s=T + 45),
        event(
            JobPhaseChanged(job="ns/train", uid="uid-train", phase="Completed", version=1), T + 90
        ),
    )
    row = database.jobs["uid-train"]
    assert row.waits == {"admission": 10.0, "placement": 5.0, "quota": 30.0}
    assert (row.submitted, row.admitted, row.started, row.ended) == (T, T + 10, T + 45, T + 90)
    assert (row.gate, row.restarts, row.phase) == ("", 1, "Completed")
    assert row.requested == {"cpu": 4000, "memory": 2 << 30}


def test_the_user_and_queue_of_a_pod_without_them_are_those_of_its_group():
    body = stored_pod("ns/p0", node="n0", metadata={"annotations": {
        "scheduling.k8s.io/group-name": "g"}})  # fmt: skip
    group = stored_group(
        "ns/g", phase="Running", metadata={"annotations": {"pumice.dev/user": "bob"}}, queue="q"
    )
    items = [(world.fact("pods", body), T), (world.fact("podgroups", group), T)]
    for order in (items, items[::-1]):
        row = recorded(*order).allocations["uid-ns/p0"]
        assert (row.user, row.queue, row.job_uid) == ("bob", "q", "uid-ns/g")


def test_pods_of_a_native_group_are_recorded_with_it():
    body = stored_pod("ns/p0", node="n0", schedulingGroup={"podGroupName": "g"})
    group = {
        "metadata": {
            **world.named("ns/g"),
            "annotations": {
                "pumice.dev/user": "bob",
                "scheduling.volcano.sh/queue-name": "q",
            },
        },
        "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}},
    }
    items = [
        (world.fact("pods", body), T),
        (world.fact(kinds.NATIVEPODGROUP.token, group), T),
    ]
    for order in (items, items[::-1]):
        database = recorded(*order)
        row = database.allocations["uid-ns/p0"]
        assert (row.user, row.queue, row.job, row.job_uid) == ("bob", "q", "g", "uid-ns/g")
        assert database.jobs["uid-ns/g"].min_member == 3


def test_volcanos_group_counts_where_both_kinds_have_one_of_a_name():
    meta = world.named("ns/g")
    native = {"metadata": meta | {"uid": "native"}}
    volcanos = stored_group("ns/g", phase="Running", queue="q")
    items = [
        (world.fact("podgroups", volcanos), T),
        (world.fact(kinds.NATIVEPODGROUP.token, native), T),
    ]
    body = stored_pod("ns/p0", node="n0", schedulingGroup={"podGroupName": "g"})
    for order in (items, items[::-1]):
        database = recorded(*order, (world.fact("pods", body), T))
        assert database.allocations["uid-ns/p0"].job_uid == "uid-ns/g"


def test_days_divide_a_span():
    assert list(days_of(T - 10, T + DAY + 5)) == [(99, 10.0), (100, DAY), (101, 5.0)]
    assert list(days_of(T, T)) == []
