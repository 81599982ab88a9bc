"""Pods before they are stored: resource groups and budgets (W30, W32)."""

import pytest

from services.admission.rules.groups import (
    BadConfiguration,
    ResourceGroup,
    Selects,
    read_configuration,
)
from shared.api import keys
from tests.support.world import pod
from tests.unit.admission.asking import Json, ask, paths

MIN, MAX = "volcano.sh/jdb-min-available", "volcano.sh/jdb-max-unavailable"
CONF = """
resourceGroups:
- resourceGroup: management
  object: {key: namespace, value: [mng-1, mng-2]}
  schedulerName: default-scheduler
  tolerations: [{effect: NoSchedule, key: taint, operator: Exists}]
  labels: {volcano.sh/nodetype: management}
  affinity: '{"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}'
- resourceGroup: cpu
  object:
    key: annotation
    value: ["team.example.com/group: cpu"]
  schedulerName: volcano
  labels: {kind: cpu}
- resourceGroup: gpu
  labels: {kind: gpu}
"""
GROUPS = read_configuration(CONF).resource_groups


def mutated(stated: Json) -> dict[str, object]:
    patch = ask("/pods/mutate", stated, resource_groups=GROUPS).patch
    return {operation["path"]: operation["value"] for operation in patch}


def test_a_pod_of_a_groups_namespace_gets_all_that_the_group_says_w30() -> None:
    toleration = {"key": "own"}
    changes = mutated(pod(namespace="mng-2", tolerations=[toleration], nodeSelector={"a": "b"}))
    assert changes["/spec/nodeSelector"] == {"a": "b", "volcano.sh/nodetype": "management"}
    assert changes["/spec/tolerations"][0] == toleration
    assert changes["/spec/tolerations"][1]["key"] == "taint"
    assert changes["/spec/schedulerName"] == "default-scheduler"
    assert list(changes["/spec/affinity"]) == ["nodeAffinity"]


def test_a_pods_own_affinity_stays_w30() -> None:
    assert "/spec/affinity" not in mutated(pod(namespace="mng-1", affinity={"podAffinity": {}}))


def test_the_first_group_that_has_a_pod_wins_w30() -> None:
    both = pod(annotations={"team.example.com/group": "cpu"}, namespace="mng-1")
    assert mutated(both)["/spec/schedulerName"] == "default-scheduler"


@pytest.mark.parametrize(
    ("annotations", "kind"),
    [
        ({"team.example.com/group": "cpu"}, "cpu"),
        ({"volcano.sh/resource-group": "gpu"}, "gpu"),
        ({"volcano.sh/resource-group": "cpu"}, None),
        ({}, None),
    ],
)
def test_an_annotation_leads_to_a_group_w30(annotations: Json, kind: str | None) -> None:
    found = mutated(pod(annotations=annotations)).get("/spec/nodeSelector")
    assert found == ({"kind": kind} if kind else None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("resourceGroups: 3", "resourceGroups: expected array"),
        ("resourceGroups: [{labels: [a]}]", "resourceGroups[0].labels"),
        ("resourceGroups: [{object: {key: name}}]", "resourceGroups[0].object.key: 'name'"),
        ("resourceGroups: [{affinity: '{'}]", "resourceGroups[0].affinity"),
        ("{", "no YAML"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_with_the_field_w30(text: str, said: str) -> None:
    with pytest.raises(BadConfiguration) as refusal:
        read_configuration(text)
    assert said in str(refusal.value)


GATE = {"name": keys.QUEUE_GATE}


@pytest.mark.parametrize(
    ("gates", "operation"),
    [
        (None, {"op": "add", "path": "/spec/schedulingGates", "value": [GATE]}),
        ([{"name": "a"}], {"op": "add", "path": "/spec/schedulingGates/-", "value": GATE}),
    ],
)
def test_a_pod_that_asks_for_the_gate_of_its_queue_gets_it_w31(gates, operation) -> None:
    verdict = ask("/pods/mutate", asking("true", gates), queue_gates=True)
    assert list(verdict.patch) == [operation]


@pytest.mark.parametrize(
    ("stated", "on"),
    [("true", False), ("yes", True), ("true", True)],
    ids=["the feature is off", "another value", "it has the gate"],
)
def test_any_other_pod_gets_no_gate_w31(stated: str, on: bool) -> None:
    gates = [GATE] if (stated, on) == ("true", True) else None
    assert not ask("/pods/mutate", asking(stated, gates), queue_gates=on).patch


def asking(value: str, gates: list[Json] | None) -> Json:
    spec = {} if gates is None else {"schedulingGates": gates}
    return {"metadata": {"annotations": {keys.QUEUE_GATE: value}}, "spec": spec}


@pytest.mark.parametrize("value", ["1", "25%", "99%"])
def test_a_budget_is_a_positive_number_or_a_percentage_w32(value: str) -> None:
    assert ask("/pods/validate", pod(annotations={MIN: value})).allowed
    assert ask("/pods/validate", pod(annotations={MAX: value})).allowed


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("0", "it must be a positive integer"),
        ("-1", "it must be a positive integer"),
        ("0%", "a valid percentage which between 1% ~ 99%"),
        ("100%", "a valid percentage which between 1% ~ 99%"),
        ("half", 'invalid value <"half">'),
        ("", "invalid value"),
        ("+-5", "invalid value"),
        ("٣", "invalid value"),
        ("50%%", "invalid value"),
        ("9" * 5000, "invalid value"),
    ],
)
def test_any_other_budget_is_refused_w32(value: str, words: str) -> None:
    verdict = ask("/pods/validate", pod(annotations={MIN: value}))
    assert paths(verdict) == [f"metadata.annotations[{MIN}]"]
    assert words in verdict.message


def test_two_budgets_are_refused_w32() -> None:
    verdict = ask("/pods/validate", pod(annotations={MIN: "1", MAX: "1"}))
    assert f"not allow configure multiple annotations <[{MIN} {MAX}]> at same time" in (
        verdict.message
    )


def test_pods_of_other_schedulers_are_not_our_business_w32() -> None:
    foreign = pod(annotations={MIN: "0"}, scheduler="default-scheduler")
    assert ask("/pods/validate", foreign).allowed


def test_what_selects_by_annotation_is_read_as_yaml_w30() -> None:
    lines = ["team: 'cpu'", '"a:b": c', "team: other", "no mapping", "[", "nested: {a: b}", "n: 1"]
    group = ResourceGroup(object=Selects(key="annotation", value=tuple(lines)))
    assert group.annotations() == {"team": "cpu", "a:b": "c", "n": "1"}
    assert group.has("ns", {"a:b": "c"})


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"metadata": "text"}, "metadata"),
        ({"metadata": {"annotations": ["a"]}}, "metadata.annotations"),
        ({"metadata": {"annotations": {MIN: 5}}}, "metadata.annotations"),
        ({"spec": []}, "spec"),
        ({"spec": {"schedulerName": 5}}, "spec.schedulerName"),
        ({"spec": {"nodeSelector": "text"}}, "spec.nodeSelector"),
        ({"spec": {"tolerations": 1.5}}, "spec.tolerations"),
    ],
)
@pytest.mark.parametrize("path_of_hook", ["/pods/mutate", "/pods/validate"])
def test_a_pod_that_cannot_be_read_is_refused_with_the_field_w30_w32(
    path_of_hook: str, change: Json, path: str
) -> None:
    verdict = ask(path_of_hook, {**pod(), **change}, resource_groups=GROUPS)
    (named,) = paths(verdict)
    assert named.startswith(path)
