"""Who comes first with the plugin `fairshare`: queues and users that used least of their shares."""

import pytest

from pumice.testing import Cluster, binds_of
from services.scheduler.config import BadConfig
from services.scheduler.decision_settings import DecisionSettings
from services.scheduler.policy.states.past_usage import PastUsage
from services.scheduler.scheduler_state import Measurements, SchedulerState
from shared.api import kinds
from shared.contracts.usage import QueueUsage

HOUR = 3600.0
WEEK = 7 * 24 * HOUR
CONF = """
actions: "allocate"
tiers:
- plugins: [{name: gang}, {name: fairshare, arguments: {fairshare.resourceKey: cpu}}]
- plugins: [{name: predicates}]
"""


def usage(queue="default", *, at=1000.0, **users):
    """A message with the core-hours of users."""
    amounts = {user: {"cpu": hours * HOUR} for user, hours in users.items()}
    return QueueUsage(queue=queue, at=at, half_life_s=WEEK, users=amounts)


def world(*messages, conf=CONF, cpu="1"):
    cluster = Cluster(conf, queue=False).node("n1", cpu=cpu)
    cluster.cluster_state.store(PastUsage).replace({m.queue: m for m in messages})
    return cluster


def queue(cluster, name, shares="", **spec):
    annotations = {"pumice.dev/user-shares": shares} if shares else {}
    metadata = {"name": name, "uid": f"uid-{name}", "annotations": annotations}
    return cluster.put(
        kinds.QUEUE, {"metadata": metadata, "spec": spec, "status": {"state": "Open"}}
    )


def job(cluster, name, user, in_queue="default", created="2026-01-01T00:00:00Z"):
    cluster.gang(name, tasks=1, queue=in_queue, created=created)
    metadata = {
        "name": name,
        "namespace": "ns",
        "uid": f"uid-ns/{name}",
        "creationTimestamp": created,
        "annotations": {"pumice.dev/user": user} if user else {},
    }
    spec = {"minMember": 1, "queue": in_queue}
    return cluster.put(
        kinds.PODGROUP, {"metadata": metadata, "spec": spec, "status": {"phase": "Inqueue"}}
    )


def first(cluster, now=1000.0):
    """The job that gets the only CPU."""
    (pod,) = binds_of(cluster.decide(now=now))
    return pod.removesuffix("-0")


def test_the_user_who_has_used_less_comes_first_though_his_job_is_younger():
    cluster = queue(world(usage(ann=10.0, bob=1.0)), "default")
    job(cluster, "old", "ann", created="2026-01-01T00:00:00Z")
    job(cluster, "new", "bob", created="2026-01-02T00:00:00Z")
    assert first(cluster) == "new"


def test_a_user_with_a_larger_share_may_use_more():
    cluster = queue(world(usage(ann=10.0, bob=9.0)), "default", shares="ann=2, bob = 1, eve=x")
    job(job(cluster, "a", "ann"), "b", "bob")
    assert first(cluster) == "a"


def test_the_namespace_stands_for_a_job_without_a_user():
    cluster = queue(world(usage(ns=10.0, bob=1.0)), "default")
    job(job(cluster, "a", ""), "b", "bob")
    assert first(cluster) == "b"


def test_the_queue_that_has_used_less_of_its_weight_comes_first():
    cluster = world(usage("big", ann=10.0), usage("small", bob=6.0))
    queue(queue(cluster, "big", weight=2), "small", weight=1)
    job(job(cluster, "b", "ann", "big"), "s", "bob", "small")
    assert first(cluster) == "b"


def test_the_usage_of_a_queue_counts_for_its_parent():
    cluster = world(usage("team-a", ann=10.0), usage("solo", bob=6.0))
    queue(queue(queue(cluster, "team"), "team-a", parent="team"), "team-b", parent="team")
    queue(cluster, "solo")
    job(job(cluster, "t", "eve", "team-b"), "s", "bob", "solo")
    assert first(cluster) == "s"


def test_without_usage_the_older_job_comes_first():
    cluster = queue(world(), "default")
    job(cluster, "young", "ann", created="2026-01-02T00:00:00Z")
    job(cluster, "z-old", "bob", created="2026-01-01T00:00:00Z")
    assert first(cluster) == "z-old"


def test_only_target_queues_order_their_users():
    conf = CONF.replace("resourceKey: cpu", "resourceKey: cpu, fairshare.targetQueues: other")
    cluster = queue(world(usage(ann=10.0, bob=1.0), conf=conf), "default")
    job(job(cluster, "a", "ann"), "b", "bob")
    assert first(cluster) == "a"


def test_weights_add_resources_up():
    weights = "{fairshare.weights: {cpu: 1, nvidia.com/gpu: 100}}"
    cluster = world(
        QueueUsage(
            queue="default",
            at=1000.0,
            half_life_s=WEEK,
            users={"ann": {"cpu": 50.0}, "bob": {"nvidia.com/gpu": 1.0}},
        ),
        conf=CONF.replace("{fairshare.resourceKey: cpu}", weights),
    )
    job(job(queue(cluster, "default"), "b", "bob"), "z", "ann")
    assert first(cluster) == "z"


@pytest.mark.parametrize("wrong", ["{fairshare.weights: 3}", "{fairshare.weights: {cpu: -1}}"])
def test_weights_that_cannot_be_used_are_refused(wrong):
    with pytest.raises(BadConfig, match=r"fairshare\.weights"):
        Cluster(CONF.replace("{fairshare.resourceKey: cpu}", wrong))


def test_while_accounting_is_away_what_is_held_counts_as_if_it_had_been_held_since():
    cluster = queue(world(usage(ann=10.0, bob=1.0), cpu="5"), "default")
    job(cluster, "holds", "bob")
    cluster.gang("runs", tasks=4, node="n1")  # of the namespace `ns`
    job(cluster, "waits", "ann")
    cluster.delete(kinds.PODGROUP, "ns/holds").delete(kinds.POD, "ns/holds-0", "uid-ns/holds-0")
    job(cluster, "more", "ns")
    assert first(cluster, now=1100.0) == "more"
    assert first(cluster, now=1000.0 + 24 * HOUR) == "waits"


def test_a_recorded_cycle_has_the_usage():
    recorded = world(usage(ann=1.0)).cluster_state.store(PastUsage)
    restored = PastUsage()
    restored.restore({"default": {"queue": "default", "at": 1, "half_life_s": 2, "users": {}}})
    assert restored.by_queue["default"].at == 1
    assert recorded.dump() == {"default": usage(ann=1.0)}


def test_messages_reach_the_cluster_state_with_the_next_fold():
    message = usage(ann=1.0)
    measured = Measurements(past_usage=lambda: {"default": message})
    scheduler = SchedulerState(DecisionSettings(), gang_message=1, settle_s=0.0, measured=measured)
    scheduler.fold([])
    scheduler.forget()
    scheduler.fold([])
    assert scheduler.cluster_state.store(PastUsage).dump() == {"default": message}
