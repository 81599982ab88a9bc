"""Statuses are written when their meaning changes, and only the fields that are ours."""

import msgspec
import pytest
from msgspec.structs import replace

from services.binder.adapters.statuses import NoPatch, StatusPatch, compare
from services.binder.intents.desired import (
    as_decided,
    changed_conditions,
    gate_patch,
    pod_patch,
    podgroup_patch,
    queue_patch,
    shard_patch,
)
from shared.api import keys
from shared.api.core import Pod, PodCondition, PodSchedulingGate, PodSpec
from shared.api.scheduling import (
    NodeShard,
    NodeShardSpec,
    NodeShardStatus,
    PodGroupCondition,
    Queue,
    QueueStatus,
)
from shared.contracts.messages import (
    DesiredCondition,
    DesiredNodeShard,
    DesiredPod,
    DesiredPodGroup,
    DesiredQueue,
    DesiredUngated,
)
from tests.support.structs import group, pod

NOW, BEFORE = "2026-02-02T00:00:00Z", "2026-01-01T00:00:00Z"
UNSCHEDULABLE = DesiredCondition(
    type="Unschedulable", status="True", reason="NotEnoughResources", message="2/3 tasks"
)


def wanted(phase: str, *conditions: DesiredCondition, **counts: int) -> DesiredPodGroup:
    return DesiredPodGroup(
        key="ns/g", uid="u", phase=phase, conditions=conditions, cycle=9, **counts
    )


def written(
    condition: DesiredCondition, *, at: str = BEFORE, cycle: str = "1"
) -> PodGroupCondition:
    return PodGroupCondition(
        type=condition.type,
        status=condition.status,
        reason=condition.reason,
        message=condition.message,
        last_transition_time=at,
        transition_id=cycle,
    )


@pytest.mark.parametrize(
    ("present", "desired"),
    [
        (group(phase="Running", status={"running": 3}), wanted("Running", running=3)),
        (
            group(phase="Pending", status={"conditions": [written(UNSCHEDULABLE)]}),
            wanted("Pending", UNSCHEDULABLE),
        ),
    ],
    ids=["phase and counts", "condition with another time and id"],
)
def test_an_equal_status_is_not_written_ca09(present, desired) -> None:
    assert podgroup_patch(desired, present, now=NOW) == {}


def test_only_what_differs_is_written_and_zero_is_written_too() -> None:
    present = group(phase="Running", status={"running": 3, "failed": 1})
    assert podgroup_patch(wanted("Running", running=2), present, now=NOW) == {
        "running": 2,
        "failed": 0,
    }
    assert podgroup_patch(wanted("Pending"), group(), now=NOW) == {"phase": "Pending"}


def test_a_new_condition_gets_time_and_cycle_and_an_old_one_keeps_its_own_d01() -> None:
    scheduled = DesiredCondition(type="Scheduled", status="True", reason="tasks in gang are ready")
    present = group(phase="Pending", status={"conditions": [written(UNSCHEDULABLE)]})
    patch = podgroup_patch(wanted("Pending", UNSCHEDULABLE, scheduled), present, now=NOW)
    kept, new = patch["conditions"]
    assert (kept["lastTransitionTime"], kept["transitionID"]) == (BEFORE, "1")
    assert (new["lastTransitionTime"], new["transitionID"]) == (NOW, "9")
    assert new["reason"] == "tasks in gang are ready"


def test_a_condition_that_is_not_wanted_any_more_goes() -> None:
    present = group(phase="Running", status={"conditions": [written(UNSCHEDULABLE)]})
    assert podgroup_patch(wanted("Running"), present, now=NOW) == {"conditions": []}


def test_only_a_condition_that_says_something_new_is_worth_an_event_d02() -> None:
    other = DesiredCondition(type="Unschedulable", status="True", reason="x", message="3/3 tasks")
    assert changed_conditions([UNSCHEDULABLE], [written(UNSCHEDULABLE)]) == []
    assert changed_conditions([other], [written(UNSCHEDULABLE)]) == [other]


POD_REASON = DesiredCondition(
    type="PodScheduled", status="False", reason="Unschedulable", message="0/3 nodes fit"
)


def pod_wanted(*conditions: DesiredCondition) -> DesiredPod:
    return DesiredPod(key="ns/p", uid="u", conditions=conditions)


def test_why_a_pod_is_not_scheduled_is_written_once_d02() -> None:
    patch = pod_patch(pod_wanted(POD_REASON), pod(), now=NOW)
    (condition,) = patch["conditions"]
    assert condition["lastTransitionTime"] == NOW
    present = PodCondition(
        type="PodScheduled", status="False", reason="Unschedulable", message="0/3 nodes fit"
    )
    assert pod_patch(pod_wanted(POD_REASON), pod(status={"conditions": [present]}), now=NOW) == {}


def test_another_message_keeps_the_time_of_the_transition() -> None:
    present = PodCondition(
        type="PodScheduled", status="False", message="other", last_transition_time=BEFORE
    )
    patch = pod_patch(pod_wanted(POD_REASON), pod(status={"conditions": [present]}), now=NOW)
    assert patch["conditions"][0]["lastTransitionTime"] == BEFORE


@pytest.mark.parametrize(
    "present", [pod(node="n1"), pod(metadata={"deletionTimestamp": NOW})], ids=["bound", "deleting"]
)
def test_a_pod_that_was_bound_or_deleted_since_is_left_alone(present) -> None:
    assert pod_patch(pod_wanted(POD_REASON), present, now=NOW) == {}


def test_a_queue_gets_its_allocated_resources_and_loses_those_nobody_holds_ss03() -> None:
    present = Queue(status=QueueStatus(allocated={"cpu": 4, "gpu": "1"}))
    same = DesiredQueue(key="q", uid="u", allocated={"cpu": "4", "gpu": "1"})
    assert queue_patch(same, present) == {}
    less = DesiredQueue(key="q", uid="u", allocated={"cpu": "2"})
    assert queue_patch(less, present) == {"allocated": {"cpu": "2", "gpu": None}}
    more_wait = DesiredQueue(key="q", uid="u", allocated={"cpu": "4", "gpu": "1"}, pending=2)
    assert queue_patch(more_wait, present) == {"pending": 2}


def test_a_wish_is_written_whole_when_its_object_is_as_it_was_decided_on() -> None:
    old = msgspec.structs.replace(UNSCHEDULABLE, transition_id="3", last_transition_time=BEFORE)
    fresh = DesiredCondition(type="Scheduled", status="True", reason="tasks in gang are ready")
    patch, news = as_decided(wanted("Inqueue", old, fresh, running=2), now=NOW)
    kept, new = patch.pop("conditions")
    assert patch == {"phase": "Inqueue", "running": 2, "succeeded": None, "failed": None}
    assert (kept["lastTransitionTime"], kept["transitionID"]) == (BEFORE, "3")
    assert (new["lastTransitionTime"], new["transitionID"]) == (NOW, "9")
    assert news == [fresh]


def test_a_resource_that_no_job_holds_any_more_is_removed_without_a_look() -> None:
    wish = DesiredQueue(key="q", uid="u", allocated={"cpu": "1"}, released=("nvidia.com/gpu",))
    left = {"cpu": "1", "nvidia.com/gpu": None}
    assert as_decided(wish, now=NOW) == ({"allocated": left, "pending": 0}, [])


def test_why_a_pod_waits_is_news_and_keeps_the_time_since_when_it_does() -> None:
    waits = DesiredCondition(type="PodScheduled", status="False", last_transition_time=BEFORE)
    patch, news = as_decided(DesiredPod(key="ns/p", uid="u", conditions=(waits,)), now=NOW)
    assert [c["lastTransitionTime"] for c in patch["conditions"]] == [BEFORE]
    assert news == [waits]


def test_the_gate_of_a_queue_is_lifted_and_no_other_one_ca14() -> None:
    gates = (PodSchedulingGate(name="a"), PodSchedulingGate(name=keys.QUEUE_GATE))
    lifted = {"schedulingGates": [{"name": keys.QUEUE_GATE, "$patch": "delete"}]}
    assert gate_patch(Pod(spec=PodSpec(scheduling_gates=gates))) == lifted
    assert gate_patch(Pod(spec=PodSpec(scheduling_gates=gates[:1]))) == {}
    assert as_decided(DesiredUngated(key="ns/p", uid="u"), now=NOW) == (lifted, [])


def node_shard(desired: str, in_use: str = "", to_add: str = "", to_remove: str = "") -> NodeShard:
    return NodeShard(
        spec=NodeShardSpec(nodes_desired=tuple(desired.split())),
        status=NodeShardStatus(
            nodes_in_use=tuple(in_use.split()),
            nodes_to_add=tuple(to_add.split()),
            nodes_to_remove=tuple(to_remove.split()),
        ),
    )


def test_a_node_is_newly_in_use_only_at_a_version_that_desires_it_ca12() -> None:
    wish = DesiredNodeShard(key="s", uid="u", in_use=("n1", "n2", "n3"))
    assert shard_patch(wish, node_shard("n1", "n3"), now=NOW) == {
        "nodesInUse": ["n1", "n3"],
        "nodesToAdd": [],
        "nodesToRemove": ["n3"],
        "lastUpdateTime": NOW,
    }
    assert shard_patch(wish, node_shard("n1", "n3 n1", to_remove="n3"), now=NOW) == {}


def test_the_status_of_a_shard_is_written_whole_where_its_version_is_known_ca12() -> None:
    wish = DesiredNodeShard(key="s", uid="u", in_use=("n1",), to_add=("n2",), rv="7")
    assert as_decided(wish, now=NOW) == (
        {"nodesInUse": ["n1"], "nodesToAdd": ["n2"], "nodesToRemove": [], "lastUpdateTime": NOW},
        [],
    )


@pytest.mark.parametrize(
    ("leadership_term", "shown", "writes"),
    [("t2", "t1", True), ("t2", "t2", False), ("", "t1", True), (None, "t1", False)],
)
def test_a_shard_that_is_as_wanted_is_written_for_its_term_alone_ca12(
    leadership_term: str | None, shown: str, writes: bool
) -> None:
    present = node_shard("n1", "n1")
    meta = replace(present.metadata, annotations={keys.LEADERSHIP_TERM: shown})
    wish = DesiredNodeShard(key="s", uid="u", in_use=("n1",))
    wish = wish if leadership_term is None else replace(wish, leadership_term=leadership_term)
    found = compare(wish, replace(present, metadata=meta), now=NOW)
    if writes:
        assert isinstance(found, StatusPatch)
        assert found.status == {}
    else:
        assert found is NoPatch.EQUAL
