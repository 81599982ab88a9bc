"""The controller gives pods the PodGroup of the workload above their controllers, and keeps it.

ConfigMaps stand for custom resources: a row of the table makes them workloads.
"""

from typing import Any

import pytest

from shared.api import keys, kinds
from tests.unit.controller.reconcilers import NAMESPACE, Died, Process, Stage

ROWS = """
rows:
- group: ""
  kind: ConfigMap
  label: role
  roles:
  - {name: head}
  - {name: worker, count: "object.metadata.annotations['workers']"}
"""
GROUPS = f"{NAMESPACE}/groups"


def stage_of(*, rows: str = ROWS) -> Stage:
    """Return a stage with the table, a workload `top`, and two parts that it owns."""
    stage = Stage()
    stage.ask(
        "POST", kinds.CONFIGMAP, body={"metadata": {"name": "groups"}, "data": {"rows.yaml": rows}}
    )
    meta: dict[str, Any] = {"name": "top", "annotations": {"workers": "2"}}
    top = stage.ask("POST", kinds.CONFIGMAP, body={"metadata": meta})
    for name in ("part-a", "part-b"):
        owned = {"metadata": {"name": name, "ownerReferences": [reference(top)]}}
        stage.ask("POST", kinds.CONFIGMAP, body=owned)
    return stage


def reference(owner: dict[str, Any]) -> dict[str, Any]:
    meta = owner["metadata"]
    about = {"apiVersion": "v1", "kind": "ConfigMap", "controller": True}
    return {**about, "name": meta["name"], "uid": meta["uid"]}


def add_pod(stage: Stage, name: str, owner: str, role: str, **annotations: str) -> None:
    ref = reference(stage.ask("GET", kinds.CONFIGMAP, owner))
    meta = {"name": name, "labels": {"role": role}, "ownerReferences": [ref]}
    if annotations:
        meta["annotations"] = annotations
    requests = {"requests": {"cpu": "1"}}
    spec = {
        "schedulerName": "volcano",
        "containers": [{"name": "c", "image": "i", "resources": requests}],
    }
    stage.ask("POST", kinds.POD, body={"metadata": meta, "spec": spec})


async def settled(process: Process, *, seconds: int = 8) -> None:
    async with process.running("bare-pods"):
        for _ in range(seconds):
            process.relist()
            await process.stage.clock.advance(1.0)


def group_of(stage: Stage) -> dict[str, Any]:
    (group,) = stage.items(kinds.PODGROUP)
    return group


def named(stage: Stage) -> dict[str, tuple[str, str]]:
    notes = {
        pod["metadata"]["name"]: pod["metadata"].get("annotations", {})
        for pod in stage.items(kinds.POD)
    }
    return {
        name: (note.get(keys.GROUP_NAME, ""), note.get(keys.TASK_SPEC, ""))
        for name, note in notes.items()
    }


@pytest.mark.parametrize("dies_at", [0, 1, 2, 3, 4])
async def test_pods_of_several_owners_below_one_workload_are_one_gang(dies_at: int) -> None:
    stage = stage_of()
    add_pod(stage, "h", "part-a", "head")
    add_pod(stage, "w0", "part-b", "worker")
    add_pod(stage, "w1", "part-b", "worker")
    if dies_at:
        with pytest.raises(BaseExceptionGroup) as caught:
            await settled(Process(stage, dies_at=dies_at, workload_groups=GROUPS))
        assert caught.group_contains(Died)

    await settled(Process(stage, workload_groups=GROUPS))

    group, top = group_of(stage), stage.ask("GET", kinds.CONFIGMAP, "top")
    assert group["metadata"]["ownerReferences"] == [reference(top)]
    assert group["spec"]["minMember"] == 3
    assert group["spec"]["minTaskMember"] == {"head": 1, "worker": 2}
    assert group["spec"]["minResources"]["cpu"] == "3"
    name = group["metadata"]["name"]
    assert named(stage) == {"h": (name, "head"), "w0": (name, "worker"), "w1": (name, "worker")}
    before = stage.writes.total()
    await settled(Process(stage, workload_groups=GROUPS))
    assert stage.writes.total() == before, "what is there stays"


async def test_the_minimum_follows_the_workload_within_a_minute() -> None:
    stage = stage_of()
    add_pod(stage, "w0", "part-a", "worker")
    process = Process(stage, workload_groups=GROUPS)
    await settled(process)
    stage.ask("PATCH", kinds.CONFIGMAP, "top", {"metadata": {"annotations": {"workers": "5"}}})

    await settled(process, seconds=70)

    assert group_of(stage)["spec"]["minTaskMember"]["worker"] == 5


async def test_a_group_that_was_deleted_is_made_again() -> None:
    stage = stage_of()
    add_pod(stage, "w0", "part-a", "worker")
    process = Process(stage, workload_groups=GROUPS)
    await settled(process)
    stage.ask("DELETE", kinds.PODGROUP, group_of(stage)["metadata"]["name"])

    await settled(process)

    assert named(stage)["w0"][0] == group_of(stage)["metadata"]["name"]


async def test_without_the_flag_each_controller_has_a_group_of_its_own() -> None:
    stage = stage_of()
    add_pod(stage, "a", "part-a", "worker")
    add_pod(stage, "b", "part-b", "worker")

    await settled(Process(stage))

    assert len(stage.items(kinds.PODGROUP)) == 2


async def test_a_table_that_cannot_be_used_leaves_the_default_one_in_force() -> None:
    stage = stage_of(rows="rows: [{group: '', kind: ConfigMap, minimum: [nothing]}]")
    add_pod(stage, "a", "part-a", "worker")
    process = Process(stage, workload_groups=GROUPS)

    async with process.running("events"):
        await settled(process)

    own = stage.ask("GET", kinds.CONFIGMAP, "part-a")["metadata"]["uid"]
    assert named(stage)["a"][0] == f"podgroup-{own}"
    [event] = [e for e in stage.items(kinds.EVENT) if e["reason"] == "InvalidConfig"]
    assert "rows[0].minimum" in event["message"]


async def test_a_pod_that_claims_the_group_of_another_changes_nothing_of_it() -> None:
    """Annotations of a pod are its author's: a mark does not make a group the workload's."""
    stage = stage_of()
    stage.create(kinds.PODGROUP, "victim", {"minMember": 7})
    forged = {keys.GROUP_NAME: "victim", keys.WORKLOAD_GROUP: "true"}
    add_pod(stage, "a", "part-a", "worker", **forged)
    before = stage.ask("GET", kinds.PODGROUP, "victim")

    for process in (Process(stage), Process(stage, workload_groups=GROUPS)):
        await settled(process)

    assert stage.ask("GET", kinds.PODGROUP, "victim") == before


async def test_an_owner_of_another_uid_is_no_workload() -> None:
    stage = stage_of()
    add_pod(stage, "a", "part-a", "worker")
    real = reference(stage.ask("GET", kinds.CONFIGMAP, "groups")) | {"controller": False}
    forged = {**reference(stage.ask("GET", kinds.CONFIGMAP, "top")), "uid": "another"}
    owned = {"metadata": {"ownerReferences": [forged, real]}}
    stage.ask("PATCH", kinds.CONFIGMAP, "part-a", owned)

    await settled(Process(stage, workload_groups=GROUPS))

    assert group_of(stage)["metadata"]["ownerReferences"][0]["name"] == "part-a"
