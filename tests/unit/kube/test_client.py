"""Requests, what refusals become, and the bounds that we keep."""

import asyncio
import json as stdjson
from pathlib import Path

import pytest

from shared.api.kinds import NODE, POD
from shared.kube.client import Kube, address
from shared.kube.config import connect
from shared.kube.errors import AlreadyExists, Busy, Denied, Refused, Unreachable, Vanished
from shared.runtime.errors import Conflict, Gone, PumiceError, Rejected, Retryable
from tests.support.scripted_api import ScriptedApi, chunks, hang, json, obj, page, status


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (400, "BadRequest", Rejected),
        (401, "Unauthorized", Retryable),
        (403, "Forbidden", Rejected),
        (404, "NotFound", Gone),
        (409, "Conflict", Conflict),
        (409, "AlreadyExists", AlreadyExists),
        (410, "Expired", Conflict),
        (422, "Invalid", Rejected),
        (429, "TooManyRequests", Retryable),
        (500, "InternalError", Retryable),
        (503, "ServiceUnavailable", Retryable),
        (504, "Timeout", Retryable),
    ],
)
async def test_each_refusal_is_one_of_the_four_kinds(
    api: ScriptedApi, kube: Kube, code: int, reason: str, kind: type[PumiceError]
) -> None:
    api.then(*[status(code, f"it said {reason}", reason)] * 2)
    with pytest.raises(kind, match=f"GET .*/pods/p: it said {reason}"):
        await kube.get(POD, "ns", "p")


async def test_a_refusal_names_the_fields(api: ScriptedApi, kube: Kube) -> None:
    causes = [{"field": "spec.minAvailable", "reason": "FieldValueInvalid", "message": "too big"}]
    api.then(status(422, "Job is invalid", "Invalid", details={"causes": causes}))
    with pytest.raises(Refused) as caught:
        await kube.create(POD, "ns", {})
    assert caught.value.field == "spec.minAvailable"
    assert caught.value.status.causes[0].message == "too big"


@pytest.mark.parametrize(
    "answer",
    [
        status(429, headers={"Retry_After": "7"}),
        status(429, details={"retryAfterSeconds": 7}),
    ],
    ids=["header", "body"],
)
async def test_the_wait_that_the_server_asks_for_reaches_the_caller(
    api: ScriptedApi, kube: Kube, answer: object
) -> None:
    api.then(answer)
    with pytest.raises(Busy) as caught:
        await kube.get(POD, "ns", "p")
    assert caught.value.retry_after_s == 7


async def test_an_answer_that_is_no_status_still_says_something(
    api: ScriptedApi, kube: Kube
) -> None:
    api.then(json("bad gateway", 502))
    with pytest.raises(Retryable, match="bad gateway"):
        await kube.get(POD, "ns", "p")


async def test_a_missing_role_is_told_apart_from_a_bad_request(
    api: ScriptedApi, kube: Kube
) -> None:
    api.then(status(403, 'User "x" cannot create resource "pods"', "Forbidden"))
    with pytest.raises(Denied, match="cannot create"):
        await kube.create(POD, "ns", {})


async def test_silence_is_retryable_after_the_time_limit(api: ScriptedApi, kube: Kube) -> None:
    api.then(hang())
    with pytest.raises(Unreachable, match=r"no answer in 0\.5 s"):
        await kube.get(POD, "ns", "p")


async def test_a_reset_in_the_answer_is_retryable(api: ScriptedApi, kube: Kube) -> None:
    api.then(chunks(b"{", ending="reset"))
    with pytest.raises(Unreachable, match="GET /api/v1/namespaces/ns/pods/p at http"):
        await kube.get(POD, "ns", "p")


async def test_a_closed_client_reaches_no_server_and_that_is_no_mistake(
    api: ScriptedApi, kube: Kube
) -> None:
    await kube.close()
    with pytest.raises(Unreachable, match="this client is closed"):
        await kube.get(POD, "ns", "p")
    assert api.seen == []


async def test_a_write_is_sent_once_and_never_repeated_by_itself(
    api: ScriptedApi, kube: Kube
) -> None:
    api.then(status(503), status(503))
    with pytest.raises(Retryable):
        await kube.create(POD, "ns", {})
    assert len(api.seen) == 1


async def test_a_patch_carries_the_uid_and_keeps_the_metadata_beside_it(
    api: ScriptedApi, kube: Kube
) -> None:
    api.then(json({}))
    body = {"metadata": {"labels": {"a": "b"}}, "status": {"phase": "Running"}}
    await kube.patch(POD, "ns", "p", body, uid="u1", subresource="status", patch_type="strategic")
    seen = api.seen[0]
    assert (seen.method, seen.path) == ("PATCH", "/api/v1/namespaces/ns/pods/p/status")
    assert seen.headers["Content-Type"] == "application/strategic-merge-patch+json"
    assert stdjson.loads(seen.body) == {
        "metadata": {"labels": {"a": "b"}, "uid": "u1"},
        "status": {"phase": "Running"},
    }


async def test_a_delete_carries_uid_grace_and_propagation(api: ScriptedApi, kube: Kube) -> None:
    api.then(json({}))
    await kube.delete(POD, "ns", "p", uid="u1", grace_s=0, propagation="Background")
    body = stdjson.loads(api.seen[0].body)
    assert body["preconditions"] == {"uid": "u1"}
    assert (body["gracePeriodSeconds"], body["propagationPolicy"]) == (0, "Background")


async def test_a_binding_carries_uid_node_and_annotations(api: ScriptedApi, kube: Kube) -> None:
    api.then(json({}))
    await kube.bind("ns", "p", uid="u1", node="n1", annotations={"k": "v"})
    assert api.seen[0].path == "/api/v1/namespaces/ns/pods/p/binding"
    body = stdjson.loads(api.seen[0].body)
    assert body["metadata"] == {
        "name": "p",
        "namespace": "ns",
        "uid": "u1",
        "annotations": {"k": "v"},
    }
    assert body["target"]["name"] == "n1"


@pytest.mark.parametrize(
    "answer",
    [
        status(409, "Precondition failed: UID in precondition: a, UID in object meta: b"),
        status(422, details={"causes": [{"field": "metadata.uid", "message": "immutable"}]}),
        status(409, "the UID in the precondition (a) does not match the UID in record (b)"),
        status(404),
    ],
    ids=["binding", "patch", "delete", "no such name"],
)
async def test_a_namesake_with_another_uid_is_gone_not_a_conflict(
    api: ScriptedApi, kube: Kube, answer: object
) -> None:
    api.then(answer)
    with pytest.raises(Vanished):
        await kube.patch(POD, "ns", "p", {}, uid="a")


async def test_a_list_is_read_in_pages(api: ScriptedApi, kube: Kube) -> None:
    api.then(page([obj("a", 1)], 5, token="c1"), page([obj("b", 2)], 5))
    listing = await kube.list(POD)
    assert [pod.metadata.name for pod in listing.items] == ["a", "b"]
    assert listing.resource_version == "5"


async def test_names_cannot_lead_out_of_their_collection() -> None:
    assert address(POD, "ns", "../../nodes/n") == "/api/v1/namespaces/ns/pods/..%2F..%2Fnodes%2Fn"
    for namespace, name in [("ns", ".."), ("ns", ""), ("", "p")]:
        with pytest.raises(Rejected):
            address(POD, namespace, name)
    assert address(NODE, "", "n") == "/api/v1/nodes/n"


async def test_the_user_agent_names_the_service(api: ScriptedApi, kube: Kube) -> None:
    api.then(json({}))
    await kube.get(POD, "ns", "p")
    assert api.seen[0].headers["User-Agent"] == "pumice-test/1"


@pytest.mark.parametrize(("qps", "least_s"), [(0, 0.0), (-1, 0.0), (40, 0.2)])
async def test_our_own_rate_is_bounded_when_a_bound_is_set(
    api: ScriptedApi, tmp_path: Path, qps: float, least_s: float
) -> None:
    api.then(*[json({})] * 12)
    file = tmp_path / "kubeconfig"
    file.write_text(api.kubeconfig(token="t"))
    loop = asyncio.get_running_loop()
    async with await connect(str(file), user_agent="t", qps=qps, burst=4) as kube:
        start = loop.time()
        async with asyncio.TaskGroup() as group:
            for _ in range(12):
                group.create_task(kube.get(POD, "ns", "p"))
        taken_s = loop.time() - start
    assert taken_s >= least_s * 0.95
    assert taken_s < least_s + 2


async def test_requests_share_a_bounded_number_of_connections(
    api: ScriptedApi, tmp_path: Path
) -> None:
    api.then(*[json({})] * 20)
    file = tmp_path / "kubeconfig"
    file.write_text(api.kubeconfig(token="t"))
    async with (
        await connect(str(file), user_agent="t", max_connections=2) as kube,
        asyncio.TaskGroup() as group,
    ):
        for _ in range(20):
            group.create_task(kube.get(POD, "ns", "p"))
    assert len({seen.peer for seen in api.seen}) <= 2
