"""Gangs of Kubernetes' own PodGroups (scheduling.k8s.io/v1beta1)."""

import pytest

from pumice.testing import Cluster, binds_of, phase_in
from services.scheduler.messages import desires
from shared.api import kinds
from shared.contracts.messages import DesiredNativePodGroup

QUEUE = "scheduling.volcano.sh/queue-name"


def native(world, name, *, min_count=0, uid="", conditions=(), annotations=None, **spec):
    """Add a native PodGroup; without a minimum it has the basic policy."""
    policy = {"gang": {"minCount": min_count}} if min_count else {"basic": {}}
    meta = {"name": name, "namespace": "ns", "uid": uid or f"native-{name}"}
    return world.put(
        kinds.NATIVEPODGROUP,
        {
            "metadata": {**meta, "annotations": annotations or {}, "resourceVersion": "7"},
            "spec": {"schedulingPolicy": policy, **spec},
            "status": {"conditions": list(conditions)},
        },
    )


def member(world, name, group, *, cpu="1", **more):
    """Add a pod that names its native PodGroup."""
    return world.pod(name, cpu=cpu, schedulingGroup={"podGroupName": group}, **more)


def gang(world, name="g", *, pods, min_count=None, **more):
    native(world, name, min_count=pods if min_count is None else min_count, **more)
    for number in range(pods):
        member(world, f"{name}-{number}", name)
    return world


def shown(world, name, plan):
    """Have the native PodGroup show what the scheduler wants; return its conditions by type."""
    world.publish(plan)
    found = {}
    for desired in desires(plan, world.cluster_state):
        if isinstance(desired.message, DesiredNativePodGroup):
            found |= {
                c.type: {
                    "type": c.type,
                    "status": c.status,
                    "reason": c.reason,
                    "message": c.message,
                }
                for c in desired.message.conditions
            }
    return found


def test_a_gang_that_fits_is_placed_whole():
    world = gang(Cluster().node("n1", cpu="2"), pods=2)
    assert binds_of(world.decide()) == {"g-0": "n1", "g-1": "n1"}


def test_a_gang_that_does_not_fit_is_not_placed_at_all():
    world = gang(Cluster().node("n1", cpu="1"), pods=2)
    assert binds_of(world.decide()) == {}


def test_pods_beyond_the_minimum_may_wait():
    world = gang(Cluster().node("n1", cpu="2"), pods=3, min_count=2)
    assert len(binds_of(world.decide())) == 2


def test_pods_of_a_group_with_the_basic_policy_are_placed_one_by_one():
    world = gang(Cluster().node("n1", cpu="1"), pods=2, min_count=0)
    assert len(binds_of(world.decide())) == 1


def test_pods_that_name_a_group_which_is_not_there_wait():
    world = member(Cluster().node("n1"), "a", "nowhere")
    plan = world.decide()
    assert binds_of(plan) == {}
    (pod,) = plan.pods
    assert pod.condition.message == "there is no PodGroup 'nowhere'"
    assert binds_of(native(world, "nowhere", min_count=1).decide()) == {"a": "n1"}


def test_a_huge_minimum_keeps_only_its_own_gang_waiting():
    world = gang(Cluster().node("n1"), pods=2, min_count=2**31 - 1)
    gang(world, "other", pods=1)
    assert binds_of(world.decide()) == {"other-0": "n1"}


def test_a_lower_minimum_lets_a_waiting_gang_start():
    world = gang(Cluster().node("n1", cpu="1"), pods=2)
    assert binds_of(world.step()) == {}
    assert len(binds_of(native(world, "g", min_count=1).decide())) == 1


@pytest.mark.parametrize("volcano_first", [True, False])
def test_volcanos_podgroup_counts_where_both_kinds_have_one_of_the_name(volcano_first):
    world = Cluster().node("n1", cpu="1")
    member(world, "a", "g"), member(world, "b", "g")
    if volcano_first:
        native(world.group("g", min_member=1), "g", min_count=2)
    else:
        native(world, "g", min_count=2).group("g", min_member=1)
    assert len(binds_of(world.decide())) == 1
    world.delete(kinds.PODGROUP, "ns/g")
    assert binds_of(world.decide()) == {}
    assert world.job("g").uid == "native-g"
    world.delete(kinds.NATIVEPODGROUP, "ns/g")
    assert not world.job("g").has_group


def test_a_native_podgroup_that_goes_takes_none_of_volcanos_with_it():
    world = native(Cluster().node("n1").group("g"), "g", min_count=2)
    world.delete(kinds.NATIVEPODGROUP, "ns/g")
    assert world.pod("a", "g", cpu="1").job("g").uid == "uid-ns/g"
    assert binds_of(world.decide()) == {"a": "n1"}


def test_the_annotation_of_a_pod_comes_before_its_scheduling_group():
    world = native(Cluster().node("n1").group("volcano"), "g", min_count=1)
    member(world, "a", "g", metadata={"annotations": {"scheduling.k8s.io/group-name": "volcano"}})
    assert list(world.job("volcano").tasks) == ["uid-ns/a"]


def test_the_queue_is_that_of_the_annotation_else_of_the_namespace_else_the_default():
    world = native(Cluster(), "plain", min_count=1)
    native(world, "named", min_count=1, annotations={QUEUE: "own"})
    assert [world.job(name).queue for name in ("plain", "named")] == ["default", "own"]
    meta = {"name": "ns", "annotations": {QUEUE: "of-namespace"}}
    world.put(kinds.NAMESPACE, {"metadata": meta})
    assert [world.job(name).queue for name in ("plain", "named")] == ["of-namespace", "own"]
    world.delete(kinds.NAMESPACE, "ns")
    assert world.job("plain").queue == "default"


def test_the_priority_is_that_of_the_class():
    world = native(Cluster(), "g", min_count=1, priorityClassName="high")
    meta = {"name": "high", "uid": "c"}
    world.put(kinds.PRIORITYCLASS, {"metadata": meta, "value": 100})
    assert world.job("g").priority == 100


def test_a_gang_that_waits_says_so_in_the_condition_of_kubernetes():
    world = gang(Cluster().node("n1", cpu="1"), pods=2)
    found = shown(world, "g", world.decide())
    first = found["PodGroupInitiallyScheduled"]
    assert (first["status"], first["reason"]) == ("False", "Unschedulable")
    assert "needs 1 cpu" in first["message"] or "insufficient cpu" in first["message"]
    assert found["pumice.dev/Unschedulable"]["message"] == first["message"]
    assert found["pumice.dev/Phase"]["reason"] == "Inqueue"


def test_a_gang_that_is_placed_says_so_and_its_phase_follows():
    world = gang(Cluster().node("n1", cpu="2"), pods=2)
    found = shown(world, "g", world.decide())
    assert found["PodGroupInitiallyScheduled"]["status"] == "True"
    native(world, "g", min_count=2, conditions=found.values())
    for number in range(2):
        member(world, f"g-{number}", "g", node="n1")
    plan = world.decide()
    assert phase_in(plan, "g") == "Running"
    found |= shown(world, "g", plan)
    native(world, "g", min_count=2, conditions=found.values())
    assert world.decide().podgroups == ()


def test_a_status_that_the_object_shows_is_not_wanted_again():
    world = gang(Cluster().node("n1", cpu="1"), pods=2)
    found = shown(world, "g", world.decide())
    assert world.job("g").decided is not None
    native(world, "g", min_count=2, conditions=found.values())
    assert world.job("g").decided is None
    assert world.decide().podgroups == ()


def test_a_gang_that_was_placed_once_never_goes_back_to_not_scheduled():
    world = gang(Cluster().node("n1", cpu="2"), pods=2)
    found = shown(world, "g", world.decide())
    native(world, "g", min_count=2, conditions=found.values())
    member(world, "g-0", "g", node="n1")
    world.node("n1", cpu="1").delete(kinds.POD, "ns/g-1", "uid-ns/g-1")
    member(world, "g-2", "g")
    later = shown(world, "g", world.decide())
    assert later["pumice.dev/Unschedulable"]["status"] == "True"
    assert "PodGroupInitiallyScheduled" not in later


def test_what_another_scheduler_placed_counts_as_placed():
    done = {"type": "PodGroupInitiallyScheduled", "status": "True", "reason": "Scheduled"}
    world = native(Cluster().node("n1"), "g", min_count=2, conditions=[done])
    for number in range(2):
        member(world, f"g-{number}", "g", node="n1")
    found = shown(world, "g", world.decide())
    assert found["pumice.dev/Phase"]["reason"] == "Running"
    assert "PodGroupInitiallyScheduled" not in found


RACK = "topology.example.com/rack"
CONSTRAINT = {"topology": [{"key": RACK}]}


def racks(**cpus):
    """Return a cluster with one node per rack, or two where two amounts are given."""
    world = Cluster()
    for rack, amounts in cpus.items():
        for number, cpu in enumerate(amounts.split()):
            world.node(f"{rack}-{number}", cpu=cpu, labels={RACK: rack})
    return world


def test_a_gang_with_a_topology_key_is_placed_within_one_domain():
    world = gang(racks(a="1 1", b="3", c="2 2"), pods=4, schedulingConstraints=CONSTRAINT)
    assert set(binds_of(world.decide()).values()) == {"c-0", "c-1"}


def test_a_gang_that_fits_in_no_domain_waits_and_says_so():
    world = gang(racks(a="1 1", b="3").node("none", cpu="9"), pods=4)
    native(world, "g", min_count=4, schedulingConstraints=CONSTRAINT)
    plan = world.decide()
    assert binds_of(plan) == {}
    message = shown(world, "g", plan)["PodGroupInitiallyScheduled"]["message"]
    assert f"none of 2 domains of label {RACK} has room" in message


def test_a_gang_without_any_node_that_has_the_label_waits():
    world = gang(Cluster().node("n1"), pods=1, schedulingConstraints=CONSTRAINT)
    plan = world.decide()
    assert binds_of(plan) == {}
    assert RACK in shown(world, "g", plan)["PodGroupInitiallyScheduled"]["message"]


def test_later_pods_go_to_the_domain_of_the_first_ones():
    world = gang(racks(a="9", b="2 1"), pods=3, min_count=2, schedulingConstraints=CONSTRAINT)
    member(world, "g-0", "g", node="b-0"), member(world, "g-1", "g", node="b-0")
    assert binds_of(world.decide()) == {"g-2": "b-1"}


def test_best_effort_pods_of_a_gang_share_a_domain_too():
    world = native(racks(a="1", b="1"), "g", min_count=2, schedulingConstraints=CONSTRAINT)
    for number in range(4):
        member(world, f"g-{number}", "g", cpu="")
    assert len(set(binds_of(world.decide()).values())) == 1


def test_best_effort_pods_pass_a_domain_without_room():
    world = Cluster().node("a", labels={RACK: "a"}, unschedulable=True)
    native(world.node("b", labels={RACK: "b"}), "g", schedulingConstraints=CONSTRAINT)
    assert binds_of(member(world, "g-0", "g", cpu="").decide()) == {"g-0": "b"}


def test_a_gang_with_a_topology_key_that_failed_says_nothing_of_others():
    world = racks(a="1", b="1")
    for name in ("a", "b"):
        gang(world, name, pods=2, **({"schedulingConstraints": CONSTRAINT} if name == "a" else {}))
    assert set(binds_of(world.decide())) == {"b-0", "b-1"}
