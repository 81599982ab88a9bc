"""Groups of bare pods: what they are made of and when they change (P01 to P05)."""

from typing import Any

import msgspec
import pytest

from services.controller.adapters.informers import Informers
from services.controller.podgroup.groups import GroupFacts, change_for, group_for, is_bare
from shared.api import keys, kinds
from shared.api.core import Pod, PodSchedulingGroup, PodSpec
from shared.api.kinds import Kind
from shared.api.scheduling import PodGroup
from shared.api.workloads import Workload
from tests.support import structs
from tests.unit.controller.reconcilers import Died, Process, Stage

OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "o"}
KEY = "ns/podgroup-o"


def bare(name: str = "bare", *, cpu: str = "500m", rv: int = 1, **meta: Any) -> Pod:
    return structs.pod(name, uid=f"u-{name}", version=rv, cpu=cpu, metadata=meta)


def owned(name: str, **kwargs: Any) -> Pod:
    return bare(name, ownerReferences=[{**OWNER, "controller": True}], **kwargs)


def workload(replicas: int | None = 2, *, rv: int = 1, **annotations: str) -> Workload:
    meta = {
        "name": "rs", "namespace": "ns", "uid": "o", "resourceVersion": str(rv),
        "annotations": annotations,
    }  # fmt: skip
    return msgspec.convert({"metadata": meta, "spec": {"replicas": replicas}}, Workload)


def made(body: dict[str, Any]) -> PodGroup:
    body["metadata"] |= {"uid": "g", "resourceVersion": "1"}
    return msgspec.convert(body, PodGroup)


def test_a_pod_of_ours_is_bare_unless_it_names_somebody_elses_group_p01() -> None:
    assert is_bare(bare(), ["volcano"])
    assert not is_bare(bare(), ["other"])
    assert not is_bare(bare(annotations={keys.GROUP_NAME: "g"}), ["volcano"])
    assert is_bare(bare(annotations={keys.GROUP_NAME: "podgroup-u-bare"}), ["volcano"])


def test_a_pod_in_a_native_podgroup_gets_none_of_volcanos() -> None:
    pod = msgspec.structs.replace(
        bare(), spec=PodSpec(scheduler_name="volcano", scheduling_group=PodSchedulingGroup())
    )
    assert not is_bare(pod, ["volcano"])


def test_a_bare_pod_gets_a_group_that_it_owns_p01_p02() -> None:
    body = group_for(bare(annotations={keys.SCHEDULING_QUEUE_NAME: "q"}), {})
    assert body["metadata"]["name"] == "podgroup-u-bare"
    assert body["metadata"]["ownerReferences"][0]["kind"] == "Pod"
    assert body["spec"] == {
        "minMember": 1,
        "queue": "q",
        "minResources": {"count/pods": "1", "cpu": "500m", "pods": "1", "requests.cpu": "500m"},
    }
    assert body["status"] == {"phase": "Pending"}


def test_pods_of_one_owner_share_a_group_with_its_minimum_p02_p03() -> None:
    said = {keys.GROUP_MIN_MEMBER: "2", keys.PREEMPTABLE: "true", "other": "x"}
    body = group_for(owned("a"), said)
    assert body["metadata"]["name"] == "podgroup-o"
    assert body["metadata"]["ownerReferences"] == [{**OWNER, "controller": True}]
    assert body["spec"]["minMember"] == 2
    assert body["spec"]["minResources"]["cpu"] == "1"
    assert body["metadata"]["annotations"] == {keys.PREEMPTABLE: "true"}


def test_a_group_has_its_pods_references_or_the_pod_itself_p05() -> None:
    blocking = {**OWNER, "controller": True, "blockOwnerDeletion": True}
    second = {**OWNER, "name": "second", "uid": "s"}
    of_pod = bare(ownerReferences=[second, blocking])
    assert group_for(of_pod, {})["metadata"]["ownerReferences"] == [second, blocking]
    uncontrolled = bare(ownerReferences=[second])
    for pod in (bare(), uncontrolled):
        (owner,) = group_for(pod, {})["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["controller"], owner["blockOwnerDeletion"]) == (
            "Pod",
            True,
            True,
        )


def test_annotations_of_all_owners_are_merged_in_the_order_of_the_references_p03() -> None:
    """The last reference wins, whether or not it is the controller's."""
    held = Informers(scheduler_names=["volcano"])
    second = {**OWNER, "name": "second", "uid": "s"}
    pod = bare(ownerReferences=[{**OWNER, "controller": True}, second])
    held.written(kinds.POD, msgspec.json.encode(pod))
    said = {keys.PREEMPTABLE: "true", keys.COOLDOWN_TIME: "1m"}
    first = workload(**said)
    other = workload(**{keys.PREEMPTABLE: "false", keys.GROUP_MIN_MEMBER: "2"})
    other = msgspec.structs.replace(
        other, metadata=msgspec.structs.replace(other.metadata, name="second", uid="s")
    )
    held.written(kinds.REPLICASET, msgspec.json.encode(first))
    touched = held.written(kinds.REPLICASET, msgspec.json.encode(other))
    assert KEY in touched.of(kinds.PODGROUP)
    body = change_for(held.group_facts(KEY)).create
    assert body is not None
    assert body["spec"]["minMember"] == 2
    annotations = body["metadata"]["annotations"]
    assert annotations == {keys.PREEMPTABLE: "false", keys.COOLDOWN_TIME: "1m"}


def test_an_owner_is_not_read_when_nothing_is_to_be_inherited_p02_p03() -> None:
    said = {keys.GROUP_MIN_MEMBER: "2", keys.PREEMPTABLE: "true"}
    facts = GroupFacts(pods=(owned("a"),), owners=(workload(**said),))
    wanted = change_for(facts, inherit=False).create
    assert wanted is not None
    assert wanted["spec"]["minMember"] == 1
    assert wanted["metadata"]["annotations"] == {}


@pytest.mark.parametrize(
    ("said", "carried"),
    [
        ({keys.JDB_MAX_UNAVAILABLE: "1"}, {keys.JDB_MAX_UNAVAILABLE: "1"}),
        (
            {keys.JDB_MAX_UNAVAILABLE: "1", keys.JDB_MIN_AVAILABLE: "50%"},
            {keys.JDB_MIN_AVAILABLE: "50%"},
        ),
    ],
    ids=["one", "both"],
)
def test_of_two_budgets_the_minimum_counts_p03(
    said: dict[str, str], carried: dict[str, str]
) -> None:
    assert group_for(bare(annotations=said), {})["metadata"]["annotations"] == carried


def test_an_owner_of_a_foreign_kind_speaks_through_its_pods() -> None:
    said = {keys.GROUP_MIN_MEMBER: "3", keys.SCHEDULING_QUEUE_NAME: "gold"}
    body = group_for(owned("a", annotations=said), {})
    assert (body["spec"]["minMember"], body["spec"]["queue"]) == (3, "gold")


def test_a_pods_annotation_wins_over_its_owners_p03() -> None:
    pod = owned("a", annotations={keys.PREEMPTABLE: "false", keys.SCHEDULING_QUEUE_NAME: "own"})
    body = group_for(pod, {keys.PREEMPTABLE: "true", keys.SCHEDULING_QUEUE_NAME: "theirs"})
    assert body["metadata"]["annotations"] == {keys.PREEMPTABLE: "false"}
    assert body["spec"]["queue"] == "own"


@pytest.mark.parametrize(
    ("mode", "tier", "topology"),
    [
        ("hard", "2", {"mode": "hard", "highestTierAllowed": 2}),
        ("Soft", "many", {"mode": "soft"}),
        ("firm", "2", {"mode": "hard", "highestTierAllowed": 2}),
        (None, "2", {"mode": "hard", "highestTierAllowed": 2}),
        ("soft", None, {"mode": "soft"}),
        ("", "", {"mode": "hard"}),
        (None, None, None),
    ],
)
def test_a_network_topology_is_read_of_annotations_p03(
    mode: str | None, tier: str | None, topology: dict[str, Any] | None
) -> None:
    both = {keys.NETWORK_TOPOLOGY_MODE: mode, keys.NETWORK_TOPOLOGY_HIGHEST_TIER: tier}
    said = {key: value for key, value in both.items() if value is not None}
    assert group_for(owned("a"), said)["spec"].get("networkTopology") == topology


def test_the_group_is_made_then_named_on_its_pods_then_left_alone() -> None:
    pods = (owned("a"), owned("b", annotations={keys.GROUP_NAME: "podgroup-o"}))
    first = change_for(GroupFacts(pods=pods, owners=(workload(),)))
    assert first.create is not None
    assert [pod.metadata.name for pod, _ in first.annotate] == ["a"]
    then = change_for(GroupFacts(pods=pods[1:], owners=(workload(),), group=made(first.create)))
    assert (then.create, then.patch, then.annotate, then.delete) == (None, {}, (), False)


def test_a_group_follows_its_owners_annotations_and_its_newest_pod_p04_p05() -> None:
    old = owned("old", creationTimestamp="2026-01-01T00:00:00Z")
    new = owned("a", cpu="2", creationTimestamp="2026-01-02T00:00:00Z")
    first = change_for(GroupFacts(pods=(old,), owners=(workload(),)))
    assert first.create is not None
    group = made(first.create)
    said = {keys.GROUP_MIN_MEMBER: "2", keys.COOLDOWN_TIME: "5m"}
    changed = change_for(GroupFacts(pods=(new, old), owners=(workload(**said),), group=group))
    assert changed.patch["metadata"] == {"annotations": {keys.COOLDOWN_TIME: "5m"}}
    assert changed.patch["spec"]["minMember"] == 2
    assert changed.patch["spec"]["minResources"]["cpu"] == "4"


def test_the_minimum_follows_a_pod_that_asks_for_less_than_the_one_before_p04() -> None:
    """Reported as volcano#4516: the group of a StatefulSet went on asking for the old amount."""
    old = group_for(owned("db-0", cpu="10"), {})
    smaller = owned("db-0", cpu="1", creationTimestamp="2026-01-02T00:00:00Z")
    patch = change_for(GroupFacts(pods=(smaller,), group=made(old))).patch
    assert patch["spec"]["minResources"]["cpu"] == "1"


def test_a_group_follows_what_its_newest_pod_says_and_keeps_what_it_does_not_say_p05() -> None:
    old = owned("old", annotations={keys.SCHEDULING_QUEUE_NAME: "gold"})
    first = change_for(GroupFacts(pods=(old,), owners=(workload(),)))
    assert first.create is not None
    first.create["spec"]["minResources"]["memory"] = "1Gi"
    group = made(first.create)

    def patch(**annotations: str) -> dict[str, Any]:
        new = owned("new", annotations=annotations, creationTimestamp="2026-01-02T00:00:00Z")
        facts = GroupFacts(pods=(old, new), owners=(workload(),), group=group)
        found: dict[str, Any] = change_for(facts).patch
        return found

    gone = {"minResources": {"memory": None}}
    assert patch() == {"spec": gone}, "the queue stays, a resource that is not asked for goes"
    silver = {keys.SCHEDULING_QUEUE_NAME: "silver", keys.NETWORK_TOPOLOGY_MODE: "soft"}
    assert patch(**silver) == {
        "spec": {**gone, "networkTopology": {"mode": "soft"}, "queue": "silver"}
    }


@pytest.mark.parametrize("mode", ["hard", "soft"])
def test_a_group_that_is_as_it_should_be_is_left_alone_p05(mode: str) -> None:
    said = {
        keys.NETWORK_TOPOLOGY_MODE: mode,
        keys.SCHEDULING_QUEUE_NAME: "default",
        keys.PREEMPTABLE: "true",
    }
    pod = owned("a", annotations=said)
    facts = GroupFacts(pods=(pod,), owners=(workload(2),))
    first = change_for(facts)
    assert first.create is not None
    group = made(first.create)
    moved = msgspec.structs.replace(group.spec, queue="of-the-namespace")
    group = msgspec.structs.replace(group, spec=moved)
    assert change_for(msgspec.structs.replace(facts, group=group)).patch == {}


def test_the_group_of_an_owner_scaled_to_nothing_goes_p04() -> None:
    first = change_for(GroupFacts(pods=(owned("a"),), owners=(workload(),)))
    assert first.create is not None
    group = made(first.create)
    assert change_for(GroupFacts(pods=(), owners=(workload(0),), group=group)).delete
    assert not change_for(GroupFacts(pods=(), owners=(workload(1),), group=group)).delete
    assert not change_for(GroupFacts(pods=(), owners=(workload(None),), group=group)).delete
    assert not change_for(GroupFacts(pods=(owned("a"),), owners=(workload(0),), group=group)).delete


def test_what_is_known_of_a_group_follows_the_facts() -> None:
    held = Informers(scheduler_names=["volcano"])

    def touched(kind: Kind, found: Pod | Workload) -> list[str]:
        return list(held.written(kind, msgspec.json.encode(found)).of(kinds.PODGROUP))

    assert touched(kinds.POD, owned("a")) == [KEY]
    assert touched(kinds.POD, owned("b")) == [KEY]
    assert touched(kinds.POD, bare("c", annotations={keys.GROUP_NAME: "mine"})) == []
    assert touched(kinds.REPLICASET, workload(rv=5)) == [KEY]
    assert touched(kinds.REPLICASET, workload(rv=4, late="x")) == [], "facts that lag"
    facts = held.group_facts(KEY)
    assert [pod.metadata.name for pod in facts.pods] == ["a", "b"]
    (owner,) = facts.owners
    assert owner.metadata.annotations == {}
    ending = owned("a", rv=2, deletionTimestamp="2026-01-01T00:00:00Z")
    assert touched(kinds.POD, ending) == [KEY]
    assert not held.deleted(kinds.POD, "ns/b", "another uid")
    assert list(held.deleted(kinds.POD, "ns/b", "u-b").of(kinds.PODGROUP)) == [KEY]
    assert held.group_facts(KEY).pods == ()
    assert list(held.bare_groups()) == [KEY]
    held.deleted(kinds.REPLICASET, "ns/rs", "o")
    assert list(held.bare_groups()) == []


def test_a_late_fact_does_not_take_a_groups_name_off_a_pod() -> None:
    held = Informers(scheduler_names=["volcano"])
    named = owned("a", rv=2, annotations={keys.GROUP_NAME: "podgroup-o"})
    held.written(kinds.POD, msgspec.json.encode(named))
    assert not held.written(kinds.POD, msgspec.json.encode(owned("a", rv=1)))
    (pod,) = held.group_facts(KEY).pods
    assert keys.GROUP_NAME in pod.metadata.annotations


@pytest.mark.parametrize("change", ["a queue", "a quota"])
async def test_a_group_that_is_refused_is_told_and_asked_for_again_when_it_may_be_taken_p01(
    change: str,
) -> None:
    stage = Stage()
    stage.create(kinds.RESOURCEQUOTA, "team", {"hard": {"count/podgroups.x": "0"}})
    spec = {"schedulerName": "volcano", "containers": [{"name": "c", "image": "i"}]}
    for name in ("p", "q"):
        stage.create(kinds.POD, name, spec)
    process = Process(stage)
    process.refused = {"POST podgroups"}

    async def wait(seconds: int) -> set[str]:
        """Let time pass; return the groups that pods name."""
        for _ in range(seconds):
            process.relist()
            await stage.clock.advance(1.0)
        notes = [pod["metadata"].get("annotations", {}) for pod in stage.items(kinds.POD)]
        return {note[keys.GROUP_NAME] for note in notes if keys.GROUP_NAME in note}

    async with process.running("bare-pods"), process.running("events"):
        assert await wait(3) == set()
        told = {(e["involvedObject"]["name"], e["reason"]) for e in stage.items(kinds.EVENT)}
        assert told == {("p", "PodGroupError"), ("q", "PodGroupError")}
        process.refused.clear()
        assert await wait(3) == set(), "nothing has changed"
        if change == "a queue":
            stage.create(kinds.QUEUE, "late", {})
        else:
            stage.ask("DELETE", kinds.RESOURCEQUOTA, "team")
        named = await wait(7)
        assert named == {group["metadata"]["name"] for group in stage.items(kinds.PODGROUP)}
        assert len(named) == 2
        before = stage.writes.total()
        await wait(70)
        assert stage.writes.total() == before


@pytest.mark.parametrize("dies_at", [1, 2, 3])
async def test_the_group_of_two_pods_is_made_and_named_whenever_a_process_dies_p01(
    dies_at: int,
) -> None:
    """A ConfigMap stands for the object of somebody's own kind that owns the pods."""
    stage = Stage()
    made = stage.ask("POST", kinds.CONFIGMAP, body={"metadata": {"name": "mine"}})
    uid = made["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "mine", "uid": uid}
    spec = {"schedulerName": "volcano", "containers": [{"name": "c", "image": "i"}]}
    for name in ("p", "q"):
        stage.create(kinds.POD, name, spec)
        own = {"metadata": {"ownerReferences": [{**owner, "controller": True}]}}
        stage.ask("PATCH", kinds.POD, name, own)
    dying = Process(stage, dies_at=dies_at)
    with pytest.raises(BaseExceptionGroup) as caught:
        await _settled(dying)
    assert caught.group_contains(Died)
    await _settled(Process(stage))
    (group,) = stage.items(kinds.PODGROUP)
    assert group["metadata"]["name"] == f"podgroup-{uid}"
    assert group["status"] == {"phase": "Pending"}, "it has no subresource of a status"
    for pod in stage.items(kinds.POD):
        assert pod["metadata"]["annotations"][keys.GROUP_NAME] == f"podgroup-{uid}"
    assert stage.writes == {"POST podgroups": 1, "PATCH pods": 2}


async def _settled(process: Process) -> None:
    """Let the controller of bare pods work for some seconds."""
    async with process.running("bare-pods"):
        for _ in range(3):
            process.relist()
            await process.stage.clock.advance(1.0)
