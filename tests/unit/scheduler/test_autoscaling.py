"""What autoscalers see of gangs that wait for nodes (volcano#3804, #3910, #4030, #4710)."""

import pytest

from pumice.testing import Cluster, binds_of, phase_in
from services.scheduler.config import BadConfig
from services.scheduler.decide import configure
from services.scheduler.engine.plan import Plan
from shared.api import kinds
from tests.unit.controller.provisioning import condition

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


# --- ProvisioningRequests --------------------------------------------------------------------

CLASS = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"


def requested(cluster: Cluster, *shown: str, attempt: int = 1, message: str = "") -> None:
    """Put the ProvisioningRequest of gang `g` in, for its three pods."""
    owner = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "name": "g"}
    name = f"g-{attempt}"
    cluster.put(
        kinds.PROVISIONINGREQUEST,
        {
            "metadata": {
                "name": name,
                "namespace": "ns",
                "uid": f"uid-{name}",
                "ownerReferences": [{**owner, "uid": "uid-ns/g", "controller": True}],
            },
            "spec": {
                "provisioningClassName": CLASS,
                "podSets": [
                    {"podTemplateRef": {"name": f"{name}-{at}"}, "count": count}
                    for at, count in enumerate((2, 1))
                ],
            },
            "status": {"conditions": [condition(each, message=message) for each in shown]},
        },
    )


def gang_of_two_shapes() -> Cluster:
    cluster = Cluster(conf(by=CLASS)).group("g", min_member=3)
    for name, cpu in (("g-0", "1"), ("g-1", "1"), ("g-2", "2")):
        cluster.pod(name, "g", cpu=cpu)
    return cluster


def shown_conditions(plan: Plan) -> dict[str, tuple[str, str, str]]:
    (group,) = plan.podgroups
    return {each.type: (each.status, each.reason, each.message) for each in group.conditions}


def explained(plan: Plan) -> str:
    (explanation,) = plan.explanations
    return explanation.message + explanation.details


def test_a_gang_that_needs_nodes_says_for_which_pods():
    plan = gang_of_two_shapes().step()
    message = "nodes for pods: 2 like g-0, 1 like g-2"
    assert shown_conditions(plan)["NodesNeeded"] == ("True", CLASS, message)


def test_no_autoscaler_adds_nodes_for_single_pods_of_a_gang_whose_nodes_are_requested():
    assert set(reasons(gang_of_two_shapes().step()).values()) == {"WaitingForProvisioning"}


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        ((), "ProvisioningRequest g-1 is not accepted yet, provisioned 0 of 3"),
        (("Accepted",), "ProvisioningRequest g-1 is accepted, provisioned 0 of 3"),
        (("Accepted", "Provisioned"), "ProvisioningRequest g-1, provisioned 3 of 3"),
        (("Failed",), "ProvisioningRequest g-1 has failed (no quota), provisioned 0 of 3"),
        (("Provisioned", "BookingExpired"), "ProvisioningRequest g-1 has expired"),
        (("Provisioned", "CapacityRevoked"), "ProvisioningRequest g-1 was revoked"),
    ],
)
def test_a_waiting_gang_says_how_far_its_request_has_come(shown: tuple[str, ...], words: str):
    cluster = gang_of_two_shapes()
    cluster.step()
    requested(cluster, *shown, message="no quota")
    assert f"waits for nodes: {words}" in explained(cluster.step())


def test_the_last_request_counts():
    cluster = gang_of_two_shapes()
    requested(cluster, "Failed", attempt=9)
    requested(cluster, "Accepted", attempt=10)
    assert "ProvisioningRequest g-10 is accepted" in explained(cluster.step())
    cluster.delete(kinds.PROVISIONINGREQUEST, "ns/g-10", "uid-g-10")
    assert "ProvisioningRequest g-9 has failed" in explained(cluster.step())


def test_a_provisioned_gang_starts_whole_and_its_pods_use_what_was_provisioned():
    cluster = gang_of_two_shapes()
    cluster.step()
    requested(cluster, "Provisioned")
    assert binds_of(cluster.node("n1", cpu="2").step()) == {}
    plan = cluster.node("n2", cpu="4").step()
    (gang,) = plan.binds
    assert len(gang.binds) == 3
    for bind in gang.binds:
        assert bind.annotations == {
            "autoscaling.x-k8s.io/consume-provisioning-request": "g-1",
            "autoscaling.x-k8s.io/provisioning-class-name": CLASS,
        }
    assert shown_conditions(plan)["NodesNeeded"][:2] == ("False", "NotNeeded")


def test_a_gang_that_starts_without_its_request_uses_no_request():
    cluster = gang_of_two_shapes()
    requested(cluster, "Accepted")
    (gang,) = cluster.node("n1").step().binds
    assert [dict(bind.annotations) for bind in gang.binds] == [{}, {}, {}]


def test_no_nodes_are_requested_for_a_gang_that_its_queue_refuses():
    cluster = Cluster(conf(by=CLASS, sharing="capacity"), queue=False)
    cluster.queue("default", capability={"cpu": "2"}).gang("g", tasks=3)
    assert shown_conditions(cluster.step())["NodesNeeded"][0] == "False"


def test_single_nodes_are_added_for_surplus_pods():
    cluster = Cluster(conf(by=CLASS)).node("n1", cpu="2").gang("g", tasks=3, min_member=1)
    plan = cluster.step()
    assert list(reasons(plan).values()) == ["Unschedulable"]
    assert shown_conditions(plan)["NodesNeeded"][0] == "False"
