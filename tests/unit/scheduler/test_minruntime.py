"""The plugin minruntime: gangs that have not run long enough are not evicted."""

import pytest

from pumice.testing import Cluster, evictions_of
from services.scheduler.config import BadConfig
from services.scheduler.decide import configure
from shared.api import kinds
from shared.api.time import format_seconds

NOW = 1_800_000_000.0
CONF = """
actions: "enqueue, allocate, {action}, backfill"
tiers:
- plugins:
  - {{name: priority}}
  - {{name: gang, enablePreemptable: false, enableReclaimable: false}}
  - {{name: minruntime, arguments: {{{arguments}}}}}
- plugins:
  - {{name: predicates}}
  - {{name: proportion}}
  - {{name: nodeorder}}
  - {{name: minruntime, arguments: {{{arguments}}}}}
"""


def conf(action: str = "preempt", **arguments: str) -> str:
    said = ", ".join(f"minruntime.{name}: {value}" for name, value in arguments.items())
    return CONF.format(action=action, arguments=said)


def crowd(
    text: str, *, ran_s: float, queue: str = "default", least: int = 2, **said: str
) -> Cluster:
    """Make a full node: a gang `low` of two pods that has run for so long, and one that waits.

    The queue of `low` has annotations: `preempt="1h"`.
    """
    cluster = Cluster(text, queue=False).node("n1", cpu="2")
    annotations = {f"pumice.dev/{kind}-min-runtime": text for kind, text in said.items()}
    put_queue(cluster, queue, annotations)
    if queue != "default":
        put_queue(cluster, "default", {})
    for name, value in (("high", 1000), ("low", 10)):
        meta = {"name": name, "uid": name}
        cluster.put(kinds.PRIORITYCLASS, {"metadata": meta, "value": value})
    more = {"priorityClassName": "low", "queue": queue}
    cluster.group("low", min_member=least, phase="Running", **more)
    at = format_seconds(NOW - ran_s)
    for number in range(2):
        status = {"startTime": at}
        cluster.pod(f"low-{number}", "low", cpu="1", node="n1", priority=10, status=status)
    cluster.group("high", priorityClassName="high")
    return cluster.pod("high-0", "high", cpu="1", priority=1000)


def put_queue(cluster: Cluster, name: str, annotations: dict[str, str], parent: str = "") -> None:
    meta = {"name": name, "uid": f"uid-{name}", "annotations": annotations}
    spec = {"weight": 1, **({"parent": parent} if parent else {})}
    cluster.put(kinds.QUEUE, {"metadata": meta, "spec": spec, "status": {"state": "Open"}})


def test_a_gang_that_has_run_long_enough_is_preempted():
    assert len(crowd(conf(preempt="1h"), ran_s=3600).decide(now=NOW).evictions) == 1


def test_a_gang_that_has_not_is_not():
    assert crowd(conf(preempt="1h"), ran_s=3599).decide(now=NOW).evictions == ()


def test_its_surplus_may_go_at_any_time():
    cluster = crowd(conf(preempt="1h"), ran_s=1, least=1)
    assert len(evictions_of(cluster.decide(now=NOW))) == 1


@pytest.mark.parametrize(("said", "evicted"), [("10s", 1), ("2h", 0), ("soon", 0), ("0", 1)])
def test_the_queues_annotation_comes_before_the_argument(said: str, evicted: int):
    cluster = crowd(conf(preempt="1h"), ran_s=60, preempt=said)
    assert len(cluster.decide(now=NOW).evictions) == evicted


def test_the_nearest_ancestor_counts():
    cluster = crowd(conf(), ran_s=60)
    put_queue(cluster, "root", {"pumice.dev/preempt-min-runtime": "1s"})
    put_queue(cluster, "team", {"pumice.dev/preempt-min-runtime": "1h"}, parent="root")
    put_queue(cluster, "default", {}, parent="team")
    assert cluster.decide(now=NOW).evictions == ()


def test_a_queue_without_a_parent_has_that_of_root():
    cluster = crowd(conf(), ran_s=600)
    put_queue(cluster, "root", {"pumice.dev/preempt-min-runtime": "1h"})
    assert evictions_of(cluster.decide(now=NOW)) == {}


def test_queues_that_are_each_others_parents_have_the_default():
    cluster = crowd(conf(preempt="1h"), ran_s=60)
    put_queue(cluster, "default", {}, parent="default")
    assert cluster.decide(now=NOW).evictions == ()


@pytest.mark.parametrize(("said", "evicted"), [("preempt", 1), ("reclaim", 0)])
def test_reclaim_has_a_time_of_its_own(said: str, evicted: int):
    cluster = crowd(conf("reclaim"), ran_s=60, queue="rich", **{said: "1h"})
    assert len(cluster.decide(now=NOW).evictions) == evicted


@pytest.mark.parametrize(
    ("action", "said", "evicted"),
    [
        ("gangpreempt", "preempt", 0),
        ("gangpreempt", "reclaim", 1),
        ("gangreclaim", "reclaim", 0),
        ("gangreclaim", "preempt", 1),
    ],
)
def test_whole_gangs_are_protected_from_actions_for_gangs(action: str, said: str, evicted: int):
    queue = "rich" if action == "gangreclaim" else "default"
    cluster = crowd(conf(action), ran_s=60, queue=queue, **{said: "1h"})
    assert len(cluster.decide(now=NOW).evictions) == evicted


def test_an_unreadable_argument_is_refused():
    with pytest.raises(BadConfig, match=r"minruntime\.preempt: 'long'"):
        configure(conf(preempt="long"))
