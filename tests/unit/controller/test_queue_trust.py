"""Commands to queues count from trusted namespaces, or when the API server asked about them."""

import copy
from typing import Any

import msgspec
import pytest

from services.controller.queue.trust import (
    EXPRESSION,
    POLICY,
    guarded_since,
    in_trusted_namespace,
    made_at,
)
from shared.api import kinds, time
from shared.api.batch import Command
from shared.api.meta import ObjectMeta
from tests.support.manifests import BASE, build, named
from tests.unit.controller.reconcilers import Process, Stage
from tests.unit.controller.test_queues_kept import keep, order, seconds, states, tree

WRITTEN = "2025-03-11T10:00:00Z"
LATER = "2025-03-11T11:00:00Z"
NEVER = float("inf")


def manifest(kind: str) -> dict[str, Any]:
    """Return the manifest of k8s/base as an API server that has defaulted it gives it back."""
    found = copy.deepcopy(named(build(BASE), kind, POLICY))
    found["metadata"]["creationTimestamp"] = WRITTEN
    if kind == "ValidatingAdmissionPolicy":
        match = found["spec"]["matchConstraints"]
        match |= {"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}}
        match["resourceRules"][0]["scope"] = "*"
    return found


def since(policy: dict[str, Any], binding: dict[str, Any] | None = None) -> float:
    other = binding or manifest("ValidatingAdmissionPolicyBinding")
    return guarded_since(msgspec.json.encode(policy), msgspec.json.encode(other))


def test_the_manifests_guard_from_a_few_seconds_after_they_were_written() -> None:
    assert since(manifest("ValidatingAdmissionPolicy")) == time.parse(WRITTEN) + 10.0


def test_a_change_of_the_policy_begins_its_time_anew_and_a_status_does_not() -> None:
    policy = manifest("ValidatingAdmissionPolicy")
    policy["metadata"]["managedFields"] = [{"time": LATER, "subresource": "status"}]
    assert since(policy) == time.parse(WRITTEN) + 10.0
    policy["metadata"]["managedFields"].append({"time": LATER})
    assert since(policy) == time.parse(LATER) + 10.0


LOOSE_POLICIES = {
    "ignores its own failure": {"failurePolicy": "Ignore"},
    "asks nothing": {"validations": []},
    "asks something else": {"validations": [{"expression": "true"}]},
    "asks ours with a way around": {"validations": [{"expression": f"{EXPRESSION} || true"}]},
    "asks under conditions": {"matchConditions": [{"name": "x", "expression": "false"}]},
    "has parameters": {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}},
    "has variables": {"variables": [{"name": "x", "expression": "1"}]},
    "matches nothing": {"matchConstraints": {}},
}


@pytest.mark.parametrize("change", LOOSE_POLICIES.values(), ids=LOOSE_POLICIES)
def test_a_policy_that_was_loosened_guards_nothing(change: dict[str, Any]) -> None:
    policy = manifest("ValidatingAdmissionPolicy")
    policy["spec"] |= change
    assert since(policy) == NEVER


LOOSE_MATCHES = {
    "one namespace": {"namespaceSelector": {"matchLabels": {"a": "b"}}},
    "some objects": {"objectSelector": {"matchLabels": {"a": "b"}}},
    "all but some": {"excludeResourceRules": [{"resources": ["commands"]}]},
    "this version only": {"matchPolicy": "Exact"},
}


@pytest.mark.parametrize("change", LOOSE_MATCHES.values(), ids=LOOSE_MATCHES)
def test_a_policy_or_a_binding_for_some_objects_only_guards_nothing(change: dict[str, Any]) -> None:
    policy = manifest("ValidatingAdmissionPolicy")
    policy["spec"]["matchConstraints"] |= change
    assert since(policy) == NEVER
    binding = manifest("ValidatingAdmissionPolicyBinding")
    binding["spec"]["matchResources"] = change
    assert since(manifest("ValidatingAdmissionPolicy"), binding) == NEVER


@pytest.mark.parametrize(
    "change",
    [
        {"operations": ["CREATE"]},
        {"resourceNames": ["x"]},
        {"apiGroups": ["x"]},
        {"scope": "Cluster"},
    ],
    ids=str,
)  # fmt: skip
def test_a_policy_with_a_narrower_rule_guards_nothing(change: dict[str, Any]) -> None:
    policy = manifest("ValidatingAdmissionPolicy")
    policy["spec"]["matchConstraints"]["resourceRules"][0] |= change
    assert since(policy) == NEVER


@pytest.mark.parametrize(
    "change",
    [{"validationActions": ["Warn"]}, {"policyName": "another"}, {"paramRef": {"name": "x"}}],
    ids=str,
)
def test_a_binding_that_does_not_deny_guards_nothing(change: dict[str, Any]) -> None:
    binding = manifest("ValidatingAdmissionPolicyBinding")
    binding["spec"] |= change
    assert since(manifest("ValidatingAdmissionPolicy"), binding) == NEVER


def test_what_is_being_deleted_or_unreadable_guards_nothing() -> None:
    policy = manifest("ValidatingAdmissionPolicy")
    policy["metadata"]["deletionTimestamp"] = LATER
    assert since(policy) == NEVER
    assert guarded_since(b"[]", b"{}") == NEVER
    assert guarded_since(b"<html>", b"") == NEVER


def test_a_namespace_is_trusted_by_name_or_all_are() -> None:
    command = Command(metadata=ObjectMeta(namespace="default"))
    assert not in_trusted_namespace(command, {"pumice-system"})
    assert in_trusted_namespace(command, {"pumice-system", "default"})
    assert in_trusted_namespace(command, {"*"})
    assert made_at(command) == -NEVER, "a Command without a time was made before every policy"


async def test_a_command_of_a_tenant_closes_no_queue_and_its_author_is_told_why() -> None:
    stage = Stage()
    tree(stage)
    process = Process(stage, trusted=("pumice-system",))
    await keep(process)
    order(stage, "CloseQueue", "d")
    await keep(process)
    assert states(stage)["d"] == "Open"
    assert stage.items(kinds.COMMAND) == []
    (event,) = [e for e in stage.items(kinds.EVENT) if e["reason"] == "CommandIgnored"]
    assert event["involvedObject"]["kind"] == "Command"
    assert (event["type"], event["metadata"]["namespace"]) == ("Warning", "default")
    assert POLICY in event["message"]


async def test_commands_to_no_queue_or_to_an_earlier_one_are_told_of_and_deleted() -> None:
    stage = Stage()
    tree(stage)
    process = Process(stage)
    await keep(process)
    for name, uid in (("gone", ""), ("d", "00000000-0000-4000-8000-000000009999")):
        target = {"apiVersion": kinds.QUEUE.api_version, "kind": "Queue", "name": name}
        command(stage, {**target, "uid": uid})
    await keep(process, rounds=30)
    assert states(stage)["d"] == "Open"
    assert stage.items(kinds.COMMAND) == []
    told = sorted(e["message"] for e in stage.items(kinds.EVENT) if e["reason"] == "CommandIgnored")
    assert told[1].endswith("there is no queue gone")
    assert "queue d has uid" in told[0]


async def test_a_command_to_another_kind_is_told_of_once_and_left_to_who_may_know_it() -> None:
    stage = Stage()
    process = Process(stage)
    command(stage, {"apiVersion": "example.com/v1", "kind": "Thing", "name": "t", "uid": ""})
    command(stage, None)
    await keep(process, rounds=4)
    before = stage.writes["POST events"]
    async with process.running("queues"), process.running("events"):
        await seconds(process, 70)
    assert len(stage.items(kinds.COMMAND)) == 2
    told = [e["message"] for e in stage.items(kinds.EVENT) if e["reason"] == "CommandIgnored"]
    assert any("example.com/v1 Thing takes no Commands" in words for words in told)
    assert any("no target takes no Commands" in words for words in told)
    assert stage.writes["POST events"] <= before + 2, "a second process may tell it once more"


def command(stage: Stage, target: dict[str, Any] | None) -> None:
    body = {
        "apiVersion": kinds.COMMAND.api_version,
        "kind": "Command",
        "metadata": {"generateName": "order-"},
        "action": "CloseQueue",
        **({"target": target} if target is not None else {}),
    }
    stage.ask("POST", kinds.COMMAND, body=body)
