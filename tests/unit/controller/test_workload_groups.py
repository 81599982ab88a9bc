"""PodGroups of workloads: the table of kinds, and what its rows derive."""

from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from services.controller.config_text import BadConfigError
from services.controller.podgroup import rows
from services.controller.podgroup.workloads import (
    PODS_MAX,
    GroupedWorkload,
    body_of,
    groups_of,
    minima,
)
from shared.api import keys
from shared.api.base import Json
from shared.api.core import Pod
from shared.api.meta import ObjectMeta
from tests.support import structs
from tests.support.manifests import OVERLAYS

RAY = "ray.io/group"
JOBSET = "jobset.sigs.k8s.io/replicatedjob-name"


def workload(kind: str, spec: Any, *, group: str = "", **annotations: str) -> GroupedWorkload:
    """Return a workload of a default row."""
    [row] = [r for r in rows.DEFAULT.values() if r.kind == kind and group in ("", r.group)]
    return GroupedWorkload(
        row=row,
        api_version=f"{row.group}/v1",
        metadata=ObjectMeta(name="train", namespace="ns", uid="w-1", annotations=annotations),
        content={"spec": spec, "metadata": {"annotations": annotations}},
    )


def pod(name: str, *, cpu: str = "1", **labels: str) -> Pod:
    return structs.pod(name, uid=f"u-{name}", version=1, cpu=cpu, metadata={"labels": labels})


def spec_of(found: GroupedWorkload, *pods: Pod) -> Json:
    [group] = groups_of(found, pods or (pod("p"),))
    spec: Json = body_of(found, group)["spec"]
    return spec


WORKERS = [
    {"groupName": "cpu", "replicas": 3, "minReplicas": 1},
    {"groupName": "gpu", "replicas": 2, "numOfHosts": 4, "minReplicas": 2},
    {"groupName": "off", "replicas": 9, "suspend": True},
]


@pytest.mark.parametrize(
    ("kind", "spec", "expected"),
    [
        ("RayCluster", {"workerGroupSpecs": WORKERS}, {"headgroup": 1, "cpu": 3, "gpu": 8}),
        (
            "RayCluster",
            {"workerGroupSpecs": WORKERS, "enableInTreeAutoscaling": True},
            {"headgroup": 1, "cpu": 1, "gpu": 8},
        ),
        ("RayCluster", {}, {"headgroup": 1}),
        (
            "PyTorchJob",
            {"pytorchReplicaSpecs": {"Master": {}, "Worker": {"replicas": 3}}},
            {"master": 1, "worker": 3},
        ),
        (
            "PyTorchJob",
            {
                "pytorchReplicaSpecs": {"Worker": {"replicas": 8}},
                "elasticPolicy": {"minReplicas": 2},
            },
            {"worker": 2},
        ),
        (
            "MPIJob",
            {"mpiReplicaSpecs": {"Launcher": {}, "Worker": {"replicas": 4}}},
            {"launcher": 1, "worker": 4},
        ),
        (
            "MPIJob",
            {
                "mpiReplicaSpecs": {"Launcher": {}, "Worker": {"replicas": 4}},
                "launcherCreationPolicy": "WaitForWorkersReady",
            },
            {"worker": 4},
        ),
        (
            "JobSet",
            {
                "replicatedJobs": [
                    {"name": "leader", "template": {"spec": {}}},
                    {"name": "w", "replicas": 2, "template": {"spec": {"parallelism": 3}}},
                    {"name": "late", "replicas": 2, "dependsOn": [{"name": "w"}]},
                ]
            },
            {"leader": 1, "w": 6},
        ),
        (
            "JobSet",
            {
                "replicatedJobs": [{"name": "w", "replicas": 2}],
                "startupPolicy": {"startupPolicyOrder": "InOrder"},
            },
            {},
        ),
        (
            "DaskCluster",
            {"scheduler": {"spec": {}}, "worker": {"replicas": 3, "spec": {}}},
            {"scheduler": 1, "worker": 3},
        ),
        (
            "DaskJob",
            {"job": {"spec": {}}, "cluster": {"spec": {"worker": {"replicas": 2}}}},
            {"job-runner": 1, "scheduler": 1, "worker": 2},
        ),
        ("LeaderWorkerSet", {"leaderWorkerTemplate": {"size": 4}}, {"group": 4}),
        (
            "LeaderWorkerSet",
            {"leaderWorkerTemplate": {"size": 4}, "startupPolicy": "LeaderReady"},
            {},
        ),
        ("Workflow", {"templates": []}, {}),
        ("Deployment", {"replicas": 9}, {}),
    ],
)
def test_a_row_says_how_many_pods_of_each_role_are_needed(
    kind: str, spec: Any, expected: dict[str, int]
) -> None:
    found = workload(kind, spec)

    assert minima(found) == expected
    assert spec_of(found)["minMember"] == max(1, sum(expected.values()))


def test_a_workload_may_state_minimum_queue_and_priority() -> None:
    policy = {"minAvailable": 2, "queue": "gold"}
    spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": 8}}}
    found = workload("PyTorchJob", {**spec, "runPolicy": {"schedulingPolicy": policy}})

    made = spec_of(found)

    assert (made["minMember"], made["minTaskMember"], made["queue"]) == (2, {}, "gold")


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "Workflow"])
def test_a_plain_workload_states_its_minimum_by_annotation(kind: str) -> None:
    found = workload(kind, {}, **{keys.GROUP_MIN_MEMBER: "3"})

    assert spec_of(found)["minMember"] == 3


def test_annotations_of_the_workload_name_its_queue() -> None:
    found = workload("JobSet", {}, **{keys.SCHEDULING_QUEUE_NAME: "gold"})

    assert spec_of(found)["queue"] == "gold"


def test_a_group_asks_for_what_its_minimum_takes_as_far_as_pods_tell() -> None:
    jobs = [
        {"name": "a", "template": {"spec": {"parallelism": 2}}},
        {"name": "b", "template": {"spec": {"parallelism": 3}}},
    ]
    found = workload("JobSet", {"replicatedJobs": jobs})
    first, second = pod("a-0", cpu="2", **{JOBSET: "a"}), pod("b-0", cpu="1", **{JOBSET: "b"})

    assert spec_of(found, first)["minResources"]["cpu"] == "4"
    assert spec_of(found, first, second)["minResources"]["cpu"] == "7"


def test_a_group_asks_for_what_templates_say_before_all_pods_are_there() -> None:
    def template(cpu: str) -> Json:
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
        return {"spec": {"parallelism": 2, "template": {"spec": {"containers": [container]}}}}

    jobs = [{"name": "a", "template": template("2")}, {"name": "b", "template": template("500m")}]
    found = workload("JobSet", {"replicatedJobs": jobs})

    assert spec_of(found, pod("a-0", cpu="2", **{JOBSET: "a"}))["minResources"]["cpu"] == "5"


def test_a_group_is_controlled_by_its_workload_and_named_after_it() -> None:
    found = workload("RayCluster", {})
    [group] = groups_of(found, [pod("p")])

    meta = body_of(found, group)["metadata"]

    assert meta["name"] == "podgroup-w-1"
    assert meta["ownerReferences"] == [
        {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "train", "uid": "w-1",
         "controller": True}
    ]  # fmt: skip


def test_a_label_divides_a_workload_into_groups() -> None:
    label = "leaderworkerset.sigs.k8s.io/group-index"
    found = workload("LeaderWorkerSet", {"leaderWorkerTemplate": {"size": 2}})
    pods = [pod("a", **{label: "0"}), pod("b", **{label: "1"}), pod("c", **{label: "../x"})]

    names = {group.name: len(group.pods) for group in groups_of(found, pods)}

    assert names == {"podgroup-w-1": 1, "podgroup-w-1-0": 1, "podgroup-w-1-1": 1}


def test_kinds_whose_operators_make_pod_groups_are_off_by_default() -> None:
    enabled = {row.kind for row in rows.DEFAULT.values() if row.enabled}

    assert enabled == {
        *("Deployment", "StatefulSet", "Workflow", "Revision", "JobSet"),
        *("DaskCluster", "DaskJob"),
    }


def test_the_overlay_lets_the_controller_read_the_kinds_of_the_table() -> None:
    texts = yaml.safe_load_all((OVERLAYS / "workload-groups" / "role.yaml").read_text("utf-8"))
    [role] = [each for each in texts if each["kind"] == "ClusterRole"]
    granted = {
        (rule["apiGroups"][0], plural) for rule in role["rules"] for plural in rule["resources"]
    }

    assert all(rule["verbs"] == ["get"] for rule in role["rules"])
    assert {(group, f"{kind.lower()}s") for group, kind in rows.DEFAULT} <= granted


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=12,
)
FIELDS = (
    "workerGroupSpecs", "groupName", "replicas", "minReplicas", "numOfHosts", "suspend",
    "replicatedJobs", "template", "spec", "parallelism", "name", "pytorchReplicaSpecs", "Worker",
    "runPolicy", "schedulingPolicy", "containers", "resources", "requests", "cpu",
    "minAvailable", "queue", "elasticPolicy",
)  # fmt: skip
HOSTILE = st.recursive(
    JSON,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner),
    max_leaves=20,
)


@given(spec=HOSTILE, kind=st.sampled_from([row.kind for row in rows.DEFAULT.values()]))
def test_whatever_a_custom_resource_holds_a_group_has_bounded_numbers(spec: Any, kind: str) -> None:
    made = spec_of(workload(kind, spec))

    assert 1 <= made["minMember"] <= PODS_MAX
    assert all(0 < count <= PODS_MAX for count in made["minTaskMember"].values())
    assert isinstance(made["queue"], str)
    msgspec.json.encode(made)


def test_a_row_of_the_config_map_replaces_the_default_one_of_its_kind() -> None:
    found = rows.parse(
        "rows: [{group: ray.io, kind: RayCluster}, {group: my.org, kind: Thing, minimum: "
        "[\"object.metadata.annotations['my.org/min']\"]}]"
    )

    assert found["ray.io", "RayCluster"].enabled
    assert found["ray.io", "RayCluster"].roles == ()
    assert found["my.org", "Thing"].minimum == ("object.metadata.annotations['my.org/min']",)
    assert found["apps", "Deployment"] == rows.DEFAULT["apps", "Deployment"]
    assert rows.parse("") == rows.DEFAULT


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("rows: {}", "$.rows"),
        ("rows: [{group: a}]", "kind"),
        ("rows: [{group: a, kind: B, colour: red}]", "colour"),
        ("rows: [{group: a, kind: B, minimum: [spec.x]}]", "rows[0].minimum"),
        ("rows: [{group: a, kind: B, minimum: [item.x]}]", "rows[0].minimum"),
        (
            "rows: [{group: a, kind: B}, {group: a, kind: C, queue: ['object.a b']}]",
            "rows[1].queue",
        ),
        ("rows: [{group: a, kind: B, roles: [{}]}]", "rows[0].roles[0].name"),
        ("rows: [{group: a, kind: B, roles: [{name: x, count: -1}]}]", "roles[0].count"),
        ("rows: [{group: a, kind: B, roles: [{name: x, count: item.y}]}]", "roles[0].count"),
        ("rows: [{group: a, kind: B, roles: [{name: x, when: ['=1']}]}]", "roles[0].when"),
        ("rows: [{group: a, kind: B, roles: [{each: 'object'}]}]", "roles[0].each"),
        ("rows: [" + "{group: a, kind: B}," * 201 + "]", "$.rows"),
        ("rows: [{group: a, kind: " + "B" * 300 + "}]", "kind"),
        ("rows: [", "no YAML"),
    ],
)
def test_a_wrong_row_is_refused_with_the_name_of_the_field(text: str, field: str) -> None:
    with pytest.raises(BadConfigError) as error:
        rows.parse(text)

    assert field in str(error.value)
    assert len(str(error.value)) < 500
