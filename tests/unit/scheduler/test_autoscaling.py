"""What autoscalers see of gangs that wait for nodes (volcano#3804, #3910, #4030, #4710)."""

import pytest

from pumice.testing import Cluster, binds_of, phase_in
from services.scheduler.config import BadConfig
from services.scheduler.decide import configure
from services.scheduler.engine.plan import Plan
from shared.api import kinds

CONF = """
actions: "enqueue, allocate, backfill"
autoscalerLimits: {{cpu: 100, memory: 1Ti{limits}}}
tiers:
- plugins:
  - {{name: priority}}
  - {{name: gang}}
  - {{name: autoscaling, arguments: {{autoscaling.by: {by}}}}}
- plugins: [{{name: overcommit}}, {{name: predicates}}, {{name: {sharing}}}, {{name: nodeorder}}]
"""


def conf(*, by: str = "pods", sharing: str = "proportion", limits: str = "") -> str:
    return CONF.format(by=by, sharing=sharing, limits=limits)


def reasons(plan: Plan) -> dict[str, str]:
    return {each.key.partition("/")[2]: each.condition.reason for each in plan.pods}


def test_all_pods_of_a_gang_that_waits_for_nodes_are_shown_so_that_it_gets_a_whole_gangs_nodes():
    cluster = Cluster(conf()).node("n1", cpu="1").gang("g", tasks=2)
    assert reasons(cluster.decide()) == {"g-0": "Unschedulable", "g-1": "Unschedulable"}


def test_without_the_argument_reasons_are_volcanos():
    cluster = Cluster(conf(by="none")).node("n1", cpu="1").gang("g", tasks=2)
    assert reasons(cluster.decide()) == {"g-0": "Schedulable", "g-1": "Unschedulable"}


@pytest.mark.parametrize("sharing", ["proportion", "capacity"])
def test_a_gang_enters_its_queue_and_asks_for_nodes_where_there_are_none(sharing: str):
    cluster = Cluster(conf(sharing=sharing))
    cluster.group("g", min_member=2, phase="Pending", minResources={"cpu": "2", "memory": "2Gi"})
    plan = cluster.step()
    assert phase_in(plan, "g") == "Inqueue"
    for number in range(2):
        cluster.pod(f"g-{number}", "g", cpu="1", memory="1Gi")
    plan = cluster.step()
    assert reasons(plan) == {"g-0": "Unschedulable", "g-1": "Unschedulable"}
    assert "never" not in plan.explanations[0].message + plan.explanations[0].details
    cluster.node("n1", cpu="1")
    assert binds_of(cluster.step()) == {}
    cluster.node("n2", cpu="1")
    assert sorted(binds_of(cluster.step())) == ["g-0", "g-1"]


def test_without_limits_a_gang_does_not_enter_a_queue_of_an_empty_cluster():
    cluster = Cluster(conf().replace("autoscalerLimits", "#"))
    cluster.group("g", phase="Pending", minResources={"cpu": "1"})
    assert phase_in(cluster.step(), "g") in {None, "Pending"}


def test_limits_admit_no_more_than_autoscalers_can_add():
    cluster = Cluster(conf())
    cluster.group("g", phase="Pending", minResources={"cpu": "121"})
    assert phase_in(cluster.step(), "g") in {None, "Pending"}


@pytest.mark.parametrize("sharing", ["proportion", "capacity"])
def test_no_node_is_added_for_pods_that_their_queue_refuses(sharing: str):
    cluster = Cluster(conf(sharing=sharing), queue=False).node("n1", cpu="1")
    cluster.queue("default", capability={"cpu": "1"}).gang("g", tasks=2)
    assert set(reasons(cluster.decide()).values()) == {"NotWaitingForNodes"}


def test_no_node_is_added_for_surplus_pods_that_their_queue_refuses():
    """volcano#4710: executors beyond the capability of their queue."""
    cluster = Cluster(conf(sharing="capacity"), queue=False).node("n1", cpu="4")
    cluster.queue("default", capability={"cpu": "2"}).gang("g", tasks=5, min_member=1)
    plan = cluster.step()
    assert len(binds_of(plan)) == 2
    assert set(reasons(plan).values()) == {"NotWaitingForNodes"}


def test_nodes_are_added_for_surplus_pods_that_their_queue_admits():
    cluster = Cluster(conf()).node("n1", cpu="2").gang("g", tasks=3, min_member=1)
    plan = cluster.step()
    assert len(binds_of(plan)) == 2
    assert list(reasons(plan).values()) == ["Unschedulable"]


def test_no_node_is_added_for_an_incomplete_gang():
    cluster = Cluster(conf()).group("g", min_member=2).pod("g-0", "g", cpu="1")
    assert reasons(cluster.decide()) == {"g-0": "NotWaitingForNodes"}


@pytest.mark.parametrize(
    ("of_queue", "of_group", "shown"),
    [("pods", "", 2), ("pods", "none", 1), ("", "pods", 2), ("nonsense", "nonsense", 1)],
)
def test_the_groups_annotation_comes_before_the_queues_and_an_unknown_value_counts_as_absent(
    of_queue: str, of_group: str, shown: int
):
    cluster = Cluster(conf(by="none"), queue=False).node("n1", cpu="1")
    for kind, name, by, spec in (
        (kinds.QUEUE, "default", of_queue, {}),
        (kinds.PODGROUP, "g", of_group, {"minMember": 2}),
    ):
        meta = {"name": name, "uid": f"uid-{name}", "annotations": {"pumice.dev/autoscaling": by}}
        if kind.namespaced:
            meta["namespace"] = "ns"
        status = {"state": "Open"} if kind is kinds.QUEUE else {"phase": "Inqueue"}
        cluster.put(kind, {"metadata": meta, "spec": spec, "status": status})
    for number in range(2):
        cluster.pod(f"g-{number}", "g", cpu="1")
    assert list(reasons(cluster.decide()).values()).count("Unschedulable") == shown


def test_an_unknown_default_is_refused():
    with pytest.raises(BadConfig, match=r"autoscaling\.by: 'magic'"):
        configure(conf(by="magic"))


def test_amounts_that_are_no_quantities_are_refused():
    with pytest.raises(BadConfig, match=r"autoscalerLimits\.nvidia\.com/gpu: 'many'"):
        configure(conf(limits=", nvidia.com/gpu: many"))
