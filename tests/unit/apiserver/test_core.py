"""What the contract with the real server cannot show: time, webhooks, 410, the journal."""

import base64
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pumice.embedded.apiserver.admission import AdmissionResponse, Call
from pumice.embedded.apiserver.journal import StoreJournal
from pumice.embedded.apiserver.replies import ApiReply, ApiRequest, expired
from pumice.embedded.apiserver.watching import Watch
from tests.support.api_server import ApiServer, unreachable
from tests.support.world import pod

PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"
HOOKS = "/apis/admissionregistration.k8s.io/v1/"


class World:
    """A core on a clock that the test sets."""

    def __init__(
        self, webhooks: Callable[[Call], AdmissionResponse] = unreachable, keep: int = 100
    ) -> None:
        self.now = 1_800_000_000.0
        uids = itertools.count()
        self.core = ApiServer(
            now=lambda: self.now, uids=lambda: f"uid-{next(uids)}", webhooks=webhooks, keep=keep
        )

    def ask(self, method: str, path: str, body: object = None, **query: str) -> tuple[int, Any]:
        answer = self.core.handle(
            ApiRequest(method=method, path=path, query=query, body=json.dumps(body or {}).encode())
        )
        assert isinstance(answer, ApiReply)
        return answer.status, json.loads(answer.body)

    def watch(self, path: str, **query: str) -> Watch:
        told = self.core.handle(ApiRequest(method="GET", path=path, query={"watch": "1", **query}))
        assert isinstance(told, Watch)
        return told

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while (due := self.core.due_at()) is not None and due <= end:
            self.now = max(self.now, due)
            self.core.tick()
        self.now = end
        self.core.tick()

    def run_pod(self, **notes: str) -> None:
        node = {"metadata": {"name": "n", "annotations": {"kwok.x-k8s.io/node": "fake"}}}
        self.ask("POST", "/api/v1/nodes", node)
        annotations = {f"pumice.dev/{k.replace('_', '-')}": v for k, v in notes.items()}
        self.ask("POST", PODS, pod(scheduler="", annotations=annotations))
        self.ask("POST", f"{PODS}/p/binding", {"target": {"name": "n"}})

    def phase(self) -> str:
        return str(self.ask("GET", f"{PODS}/p")[1]["status"]["phase"])


def events(watch: Watch) -> list[tuple[str, str]]:
    told = [json.loads(line) for line in watch.take()]
    return [(e["type"], e["object"].get("metadata", {}).get("name", "")) for e in told]


def test_a_pod_starts_runs_and_ends_when_its_annotations_say_and_not_before() -> None:
    world = World()
    world.run_pod(start_seconds="2", run_seconds="3", exit_code="7")
    phases = []
    for _ in range(7):
        phases.append(world.phase())
        world.pass_time(0.999)
    assert phases == ["Pending"] * 3 + ["Running"] * 3 + ["Failed"]


def test_a_pod_stops_as_late_as_its_annotation_says() -> None:
    world = World()
    world.run_pod(stop_seconds="5")
    world.pass_time(1)
    world.ask("DELETE", f"{PODS}/p")
    world.pass_time(4.9)
    assert world.ask("GET", f"{PODS}/p")[0] == 200
    world.pass_time(0.2)
    assert world.ask("GET", f"{PODS}/p")[0] == 404


def test_two_cores_that_are_asked_alike_answer_alike() -> None:
    def story() -> list[bytes]:
        world = World()
        watch = world.watch("/api/v1/pods")
        world.run_pod(run_seconds="1")
        world.pass_time(3)
        return watch.take()

    assert story() == story()


def test_a_watch_that_starts_before_what_is_known_gets_410() -> None:
    world = World(keep=2)
    for name in "abcd":
        world.ask("POST", MAPS, {"metadata": {"name": name}})
    watch = world.watch(MAPS, resourceVersion="1")
    (error,) = [json.loads(line) for line in watch.take()]
    assert (error["type"], error["object"]["code"]) == ("ERROR", 410)
    assert watch.ended


def test_a_page_of_a_state_that_is_forgotten_gets_410() -> None:
    world = World()
    for name in "abc":
        world.ask("POST", MAPS, {"metadata": {"name": name}})
    page = world.ask("GET", MAPS, limit="1")[1]["metadata"]["continue"]
    world.ask("POST", MAPS, {"metadata": {"name": "d"}})
    world.core.compact()
    assert world.ask("GET", MAPS, **{"continue": page})[0] == 410


def test_a_watch_can_be_cut_in_mid_stream_with_410() -> None:
    world = World()
    watch = world.watch(MAPS)
    watch.take()
    world.core.break_watches(expired("too old resource version"))
    assert [json.loads(line)["object"]["code"] for line in watch.take()] == [410]
    assert watch.ended


def test_bookmarks_come_by_the_minute_and_shortly_before_the_end_of_a_watch() -> None:
    world = World()
    watch = world.watch(MAPS, allowWatchBookmarks="true", timeoutSeconds="150", resourceVersion="9")
    watch.take()
    world.pass_time(147)
    assert [kind for kind, _ in events(watch)] == ["BOOKMARK"] * 2
    world.pass_time(2)
    assert [kind for kind, _ in events(watch)] == ["BOOKMARK"]
    assert not watch.ended
    world.pass_time(2)
    assert watch.ended


def test_who_watches_hears_of_each_change_without_asking() -> None:
    world = World()
    watch = world.watch(MAPS, resourceVersion="9")
    calls: list[int] = []
    watch.on_change(lambda: calls.append(1))
    world.ask("POST", MAPS, {"metadata": {"name": "a"}})
    world.ask("DELETE", f"{MAPS}/a")
    assert events(watch)[-2:] == [("ADDED", "a"), ("DELETED", "a")]
    assert len(calls) == 2


def hook(kind: str, policy: str = "Fail", **more: object) -> dict[str, object]:
    rule = {
        "operations": ["CREATE"],
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": ["configmaps"],
    }
    one = {
        "name": "h.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/h"},
        "rules": [rule],
        "failurePolicy": policy,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        **more,
    }
    return {"kind": kind, "metadata": {"name": "h"}, "webhooks": [one]}


def replying(**response: object) -> Callable[[Call], AdmissionResponse]:
    def reply(call: Call) -> AdmissionResponse:
        uid = json.loads(call.body)["request"]["uid"]
        return AdmissionResponse(body=json.dumps({"response": {"uid": uid, **response}}).encode())

    return reply


def created(world: World, **labels: str) -> tuple[int, Any]:
    return world.ask("POST", MAPS, {"metadata": {"name": "a", "labels": labels}})


def test_a_mutating_webhook_changes_what_is_written() -> None:
    patch = [{"op": "add", "path": "/data", "value": {"k": "v"}}]
    told = base64.b64encode(json.dumps(patch).encode()).decode()
    world = World(replying(allowed=True, patchType="JSONPatch", patch=told))
    world.ask("POST", f"{HOOKS}mutatingwebhookconfigurations", hook("MutatingWebhookConfiguration"))
    assert created(world)[1]["data"] == {"k": "v"}
    assert world.ask("GET", f"{MAPS}/a")[1]["data"] == {"k": "v"}


def test_a_validating_webhook_says_no_with_its_own_words() -> None:
    world = World(replying(allowed=False, status={"message": "not today", "code": 418}))
    world.ask(
        "POST", f"{HOOKS}validatingwebhookconfigurations", hook("ValidatingWebhookConfiguration")
    )
    status, told = created(world)
    assert (status, told["message"]) == (
        418,
        'admission webhook "h.example.com" denied the request: not today',
    )
    assert world.ask("GET", f"{MAPS}/a")[0] == 404


@pytest.mark.parametrize(("policy", "status"), [("Fail", 500), ("Ignore", 201)])
def test_a_webhook_that_cannot_be_reached_fails_or_is_ignored(policy: str, status: int) -> None:
    world = World()
    body = hook("ValidatingWebhookConfiguration", policy)
    world.ask("POST", f"{HOOKS}validatingwebhookconfigurations", body)
    assert created(world)[0] == status


@pytest.mark.parametrize(
    "selector",
    [
        {"objectSelector": {"matchLabels": {"k": "v"}}},
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "other"}}},
    ],
    ids=["object", "namespace"],
)
def test_a_webhook_is_not_asked_about_what_it_did_not_select(selector: dict[str, object]) -> None:
    world = World()
    body = hook("ValidatingWebhookConfiguration", "Fail", **selector)
    world.ask("POST", f"{HOOKS}validatingwebhookconfigurations", body)
    assert created(world)[0] == 201


@pytest.mark.parametrize(
    "path",
    [
        f"{PODS}/p/ephemeralcontainers",
        "/apis/autoscaling/v2/horizontalpodautoscalers",
        "/apis/apps/v1/deployments",
    ],
)
def test_what_is_not_served_names_itself(path: str) -> None:
    status, told = World().ask("GET", path)
    assert status == 501
    assert path.rpartition("/")[2] in told["message"]
    assert "embedded API server" in told["message"]


def test_a_fake_pod_has_no_log_and_says_why() -> None:
    status, told = World().ask("GET", f"{PODS}/p/log")
    assert status == 400
    assert "pod p runs on a fake node: no program was started" in told["message"]


def test_what_is_not_served_is_listed_so_that_a_client_asks_and_is_told() -> None:
    world = World()
    listed = {entry["name"] for entry in world.ask("GET", "/apis/apps/v1")[1]["resources"]}
    assert {"deployments", "replicasets"} <= listed
    (eviction,) = (
        entry
        for entry in world.ask("GET", "/api/v1")[1]["resources"]
        if entry["name"] == "pods/eviction"
    )
    assert (eviction["group"], eviction["kind"]) == ("policy", "Eviction")


def test_a_journal_brings_back_what_was_written_and_not_what_was_deleted(tmp_path: Path) -> None:
    first = World()
    journal = StoreJournal(tmp_path / "objects.jsonl")
    journal.follow(first.core.api.store)
    for name in "ab":
        first.ask("POST", MAPS, {"metadata": {"name": name}, "data": {"k": name}})
    first.ask("DELETE", f"{MAPS}/b")
    journal.close()
    with (tmp_path / "objects.jsonl").open("ab") as file:
        file.write(b'{"resource":"torn')
    second = World()
    journal = StoreJournal(tmp_path / "objects.jsonl")
    second.core.load_journal(journal)
    assert second.ask("GET", f"{MAPS}/a")[1] == first.ask("GET", f"{MAPS}/a")[1]
    assert second.ask("GET", f"{MAPS}/b")[0] == 404
    assert second.core.api.store.version >= first.core.api.store.version
    journal.close()


def test_an_api_service_that_names_no_server_is_shown_as_local() -> None:
    world = World()
    url = "/apis/apiregistration.k8s.io/v1/apiservices"
    spec = {"group": "things.dev", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1}
    assert world.ask("POST", url, {"metadata": {"name": "v1.things.dev"}, "spec": spec})[0] == 201
    table = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    answer = world.core.handle(ApiRequest(method="GET", path=url, headers=table))
    assert isinstance(answer, ApiReply)
    ((_, service, *_),) = (row["cells"] for row in json.loads(answer.body)["rows"])
    assert service == "Local"


def test_a_pod_in_a_wide_table_shows_its_node_and_address() -> None:
    world = World()
    world.run_pod()
    world.pass_time(5)
    table = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    url = "/api/v1/namespaces/default/pods"
    answer = world.core.handle(ApiRequest(method="GET", path=url, headers=table))
    assert isinstance(answer, ApiReply)
    shown = json.loads(answer.body)
    names = [column["name"] for column in shown["columnDefinitions"]]
    (row,) = shown["rows"]
    cells = dict(zip(names, row["cells"], strict=True))
    (pod,) = world.ask("GET", url)[1]["items"]
    assert (cells["Node"], cells["IP"]) == ("n", pod["status"]["podIP"])
    assert (cells["Nominated Node"], cells["Readiness Gates"]) == ("<none>", "<none>")
