"""The webhooks' HTTPS server: whatever is sent to it gets an answer, and the next one does too."""

import asyncio
import base64
import io
import json
import ssl
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import pytest
import structlog
from aiohttp import web

from services.admission.adapters.lookup import Lookup
from services.admission.adapters.server import WebhookServer
from services.admission.metrics import AdmissionMetrics
from services.admission.rules.catalogue import HOOKS
from services.admission.rules.review import Terms
from shared.kube.config import connect
from shared.runtime.clock import SystemClock
from shared.runtime.health import Readiness
from shared.runtime.metrics import Metrics
from shared.serving.connections import ConnectionLimits
from shared.serving.server import BODY_MAX, HttpsServer
from tests.support.certificates import Authority
from tests.support.env import env_of_a_test
from tests.support.scripted_api import ScriptedApi, status
from tests.support.scripted_api import json as said
from tests.unit.admission.asking import Json, queue_named, sparse_job

ENOUGH = 10_000
"""Answers of the API server: more than any test asks for."""


async def cluster(request: web.Request) -> web.StreamResponse:
    """Answer as an API server with one queue, and with a namespace of any name."""
    metadata = {"resourceVersion": "1"}
    if request.path.endswith("/queues"):
        items = [queue_named("default"), queue_named("parent"), queue_named("q", parent="parent")]
        return await said({"metadata": metadata, "items": items})(request)
    return await said({"metadata": {"name": "ns"}})(request)


class Webhooks:
    """A server at work, and a client of it."""

    def __init__(self, api: ScriptedApi, url: str, client: aiohttp.ClientSession) -> None:
        self.api = api
        self.url = url
        self.client = client

    async def send(
        self, path: str, body: bytes, kind: str = "application/json", method: str = "POST"
    ) -> tuple[int, str]:
        """Return status and text of the answer."""
        headers = {"Content-Type": kind}
        async with self.client.request(
            method, f"{self.url}{path}", data=io.BytesIO(body), headers=headers
        ) as answer:
            return answer.status, await answer.text()

    async def response(self, path: str, body: bytes) -> Json:
        """Return the response within the AdmissionReview that must be the answer."""
        code, text = await self.send(path, body)
        assert code == 200, text
        review = json.loads(text)
        assert (review["apiVersion"], review["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
        response: Json = review["response"]
        return response


@pytest.fixture
async def webhooks(tmp_path) -> AsyncIterator[Webhooks]:
    """All hooks on a free port of the loopback, over an API server that plays a script."""
    authority = Authority(tmp_path / "ca")
    context = authority.server_context(verify=ssl.CERT_NONE)
    file = tmp_path / "kubeconfig"
    clock = SystemClock()
    async with ScriptedApi().serving() as api:
        api.then(*[cluster] * ENOUGH)
        file.write_text(api.kubeconfig(token="t"))
        async with await connect(str(file), user_agent="test", request_timeout_s=5) as kube:
            metrics = AdmissionMetrics(Metrics())
            https = HttpsServer(
                "webhooks",
                context=lambda: context,
                limits=ConnectionLimits(),
                dropped=metrics.dropped,
                gate=Readiness().gate("webhooks"),
                log=structlog.get_logger(),
            )
            WebhookServer(
                https,
                list(HOOKS.values()),
                lookup=Lookup(kube, clock=clock, log=structlog.get_logger()),
                terms=Terms,
                schemas=dict,
                env=env_of_a_test(clock=clock),
                metrics=metrics,
            )
            port = await https.start("127.0.0.1", 0)
            trust = ssl.create_default_context(cafile=str(authority.ca_file))
            connector = aiohttp.TCPConnector(ssl=trust)
            async with asyncio.TaskGroup() as tasks:
                running = tasks.create_task(https.run(), name="server")
                async with aiohttp.ClientSession(connector=connector) as client:
                    yield Webhooks(api, f"https://127.0.0.1:{port}", client)
                running.cancel()


def request(obj: object = None, **fields: Any) -> Json:
    """Return the request of a review."""
    return {
        "uid": "u-1",
        "operation": "CREATE",
        "resource": {"group": "g", "version": "v", "resource": ""},
        "namespace": "ns",
        "object": obj,
        **fields,
    }


def review(asked: object = None, **fields: Any) -> bytes:
    """Return a review as it is sent."""
    whole = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}
    return json.dumps({**whole, **fields}).encode()


NESTED = b'{"a":' * 5000 + b"1" + b"}" * 5000
GOOD = review(request(sparse_job()))


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        (b"", 400, "no AdmissionReview: input data was truncated"),
        (b"{", 400, "no AdmissionReview"),
        (b"[1]", 400, "no AdmissionReview: expected object, got array"),
        (b"\xff\xfe", 400, "no AdmissionReview"),
        (b"[" * 100_000, 400, "no AdmissionReview"),
        (b'{"a":' + NESTED, 400, "no AdmissionReview"),
        (b"{}", 400, "missing required field apiVersion"),
        (review(), 400, "request: is missing"),
        (review([]), 400, "request: expected object"),
        (review({}), 400, "request: object missing required field uid"),
        (review({"uid": 3, "operation": "CREATE"}), 400, "request.uid: expected str, got int"),
        (review(request("text")), 400, "request.object: expected object | null, got str"),
        (
            review(request(sparse_job()), apiVersion="admission.k8s.io/v1beta1"),
            400,
            "admission.k8s.io/v1beta1 AdmissionReview is not served: send admission.k8s.io/v1",
        ),
        (review(request(sparse_job()), kind="Pod"), 400, "admission.k8s.io/v1 Pod is not served"),
        (b'{"a":"' + b"x" * BODY_MAX + b'"}', 413, "the review is larger than"),
    ],
)
async def test_what_is_no_review_is_refused_with_the_field_w02(
    webhooks: Webhooks, body: bytes, code: int, words: str
) -> None:
    answered, text = await webhooks.send("/jobs/mutate", body)
    assert (answered, words in text) == (code, True), text
    assert (await webhooks.response("/jobs/validate", GOOD))["allowed"]


async def test_other_media_types_methods_and_paths_are_refused_w01(webhooks: Webhooks) -> None:
    assert (await webhooks.send("/jobs/validate", GOOD, "text/plain"))[0] == 415
    assert (await webhooks.send("/jobs/validate", GOOD, "application/yaml"))[0] == 415
    typed = "application/json; charset=utf-8"
    assert (await webhooks.send("/jobs/validate", GOOD, typed))[0] == 200
    assert (await webhooks.send("/jobs/validate", b"", method="GET"))[0] == 405
    assert (await webhooks.send("/jobs/guess", GOOD))[0] == 404


@pytest.mark.parametrize("path", list(HOOKS))
async def test_an_object_nested_without_end_is_refused_by_every_hook(
    webhooks: Webhooks, path: str
) -> None:
    deep = GOOD.replace(b'"object": {', b'"object": {"deep": ' + NESTED + b", ")
    response = await webhooks.response(path, deep)
    assert response["uid"] == "u-1"
    assert not response["allowed"]
    assert response["status"]["message"] == "object: nested more than 100 levels deep"


async def test_one_that_is_no_longer_nested_so_may_be_stored(webhooks: Webhooks) -> None:
    change = request(queue_named("parent"), operation="UPDATE", oldObject="BEFORE")
    before = b'{"metadata": {"name": "parent"}, "spec": {"deep": ' + NESTED + b"}}"
    body = review(change).replace(b'"BEFORE"', before)
    assert (await webhooks.response("/queues/validate", body))["allowed"]


async def test_a_deletion_has_an_old_object_only_w54(webhooks: Webhooks) -> None:
    """A deletion of a whole collection names nobody: only the objects have names then."""

    async def deleted(name: str, *, alone: bool) -> Json:
        gone = {"operation": "DELETE", "oldObject": queue_named(name)}
        asked = request(None, **gone, **({"name": name} if alone else {}))
        return await webhooks.response("/queues/validate", review(asked))

    for alone in (True, False):
        refusal = await deleted("parent", alone=alone)
        assert "it has 1 child queues: q" in refusal["status"]["message"]
        assert (await deleted("q", alone=alone))["allowed"]


async def test_a_dry_run_is_judged_as_any_other_and_a_patch_is_json(webhooks: Webhooks) -> None:
    response = await webhooks.response("/jobs/mutate", review(request(sparse_job(), dryRun=True)))
    assert response["patchType"] == "JSONPatch"
    paths = [change["path"] for change in json.loads(base64.b64decode(response["patch"]))]
    assert "/spec/maxRetry" in paths


async def test_a_refusal_names_each_field_apart_w20(webhooks: Webhooks) -> None:
    response = await webhooks.response(
        "/jobs/validate", review(request(sparse_job(plugins={"nope": []})))
    )
    assert response["status"]["code"] == 400
    (cause,) = response["status"]["details"]["causes"]
    assert cause["field"] == "spec.plugins.nope"
    assert cause["message"].startswith("unable to find job plugin: nope")


async def test_of_thousands_of_faults_a_message_tells_the_first_w20(webhooks: Webhooks) -> None:
    plugins = {f"nope-{number:04}": [] for number in range(5000)}
    response = await webhooks.response(
        "/jobs/validate", review(request(sparse_job(plugins=plugins)))
    )
    assert "unable to find job plugin: nope-0000" in response["status"]["message"]
    assert response["status"]["message"].endswith("and 4980 more faults;")
    assert len(response["status"]["details"]["causes"]) == 20
    long = sparse_job(queue="q" * 1_000_000)
    response = await webhooks.response("/jobs/validate", review(request(long)))
    assert len(json.dumps(response)) < 50_000


async def test_without_the_api_server_what_needs_it_is_left_to_the_failure_policy_w01(
    webhooks: Webhooks,
) -> None:
    webhooks.api.script[:] = [status(503, "not now")] * 100
    code, text = await webhooks.send("/jobs/validate", GOOD)
    assert (code, "cannot review now" in text) == (500, True), text
    assert (await webhooks.response("/jobs/mutate", GOOD))["allowed"]
    webhooks.api.script[:] = [cluster] * 100
    assert (await webhooks.response("/jobs/validate", GOOD))["allowed"]


@pytest.mark.parametrize(
    "cut_off",
    [
        lambda length: b"POST /jobs/validate HTTP/1.1\r\nHost: h\r\n",
        lambda length: (
            b"POST /jobs/validate HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
            b"Content-Length: " + str(length).encode() + b'\r\n\r\n{"api'
        ),
        lambda length: b"\x16\x03\x01 no HTTP at all\r\n\r\n",
    ],
    ids=["in-the-head", "in-the-body", "no-http"],
)
async def test_a_caller_that_breaks_off_costs_the_others_nothing_w01(
    webhooks: Webhooks, cut_off: Callable[[int], bytes]
) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    port = int(webhooks.url.rpartition(":")[2])
    writers = []
    for _ in range(20):
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.write(cut_off(1000))
        await writer.drain()
        writers.append(writer)
    assert (await webhooks.response("/jobs/validate", GOOD))["allowed"]
    for writer in writers:
        writer.transport.abort()
    assert (await webhooks.response("/jobs/validate", GOOD))["allowed"]
