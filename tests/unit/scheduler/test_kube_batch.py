"""kube-batch's pipeline: allocate, backfill, preempt, reclaim and no gate (A02 to A07)."""

from pumice.testing import Cluster, binds_of, evictions_of, phase_in
from shared.api import kinds

CONF = """
actions: "allocate, backfill, preempt, reclaim"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins:
  - {name: drf, enablePreemptable: false}
  - {name: predicates}
  - {name: proportion}
  - {name: nodeorder}
"""


def world() -> Cluster:
    cluster = Cluster(CONF, queue=False).queue("ours").queue("theirs")
    for name, value in (("low", 1), ("high", 100)):
        cluster.put(kinds.PRIORITYCLASS, {"metadata": {"name": name, "uid": name}, "value": value})
    return cluster


def test_groups_need_nobody_to_enqueue_them_and_are_placed_and_backfilled():
    cluster = world().node("n1", cpu="2").gang("j", tasks=2, phase="Pending", queue="ours")
    cluster.group("free", queue="ours", phase="Pending").pod("free-0", "free")
    plan = cluster.decide()
    assert binds_of(plan) == {"j-0": "n1", "j-1": "n1", "free-0": "n1"}
    assert phase_in(plan, "j") == "Inqueue"


def test_what_is_not_placed_is_preempted_for_and_what_another_queue_has_too_much_reclaimed():
    cluster = world().node("n1", cpu="8").queue("theirs", reclaimable=True)
    cluster.group("own", queue="ours", min_member=1, phase="Running", priorityClassName="low")
    for number in range(2):
        cluster.pod(f"own-{number}", "own", cpu="1", node="n1")
    cluster.group("other", queue="theirs", min_member=1, phase="Running", priorityClassName="low")
    for number in range(6):
        cluster.pod(f"other-{number}", "other", cpu="1", node="n1")
    for name in ("first", "second"):
        cluster.group(name, queue="ours", phase="Pending", priorityClassName="high")
        cluster.pod(f"{name}-0", name, cpu="1")
    plan = cluster.decide()
    assert {e.pod.split("-")[0]: e.reason for e in plan.evictions} == {
        "ns/own": "preempt",
        "ns/other": "reclaim",
    }
    assert sorted(evictions_of(plan).values()) == ["first-0", "second-0"]
