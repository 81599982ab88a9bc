"""The comparison of what services ask for with their roles: what is missing, what nothing needs."""

import json
from pathlib import Path

import pytest

from tests.support import roles as accounts
from tools import roles, suite
from tools.roles import Asked, Right

ROLE = """
kind: ClusterRole
metadata: {name: pumice-binder}
rules:
- {apiGroups: [""], resources: ["pods"], verbs: ["get", "delete"]}
- {apiGroups: [""], resources: ["pods/status"], verbs: ["patch"]}
---
kind: Role
metadata: {name: pumice-binder, namespace: pumice-system}
rules:
- {apiGroups: [""], resources: ["secrets"], resourceNames: ["a", "b"], verbs: ["get"]}
"""
RIGHTS = {
    Right("get", "", "pods"),
    Right("delete", "", "pods"),
    Right("patch", "", "pods/status"),
    Right("get", "", "secrets", "pumice-system", "a"),
    Right("get", "", "secrets", "pumice-system", "b"),
}


def entry(verb: str, resource: str, *, agent: str = "pumice-binder", **more) -> str:
    name, _, sub = resource.partition("/")
    reference = {"resource": name, "subresource": sub, "namespace": "ns", "name": "p"}
    line = {
        "verb": verb,
        "user": {"username": "system:serviceaccount:pumice-system:pumice-binder"},
        "userAgent": agent,
        "objectRef": {**reference, **more.pop("ref", {})},
        "annotations": {"authorization.k8s.io/decision": "allow"},
        **more,
    }
    return json.dumps(line) + "\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The roles of a binder."""
    (tmp_path / "binder.yaml").write_text(ROLE)
    return tmp_path


def told(folder: Path, *lines: str, whole: bool = True) -> list[str]:
    log = folder / "x.log"
    log.write_text("".join(lines))
    asked = roles.asked_for([log])
    return roles.compare(roles.granted(folder), asked, whole=whole, rare={})


USED = (
    entry("get", "pods"),
    entry("delete", "pods"),
    entry("patch", "pods/status"),
    entry("get", "secrets", ref={"namespace": "pumice-system", "name": "a"}),
    entry("get", "secrets", ref={"namespace": "pumice-system", "name": "b"}),
)


def test_rules_that_are_asked_for_one_by_one_are_told_of_by_nobody(folder) -> None:
    assert roles.granted(folder) == {"binder": RIGHTS}
    assert told(folder, *USED) == []


def test_a_rule_that_nothing_needed_is_named_once_the_whole_suite_was_run(folder) -> None:
    left = [*USED[:1], *USED[2:4]]
    lines = told(folder, *left)
    assert [line.partition(",")[0] for line in lines] == [
        "unused rule: pumice-binder may delete pods",
        "unused rule: pumice-binder may get secrets 'b' in pumice-system",
    ]
    assert told(folder, *left, whole=False) == []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (entry("create", "pods"), "create pods 'p' in ns"),
        (entry("get", "pods/log"), "get pods/log 'p' in ns"),
        (entry("get", "jobs", ref={"apiGroup": "batch"}), "get jobs.batch 'p' in ns"),
        (entry("get", "secrets"), "get secrets 'p' in ns"),
    ],
    ids=["verb", "subresource", "group", "bound"],
)
def test_a_rule_that_is_missing_is_named_always(folder, line, words) -> None:
    for whole in (True, False):
        assert told(folder, *USED, line, whole=whole) == [
            f"missing rule: pumice-binder asked to {words}"
        ]


@pytest.mark.parametrize(
    "line",
    [
        entry("create", "pods", agent="python-aiohttp"),
        entry("create", "pods", agent="pumice-cache"),
        entry("create", "pods", user={"username": "pumice-admin"}),
        entry("create", "pods", objectRef=None),
        entry("create", "pods")[:-20],
    ],
    ids=["a test as the service's user", "another agent", "another user", "no object", "cut off"],
)
def test_what_no_service_asked_for_does_not_count(folder, line) -> None:
    assert told(folder, *USED, line) == []


def test_what_an_api_server_refuses_before_it_has_read_the_roles_counts_for_nothing(folder) -> None:
    refused = entry("get", "pods", annotations={"authorization.k8s.io/decision": "forbid"})
    assert told(folder, *USED, refused) == []
    assert told(folder, refused, *USED[1:]) == [
        "unused rule: pumice-binder may get pods, and no request of the suite needed it"
    ]


def test_a_request_counts_for_the_narrowest_rule_that_covers_it() -> None:
    wide, narrow = Right("get", "", "secrets"), Right("get", "", "secrets", "pumice-system", "a")
    asked = Asked("binder", Right("get", "", "secrets", "pumice-system", "a"), allowed=True)
    lines = roles.compare({"binder": {wide, narrow}}, [asked], whole=True, rare={})
    assert lines == [
        "unused rule: pumice-binder may get secrets, and no request of the suite needed it"
    ]


def test_a_rare_rule_need_not_be_seen_and_must_be_there() -> None:
    way = ("get", "", "pods")
    known = {"binder": {Right("get", "", "pods")}}
    rare = {"binder": {way: "a reason"}}
    assert roles.compare(known, [], whole=True, rare=rare) == []
    assert roles.compare({"binder": set()}, [], whole=True, rare=rare) == [
        f"rare, and no rule: binder {way}"
    ]


def test_no_request_at_all_is_no_proof(tmp_path, capsys) -> None:
    assert roles.main([str(tmp_path)]) == 1
    assert "0 API servers" in capsys.readouterr().out


def test_suite_and_tests_speak_of_the_same_folder_and_the_roles_are_those_of_k8s() -> None:
    assert suite.AUDIT_DIRECTORY == accounts.AUDIT_DIRECTORY
    assert set(roles.granted()) == {*("admission", "binder", "cache", "controller", "visibility")}
