"""From events and facts to rows."""

import datetime as dt
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pumice.events import (
    CloudEvent,
    GangAdmitted,
    GangUnschedulable,
    JobPhaseChanged,
    PodBound,
    PodEvicted,
)
from services.accounting.books.ledger import Changes, Ledger
from services.accounting.books.rows import Allocation, EndReason, JobRow, days_of, usage_of
from tests.support import world
from tests.support.world import stored_group, stored_pod

DAY = 86_400.0
T = 100 * DAY
GROUP = "ns/train-uid-train"
MARKS = {
    "scheduling.k8s.io/group-name": "train-uid-train",
    "volcano.sh/job-name": "train",
    "pumice.dev/user": "ann",
}


def event(data, at_s):
    return CloudEvent(
        id=f"{data.topic}{at_s}",
        source="/test",
        type=data.topic,
        subject=data.key,
        time=dt.datetime.fromtimestamp(at_s, tz=dt.UTC),
        data=data,
    )


def bound(pod="ns/p0", at_s=T):
    return event(
        PodBound(
            pod=pod, uid=f"uid-{pod}", node="n0", gang=GROUP, queue="research", job="ns/train"
        ),
        at_s,
    )


def pod_fact(pod="ns/p0", *, node="n0", phase=""):
    meta = {"annotations": MARKS}
    body = stored_pod(pod, cpu="2", memory="1Gi", node=node, phase=phase, metadata=meta)
    return world.fact("pods", body)


class Database:
    """The rows that a ledger's changes make."""

    def __init__(self):
        self.allocations: dict[str, Allocation] = {}
        self.jobs: dict[str, JobRow] = {}
        self.usage: dict = {}

    def write(self, changes: Changes) -> None:
        self.allocations |= {row.pod_uid: row for row in changes.allocations}
        self.jobs |= {row.uid: row for row in changes.jobs}
        for key, amount in changes.usage.items():
            self.usage[key] = self.usage.get(key, 0.0) + amount

    def complete(self, ledger: Ledger, at_s: float = T + 400_000) -> None:
        ledger.complete(at_s)
        self.write(ledger.take_changes())

    def ledger(self, observed_s=T) -> Ledger:
        ledger = Ledger(["volcano"], observed_s=observed_s)
        allocations = [row for row in self.allocations.values() if row.ended is None]
        used = {row.job_uid for row in allocations}
        jobs = [row for row in self.jobs.values() if row.ended is None or row.uid in used]
        ledger.load(allocations, jobs)
        return ledger

    def feed(self, ledger, item) -> None:
        """Take an event, or a fact with its time, as the service does."""
        is_event = isinstance(item, CloudEvent)
        pods, jobs = ledger.unknown([item]) if is_event else ledger.unknown(facts=[item[0]])
        ledger.load(
            [self.allocations[uid] for uid in pods & self.allocations.keys()],
            [self.jobs[uid] for uid in jobs & self.jobs.keys()],
        )
        if is_event:
            ledger.apply(item, item.time.timestamp())
        else:
            ledger.observe(*item)
        self.write(ledger.take_changes())


def recorded(*items):
    database = Database()
    ledger = database.ledger()
    for item in items:
        database.feed(ledger, item)
    database.complete(ledger)
    return database


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
        event(GangAdmitted(**gang, created=created, min_member=2), T + 10),
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


def test_days_divide_a_span():
    assert list(days_of(T - 10, T + DAY + 5)) == [(99, 10.0), (100, DAY), (101, 5.0)]
    assert list(days_of(T, T)) == []


PODS = ("ns/p0", "ns/p1")


def history(pod, begin, life, ending):
    """Return the events and the facts of one pod, each in the order of its stream."""
    facts = [(pod_fact(pod, node=""), begin - 1), (pod_fact(pod), begin + 0.5)]
    if ending == "Succeeded":
        facts.append((pod_fact(pod, phase="Succeeded"), begin + life))
    facts.append((world.gone("pods", pod, f"uid-{pod}"), begin + life + 1))
    return [bound(pod, begin)], facts


@pytest.mark.laws
@given(
    st.lists(
        st.tuples(st.integers(1, 300_000), st.sampled_from(["Succeeded", "Deleted"])),
        min_size=len(PODS),
        max_size=len(PODS),
    ),
    st.integers(0, 1 << 32),
)
def test_any_order_and_any_restart_give_the_same_rows(lives, seed):
    # Given: two streams that are read independently, and a process that dies between transactions
    histories = [
        history(pod, T + at, float(life), ending)
        for at, (pod, (life, ending)) in enumerate(zip(PODS, lives, strict=True))
    ]
    events = [each for one, _ in histories for each in one]
    facts = sorted((each for _, many in histories for each in many), key=lambda each: each[1])
    plain = recorded(*events, *facts)
    # When: they are read in a drawn order, with restarts after which facts come again
    drawn, database = random.Random(seed), Database()
    ledger = database.ledger()
    read_events = read_facts = 0
    while read_events < len(events) or read_facts < len(facts):
        step = drawn.choice(["event", "event", "fact", "fact", "fact", "restart"])
        if step == "event" and read_events < len(events):
            database.feed(ledger, events[read_events])
            read_events += 1
        elif step == "fact" and read_facts < len(facts):
            database.feed(ledger, facts[read_facts])
            read_facts += 1
        elif step == "restart":
            ledger = database.ledger()
            last = {fact.key: (fact, at_s) for fact, at_s in facts[:read_facts]}
            for item in sorted(last.values(), key=lambda each: each[1]):
                database.feed(ledger, item)
    database.complete(ledger)
    # Then
    times = {uid: (row.started, row.ended) for uid, row in database.allocations.items()}
    assert times == {uid: (row.started, row.ended) for uid, row in plain.allocations.items()}
    usage: dict = {}
    for row in database.allocations.values():
        for key, amount in usage_of(row):
            usage[key] = usage.get(key, 0.0) + amount
    assert {key: amount for key, amount in database.usage.items() if amount} == pytest.approx(usage)
