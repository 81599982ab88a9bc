"""The aggregated API behind a real API server: discovery, rights, tables, watches, what-ifs."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from pumice.local.control_plane import ControlPlane
from pumice.local.ports import free_port
from services.visibility.api.resources import RESOURCES
from services.visibility.settings import VisibilitySettings
from shared.api.meta import ObjectMeta
from shared.api.visibility import NodeUse, ObjectRef, RunningJob
from shared.kube.config import connect as connect_kube
from shared.runtime.errors import Retryable
from tests.integration.deploy.tenants import tenant
from tests.integration.visibility.conftest import API_SERVICE
from tests.support.answers import FixedAnswers, costly, explained, lived, pending, tree
from tests.support.api import Api, ApiError, connect, credentials, refusal
from tests.support.visibility import serving_api
from tests.support.wait import until

pytestmark = pytest.mark.asyncio(loop_scope="session")

ROOT = "/apis/visibility.pumice.dev/v1alpha1"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
ABOUT = ObjectRef(kind="Job", namespace="a", name="one")


def namespaced(namespace: str, plural: str, name: str = "") -> str:
    return "/".join(filter(None, (ROOT, "namespaces", namespace, plural, name)))


@asynccontextmanager
async def raw_session(kubeconfig: Path) -> AsyncIterator[aiohttp.ClientSession]:
    """A session that sends the headers that a test wants."""
    server, headers, tls = credentials(kubeconfig)
    connector = aiohttp.TCPConnector(ssl=tls)
    async with aiohttp.ClientSession(server, headers=headers, connector=connector) as session:
        yield session


async def test_kubectl_finds_the_resources_and_their_fields(told: FixedAnswers, api: Api) -> None:
    found = await api.request("GET", ROOT)
    verbs = {entry["name"]: entry["verbs"] for entry in found["resources"]}
    assert verbs["pendingjobs"] == ["get", "list", "watch"]
    assert verbs["whatifs"] == ["create"]

    async def has_document() -> bool:
        listed = await api.request("GET", "/openapi/v3")
        return ROOT.removeprefix("/") in listed["paths"]

    await until(has_document, deadline_s=60, describe="the OpenAPI document of the group")
    document = await api.request("GET", f"/openapi/v3{ROOT}")
    schemas = document["components"]["schemas"]
    job = schemas["dev.pumice.visibility.v1alpha1.PendingJob"]
    assert "Place in its queue's line" in job["properties"]["position"]["description"]

    async def is_merged() -> bool:
        """The API server merges documents of others into its own a moment later."""
        merged = await api.request("GET", "/openapi/v2")
        return "dev.pumice.visibility.v1alpha1.WhatIf" in merged["definitions"]

    await until(is_merged, deadline_s=60, describe="the merged document")


async def test_aggregated_discovery_names_the_resources_with_short_names(
    told: FixedAnswers, control_plane: ControlPlane
) -> None:
    wanted = [short for resource in RESOURCES for short in resource.short_names]
    assert {"pj", "qt"} <= set(wanted)
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    async with raw_session(control_plane.kubeconfig) as session:

        async def short_names() -> list[str]:
            async with session.get("/apis", headers={"Accept": accept}) as answer:
                items = (await answer.json(content_type=None))["items"]
            found = [i for i in items if i["metadata"]["name"] == "visibility.pumice.dev"]
            return [
                short
                for item in found
                for version in item["versions"]
                for resource in version["resources"]
                for short in resource.get("shortNames", ())
            ]

        async def are_known() -> bool:
            return sorted(await short_names()) == sorted(wanted)

        await until(are_known, deadline_s=30, describe="short names in aggregated discovery")


async def test_waiting_jobs_are_a_list_and_a_table(
    told: FixedAnswers, api: Api, control_plane: ControlPlane
) -> None:
    told.jobs = [pending("a", "first"), pending("b", "second", position=2)]
    found = await api.request("GET", f"{ROOT}/pendingjobs")
    assert [item["metadata"]["name"] for item in found["items"]] == ["first", "second"]
    assert found["kind"] == "PendingJobList"
    async with raw_session(control_plane.kubeconfig) as session:
        url = namespaced("b", "pendingjobs")
        async with session.get(url, headers={"Accept": TABLE}) as answer:
            table = await answer.json()
    names = [column["name"] for column in table["columnDefinitions"] if not column["priority"]]
    assert names == ["Name", "Queue", "Position", "Gate", "Short", "Waiting", "Start"]
    ((name, queue, position, gate, short, *_),) = (row["cells"] for row in table["rows"])
    assert (name, queue, position, gate) == ("second", "default", 2, "gang")
    assert short == "nvidia.com/gpu 4 (2 free)"


async def test_running_jobs_and_the_use_of_nodes_are_lists_too(
    told: FixedAnswers, api: Api
) -> None:
    told.running = [
        RunningJob(metadata=ObjectMeta(namespace="a", name=name), owner=ABOUT, queue="q")
        for name in ("one", "two")
    ]
    told.nodes = [NodeUse(metadata=ObjectMeta(name="n"))]
    for plural, names in (("runningjobs", ["one", "two"]), ("nodeuses", ["n"])):
        found = await api.request("GET", f"{ROOT}/{plural}")
        assert [item["metadata"]["name"] for item in found["items"]] == names
    one = await api.request("GET", namespaced("a", "runningjobs", "two"))
    assert one["kind"] == "RunningJob"
    assert (await api.request("GET", f"{ROOT}/nodeuses/n"))["kind"] == "NodeUse"


async def test_the_line_of_a_queue_is_its_subresource(told: FixedAnswers, api: Api) -> None:
    told.jobs = [pending("a", "mine", queue="q"), pending("a", "other", queue="r")]
    told.queues = [tree("q"), tree("r")]
    found = await api.request("GET", f"{ROOT}/queues/q/pendingjobs")
    assert [item["metadata"]["name"] for item in found["items"]] == ["mine"]
    assert "not found" in await refusal(api.request("GET", f"{ROOT}/queues/x/pendingjobs"))


async def test_an_edge_of_the_api_is_refused_with_its_reason(told: FixedAnswers, api: Api) -> None:
    told.failure = Retryable("the state of the cluster is not synced yet")
    for url, code in (
        (f"{ROOT}/pendingjobs", 503),
        (namespaced("a", "timelines", "x"), 503),
        (namespaced("a", "nothing"), 404),
        (namespaced("a", "explanations"), 405),
    ):
        with pytest.raises(ApiError) as refused:
            await api.request("GET", url)
        assert refused.value.status == code, url
    with pytest.raises(ApiError) as refused:
        await api.request("DELETE", namespaced("a", "pendingjobs", "x"))
    assert refused.value.status == 405


async def test_a_tenant_sees_his_namespace_and_nothing_of_another(
    told: FixedAnswers, api: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    told.jobs = [pending("mine", "a"), pending("theirs", "b")]
    told.explanations = {("mine", "a"): explained("mine", "a", held_in=["mine", "theirs"])}
    told.timelines = {("mine", "a"): lived("mine", "a")}
    async with tenant(control_plane, api, "mine", tmp_path) as his:
        found = await his.request("GET", namespaced("mine", "pendingjobs"))
        assert [item["metadata"]["name"] for item in found["items"]] == ["a"]
        why = await his.request("GET", namespaced("mine", "explanations", "a"))
        assert [holder["job"]["namespace"] for holder in why["holders"]] == ["mine"]
        assert why["hiddenHolders"] == 1
        life = await his.request("GET", namespaced("mine", "timelines", "a"))
        assert [entry["what"] for entry in life["entries"]] == ["Created", "Waits"]
        for url in (
            f"{ROOT}/pendingjobs",
            f"{ROOT}/queuetrees",
            f"{ROOT}/queues/default/pendingjobs",
            namespaced("theirs", "pendingjobs"),
            namespaced("theirs", "explanations", "b"),
            namespaced("theirs", "timelines", "b"),
        ):
            assert "forbidden" in await refusal(his.request("GET", url)), url
    everything = await api.request("GET", namespaced("mine", "explanations", "a"))
    assert len(everything["holders"]) == 2
    assert "hiddenHolders" not in everything


async def test_a_tenant_asks_what_if_about_jobs_and_not_about_the_cluster(
    told: FixedAnswers, api: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    told.verdict = costly("asking", "another", "third")
    task = {"replicas": 2, "name": "t", "template": {"spec": {"containers": []}}}
    job = {"metadata": {"name": "j"}, "spec": {"queue": "q", "tasks": [task]}}
    head = {"apiVersion": "visibility.pumice.dev/v1alpha1", "kind": "WhatIf"}
    async with tenant(control_plane, api, "asking", tmp_path) as his:
        url = namespaced("asking", "whatifs")
        answer = await his.request("POST", url, {**head, "spec": {"job": job}})
        assert answer["status"]["startsNow"] is True
        assert [pod["namespace"] for pod in answer["status"]["evictions"]] == ["asking"]
        assert answer["status"]["hidden"] == 4
        assert answer["spec"] == {"job": job}
        ((namespace, spec),) = told.asked
        assert (namespace, spec.job.spec.tasks[0].replicas) == ("asking", 2)
        drained = {**head, "spec": {"job": job, "drainNodes": ["n"]}}
        changed = {**head, "spec": {"job": job, "changeQueue": {"name": "q", "weight": 2}}}
        shapes = {**head, "spec": {"job": job, "shapes": [{"metadata": {"name": "large"}}]}}
        for of_cluster in (drained, changed, shapes):
            assert "whatifs/cluster" in await refusal(his.request("POST", url, of_cluster))
        wrong = {**head, "spec": {"jbo": job, "job": job}}
        strict = f"{url}?fieldValidation=Strict"
        assert 'unknown field "spec.jbo"' in await refusal(his.request("POST", strict, wrong))
        foreign = {"job": {**job, "metadata": {"name": "j", "namespace": "theirs"}}}
        refused = await refusal(his.request("POST", url, {**head, "spec": foreign}))
        assert "is not the namespace of the request" in refused
    admin = await api.request("POST", url, drained)
    assert len(admin["status"]["evictions"]) == 3
    assert len(told.asked) == 2


async def test_a_watch_tells_what_comes_changes_and_goes(
    told: FixedAnswers, control_plane: ControlPlane
) -> None:
    told.jobs = [pending("a", "first"), pending("a", "second", position=2)]
    url = namespaced("a", "pendingjobs")
    async with raw_session(control_plane.kubeconfig) as session:
        async with session.get(url) as answer:
            version = (await answer.json())["metadata"]["resourceVersion"]
        query = {"watch": "true", "resourceVersion": version}
        async with asyncio.timeout(30), session.get(url, params=query) as stream:
            told.jobs = [pending("a", "second", position=1), pending("a", "third", position=2)]
            seen = set()
            async for line in stream.content:
                event = json.loads(line)
                seen.add((event["type"], event["object"]["metadata"]["name"]))
                if len(seen) == 3:
                    break
    assert seen == {("DELETED", "first"), ("MODIFIED", "second"), ("ADDED", "third")}


async def test_a_caller_that_is_not_the_api_server_is_refused(
    told: FixedAnswers, control_plane: ControlPlane
):
    """A caller that names a user, with a certificate of users or with none, stays unknown."""
    async with connect(control_plane.kubeconfig) as api:
        service = (await api.request("GET", API_SERVICE))["spec"]["service"]
    url = f"https://127.0.0.1:{service['port']}{ROOT}/pendingjobs"
    headers = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}
    async with (
        aiohttp.ClientSession() as session,
        session.get(url, headers=headers, ssl=False) as answer,
    ):
        assert answer.status == 401
        assert (await answer.json())["reason"] == "Unauthorized"


async def test_the_registration_goes_with_the_process(control_plane: ControlPlane, api: Api):
    settings = VisibilitySettings(
        port=free_port(),
        bind_address="127.0.0.1",
        external_name="127.0.0.1",
        service_namespace="kube-system",
    )
    kube = await connect_kube(str(control_plane.kubeconfig), user_agent="pumice-visibility")
    async with serving_api(settings, kube, FixedAnswers()):
        assert (await api.request("GET", API_SERVICE))["spec"]["caBundle"]
    for url in (API_SERVICE, "/api/v1/namespaces/kube-system/services/pumice-visibility"):
        with pytest.raises(ApiError) as refused:
            await api.request("GET", url)
        assert refused.value.status == 404
