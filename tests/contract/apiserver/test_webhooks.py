"""Admission webhooks of the test itself, asked over HTTPS by both servers."""

import base64
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aiohttp import web

from tests.contract.apiserver.client import Side
from tests.support.certificates import Authority
from tests.support.wait import until

pytestmark = pytest.mark.asyncio(loop_scope="session")
REGISTRATION = "/apis/admissionregistration.k8s.io/v1"


class Hook(NamedTuple):
    """One registered webhook, and what it was asked."""

    side: Side
    namespace: str
    asked: list[dict[str, Any]]

    async def create(self, name: str, **labels: str) -> Any:
        """Create a configmap."""
        body = {"metadata": {"name": name, "labels": labels}, "data": {"k": "v"}}
        return await self.side.request("POST", self.maps, body)

    @property
    def maps(self) -> str:
        """Path of the configmaps of the namespace."""
        return f"/api/v1/namespaces/{self.namespace}/configmaps"


def registered(client: dict[str, str], namespace: str) -> dict[str, Any]:
    """Return a webhook for creations of configmaps in a namespace, except those labelled `skip`."""
    return {
        "name": "check.example.com",
        "clientConfig": client,
        "rules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "resources": ["configmaps"],
                "operations": ["CREATE"],
            }
        ],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "objectSelector": {"matchExpressions": [{"key": "skip", "operator": "DoesNotExist"}]},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 5,
    }


@asynccontextmanager
async def hooked(
    side: Side,
    directory: Path,
    response: dict[str, Any],
    *,
    kind: str,
    status: int = 200,
    **told: Any,
) -> AsyncIterator[Hook]:
    """Serve and register a webhook for creations of configmaps; wait until it is asked."""
    asked: list[dict[str, Any]] = []

    async def review(request: web.Request) -> web.Response:
        question = (await request.json())["request"]
        asked.append(question)
        body = {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "response": {"uid": question["uid"], "allowed": True, **response},
        }
        return web.json_response(body, status=status)

    authority = Authority(directory / "authority")
    app = web.Application()
    app.router.add_post("/review", review)
    runner = web.AppRunner(app)
    await runner.setup()
    namespace = await side.namespace(with_account=False)
    try:
        tls = authority.server_context(ssl.CERT_NONE)
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        port = runner.addresses[0][1]
        client = {
            "url": f"https://127.0.0.1:{port}/review",
            "caBundle": base64.b64encode(authority.ca_file.read_bytes()).decode(),
        }
        hook = {**registered(client, namespace), **told}
        path = f"{REGISTRATION}/{kind}webhookconfigurations"
        made = await side.request(
            "POST", path, {"metadata": {"name": namespace}, "webhooks": [hook]}
        )
        assert made.status == 201, made
        found = Hook(side, namespace, asked)

        async def is_asked() -> bool:
            await side.request("POST", f"{found.maps}?dryRun=All", {"metadata": {"name": "x"}})
            return bool(asked)

        await until(is_asked, deadline_s=30.0, describe="the webhook is asked")
        asked.clear()
        yield found
        await side.request("DELETE", f"{path}/{namespace}")
    finally:
        await runner.cleanup()


async def test_a_mutating_webhook_changes_what_is_created(side: Side, tmp_path: Path) -> None:
    patch = [{"op": "add", "path": "/data/added", "value": "x"}]
    response = {
        "patchType": "JSONPatch",
        "patch": base64.b64encode(json.dumps(patch).encode()).decode(),
    }
    async with hooked(side, tmp_path, response, kind="mutating") as hook:
        created = await hook.create("a")
        assert created.status == 201
        assert created.body["data"] == {"k": "v", "added": "x"}
        assert (await side.request("GET", f"{hook.maps}/a")).body["data"]["added"] == "x"


async def test_a_validating_webhook_refuses_in_its_own_words(side: Side, tmp_path: Path) -> None:
    response = {"allowed": False, "status": {"message": "not today", "code": 403}}
    async with hooked(side, tmp_path, response, kind="validating") as hook:
        refused = await hook.create("a")
        assert refused.status == 403
        said = 'admission webhook "check.example.com" denied the request: not today'
        assert refused.body["message"] == said
        assert (await side.request("GET", f"{hook.maps}/a")).status == 404


async def test_a_webhook_is_told_what_is_to_be_written(side: Side, tmp_path: Path) -> None:
    async with hooked(side, tmp_path, {}, kind="validating") as hook:
        assert (await hook.create("a")).status == 201
        (question,) = hook.asked
        keys = ("kind", "resource", "name", "namespace", "operation", "oldObject", "dryRun")
        assert {key: question.get(key) for key in keys} == {
            "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
            "resource": {"group": "", "version": "v1", "resource": "configmaps"},
            "name": "a",
            "namespace": hook.namespace,
            "operation": "CREATE",
            "oldObject": None,
            "dryRun": False,
        }
        assert question["object"]["data"] == {"k": "v"}
        assert question["object"]["kind"] == "ConfigMap"


async def test_a_webhook_is_not_asked_about_what_it_does_not_select(
    side: Side, tmp_path: Path
) -> None:
    response = {"allowed": False}
    async with hooked(side, tmp_path, response, kind="validating") as hook:
        assert (await hook.create("a", skip="yes")).status == 201
        changed = await side.request("PATCH", f"{hook.maps}/a", {"data": {"k": "w"}})
        assert changed.status == 200
        assert hook.asked == []
        refused = await hook.create("b")
        assert (refused.status, refused.body["code"]) == (400, 400)


@pytest.mark.parametrize(("policy", "status"), [("Fail", 500), ("Ignore", 201)])
async def test_a_webhook_that_fails_counts_by_its_policy(
    side: Side, tmp_path: Path, policy: str, status: int
) -> None:
    told = {"status": 500, "failurePolicy": policy}
    async with hooked(side, tmp_path, {}, kind="validating", **told) as hook:
        answer = await hook.create("a")
        assert answer.status == status
        assert answer.body.get("reason") == ("InternalError" if status == 500 else None)


CONDITIONS = [
    {
        "name": "marked",
        "expression": "has(object.metadata.annotations) &&"
        " 'call' in object.metadata.annotations || object.metadata.name == 'x'",
    },
    {
        "name": "by-a-person",
        "expression": "request.operation == 'CREATE' && request.userInfo.username != 'robot'"
        " && request.resource.resource == 'configmaps' && oldObject == null",
    },
]


async def test_a_webhook_is_called_where_all_of_its_match_conditions_hold(
    side: Side, tmp_path: Path
) -> None:
    told = {"matchConditions": CONDITIONS}
    async with hooked(side, tmp_path, {"allowed": False}, kind="validating", **told) as hook:
        assert (await hook.create("a")).status == 201
        assert hook.asked == []
        marked = {"metadata": {"name": "b", "annotations": {"call": ""}}}
        assert (await side.request("POST", hook.maps, marked)).status == 400
        assert [request["name"] for request in hook.asked] == ["b"]


async def test_match_conditions_of_a_webhook_are_for_what_those_before_it_left(
    side: Side, tmp_path: Path
) -> None:
    patch = [{"op": "add", "path": "/data/added", "value": "x"}]
    response = {
        "patchType": "JSONPatch",
        "patch": base64.b64encode(json.dumps(patch).encode()).decode(),
    }
    unchanged = {
        "name": "unchanged",
        "expression": "object.metadata.name == 'x' || !('added' in object.data)",
    }
    async with hooked(side, tmp_path, response, kind="mutating") as hook:
        path = f"{REGISTRATION}/mutatingwebhookconfigurations/{hook.namespace}"
        (webhook,) = (await side.request("GET", path)).body["webhooks"]
        second = {**webhook, "name": "second.example.com", "matchConditions": [unchanged]}
        change = {"webhooks": [webhook, second]}
        assert (await side.request("PATCH", path, change)).status == 200

        async def is_registered() -> bool:
            hook.asked.clear()
            trial = {"metadata": {"name": "x"}, "data": {"k": "v"}}
            await side.request("POST", f"{hook.maps}?dryRun=All", trial)
            return len(hook.asked) == 2

        await until(is_registered, deadline_s=30.0, describe="both webhooks are asked")
        hook.asked.clear()
        created = await hook.create("a")
        assert created.status == 201
        assert len(hook.asked) == 1


@pytest.mark.parametrize(("policy", "status"), [("Fail", 403), ("Ignore", 201)])
async def test_a_match_condition_without_a_value_counts_by_the_policy_of_failures(
    side: Side, tmp_path: Path, policy: str, status: int
) -> None:
    broken = {
        "name": "broken",
        "expression": "object.metadata.name == 'x' || object.metadata.labels['no'] == 'yes'",
    }
    told = {"failurePolicy": policy, "matchConditions": [broken]}
    async with hooked(side, tmp_path, {}, kind="validating", **told) as hook:
        answer = await hook.create("a", other="label")
        assert (answer.status, hook.asked) == (status, [])
        if status == 403:
            assert answer.body["reason"] == "Forbidden"
            assert answer.body["message"].startswith('configmaps "a" is forbidden: ')


@pytest.mark.parametrize(
    ("conditions", "field"),
    [
        ([{"name": "a", "expression": "1 +"}], "webhooks[0].matchConditions[0].expression"),
        (
            [{"name": f"n{number}", "expression": "true"} for number in range(65)],
            "webhooks[0].matchConditions",
        ),
    ],
)
async def test_match_conditions_that_are_none_are_refused(
    side: Side, conditions: list[dict[str, str]], field: str
) -> None:
    hook = registered({"url": "https://127.0.0.1:1/review"}, "nowhere")
    body = {"metadata": {"name": "x"}, "webhooks": [{**hook, "matchConditions": conditions}]}
    refused = await side.request("POST", f"{REGISTRATION}/validatingwebhookconfigurations", body)
    assert refused.status == 422
    assert [cause["field"] for cause in refused.body["details"]["causes"]] == [field]


async def test_nobody_is_served_without_credentials(side: Side) -> None:
    wrong = {"Authorization": "Bearer nobody"}
    refused = await side.request("GET", "/api/v1/pods", headers=wrong)
    assert refused.status == 401
    assert (refused.body["reason"], refused.body["code"]) == ("Unauthorized", 401)
