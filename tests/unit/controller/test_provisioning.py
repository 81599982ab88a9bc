"""ProvisioningRequests of gangs: which one a gang has, and what a process writes for it."""

import asyncio
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pumice.embedded.apiserver.replies import ApiReply, ApiRequest, json_reply
from services.controller.provisioning.plan import change_for, template_body
from shared.api import kinds, time
from shared.api.autoscaling import (
    NeededPods,
    ProvisioningRequest,
    ProvisioningStage,
    attempt_of,
    needed_pods,
    needed_text,
    stage_of,
)
from shared.api.scheduling import PodGroup
from tests.unit.controller.provisioning import condition
from tests.unit.controller.reconcilers import NAMESPACE, Died, Process, Stage

CLASS = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
NOW = time.parse("2025-03-11T10:00:30Z")
UID = "uid-g"


def group(*, needs: bool = True, uid: str = UID) -> PodGroup:
    status = "True" if needs else "False"
    sets = needed_text([NeededPods(2, "g-0"), NeededPods(1, "g-2")])
    shown = {"type": "NodesNeeded", "status": status, "reason": CLASS, "message": sets}
    return msgspec.convert(
        {
            "metadata": {"name": "g", "namespace": NAMESPACE, "uid": uid},
            "status": {"conditions": [shown]},
        },
        PodGroup,
    )


def request(attempt: int, *shown: dict[str, str], uid: str = UID) -> ProvisioningRequest:
    owner = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "name": "g"}
    return msgspec.convert(
        {
            "metadata": {
                "name": f"g-{attempt}",
                "namespace": NAMESPACE,
                "ownerReferences": [{**owner, "uid": uid, "controller": True}],
            },
            "status": {"conditions": shown},
        },
        ProvisioningRequest,
    )


def test_a_gang_that_needs_nodes_has_one_request() -> None:
    assert change_for(group(), [], now=NOW).create == "g-1"
    change = change_for(group(), [request(1)], now=NOW)
    assert (change.create, change.delete, change.again_in_s) == ("", (), 0.0)


def test_a_gang_that_needs_none_has_none() -> None:
    made = request(1, condition("Provisioned"))
    change = change_for(group(needs=False), [made], now=NOW)
    assert (change.create, change.delete) == ("", (made,))


@pytest.mark.parametrize("kind", ["Accepted", "Provisioned"])
def test_a_request_under_way_is_kept(kind: str) -> None:
    change = change_for(group(), [request(1, condition(kind))], now=NOW + 10**6)
    assert (change.create, change.delete) == ("", ())


@pytest.mark.parametrize("kind", ["Failed", "BookingExpired", "CapacityRevoked"])
@pytest.mark.parametrize(
    ("attempt", "delay_s"), [(1, 60), (2, 120), (5, 960), (6, 1800), (999, 1800)]
)
def test_one_that_brought_no_nodes_is_replaced_after_a_delay_that_doubles(
    kind: str, attempt: int, delay_s: float
) -> None:
    ended = request(attempt, condition("Provisioned"), condition(kind))
    early = change_for(group(), [ended], now=NOW + delay_s - 1)
    assert (early.create, early.again_in_s) == ("", 1.0)
    assert change_for(group(), [ended], now=NOW + delay_s).create == f"g-{attempt + 1}"


def test_the_replaced_request_is_deleted_once_its_successor_exists() -> None:
    ended, next_one = request(1, condition("Failed")), request(2)
    change = change_for(group(), [next_one, ended], now=NOW)
    assert (change.create, change.delete) == ("", (ended,))


def test_requests_of_a_former_group_of_that_name_are_left_to_the_garbage_collector() -> None:
    change = change_for(group(), [request(7, uid="other")], now=NOW)
    assert (change.create, change.delete) == ("g-1", ())


@pytest.mark.parametrize(
    ("shown", "stage"),
    [
        ([], ProvisioningStage.NEW),
        (["Accepted"], ProvisioningStage.ACCEPTED),
        (["Accepted", "Provisioned"], ProvisioningStage.PROVISIONED),
        (["BookingExpired", "Provisioned"], ProvisioningStage.BOOKING_EXPIRED),
        (["Failed", "Accepted"], ProvisioningStage.FAILED),
        (["SomethingElse"], ProvisioningStage.NEW),
    ],
)
def test_the_stage_is_the_last_condition_that_is_true(
    shown: list[str], stage: ProvisioningStage
) -> None:
    assert stage_of(request(1, *map(condition, shown)))[0] is stage


def test_the_number_of_an_attempt_is_that_of_its_name() -> None:
    assert attempt_of(request(12)) == 12
    assert attempt_of(msgspec.convert({"metadata": {"name": "mine"}}, ProvisioningRequest)) == 0


name = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,20}[a-z0-9])?", fullmatch=True)


@given(st.lists(st.builds(NeededPods, pods=st.integers(1, 10**6), like=name), max_size=32))
def test_the_message_of_the_condition_names_the_pods(needed: list[NeededPods]) -> None:
    assert needed_pods(needed_text(needed)) == needed


def test_a_template_has_what_placement_reads_of_a_pod_and_nothing_of_its_own() -> None:
    pod = {
        "metadata": {"name": "g-0", "uid": "u", "labels": {"a": "b"}, "annotations": {"c": "d"}},
        "spec": {
            "nodeName": "n",
            "hostname": "g-0",
            "nodeSelector": {"gpu": "yes"},
            "tolerations": [{"operator": "Exists"}],
            "volumes": [{"name": "kube-api-access-x"}, {"name": "data"}],
            "containers": [
                {
                    "name": "c",
                    "resources": {"requests": {"cpu": "1"}},
                    "volumeMounts": [{"name": "data"}, {"name": "kube-api-access-x"}],
                }
            ],
        },
    }
    made = template_body("t", request(1).metadata, pod)["template"]
    assert made["metadata"] == {"labels": {"a": "b"}}
    assert made["spec"]["volumes"] == [{"name": "data"}]
    (container,) = made["spec"]["containers"]
    assert container["volumeMounts"] == [{"name": "data"}]
    assert not {"nodeName", "hostname"} & made["spec"].keys()
    assert {"nodeSelector", "tolerations"} <= made["spec"].keys()


# --- on an API server ------------------------------------------------------------------------


class TemplateStage(Stage):
    """An API server that serves PodTemplates, too: the embedded one does not."""

    def __init__(self) -> None:
        super().__init__()
        self.templates: dict[str, dict[str, Any]] = {}

    def handle(self, request: ApiRequest) -> ApiReply:
        """Store PodTemplates by name."""
        if request.path != kinds.PODTEMPLATE.path(NAMESPACE):
            return super().handle(request)
        body = json.loads(request.body)
        taken = body["metadata"]["name"] in self.templates
        self.templates.setdefault(body["metadata"]["name"], body)
        reason = {"kind": "Status", "reason": "AlreadyExists"}
        return json_reply(reason if taken else body, 409 if taken else 201)


def build(stage: Stage) -> None:
    """Create a gang of three pods, two alike, that needs nodes."""
    stage.create(kinds.PODGROUP, "g", {"minMember": 3, "queue": "default"})
    for at in range(3):
        container = {
            "name": "c",
            "image": "i",
            "resources": {"requests": {"cpu": "2" if at == 2 else "1"}},
        }
        spec = {"schedulerName": "volcano", "containers": [container]}
        stage.create(kinds.POD, f"g-{at}", spec)
    need(stage, "True")


def need(stage: Stage, status: str) -> None:
    sets = needed_text([NeededPods(2, "g-0"), NeededPods(1, "g-2")])
    shown = {"type": "NodesNeeded", "status": status, "reason": CLASS, "message": sets}
    stage.ask("PATCH", kinds.PODGROUP, "g", {"status": {"conditions": [shown]}})


def report(stage: Stage, request_name: str, kind: str) -> None:
    at = time.format_seconds(stage.clock.now())
    status = {"status": {"conditions": [condition(kind, at=at)]}}
    stage.ask("PATCH", kinds.PROVISIONINGREQUEST, request_name, status, "status")


def look(process: Process) -> None:
    process.relist()
    asyncio.run(process.look("provisioning"))


def requests(stage: Stage) -> list[dict[str, Any]]:
    return stage.items(kinds.PROVISIONINGREQUEST)


def test_a_gangs_request_names_templates_of_its_pods() -> None:
    stage = TemplateStage()
    build(stage)
    look(Process(stage))
    (made,) = requests(stage)
    assert made["metadata"]["name"] == "g-1"
    assert made["spec"]["provisioningClassName"] == CLASS
    assert [each["count"] for each in made["spec"]["podSets"]] == [2, 1]
    named = [each["podTemplateRef"]["name"] for each in made["spec"]["podSets"]]
    requested = [
        stage.templates[each]["template"]["spec"]["containers"][0]["resources"]["requests"]
        for each in named
    ]
    assert requested == [{"cpu": "1"}, {"cpu": "2"}]


def test_the_request_is_deleted_when_the_gang_has_started() -> None:
    stage = TemplateStage()
    build(stage)
    process = Process(stage)
    look(process)
    report(stage, "g-1", "Provisioned")
    need(stage, "False")
    look(process)
    assert requests(stage) == []


def test_another_process_replaces_a_request_that_failed() -> None:
    stage = TemplateStage()
    build(stage)
    look(Process(stage))
    report(stage, "g-1", "Failed")
    look(Process(stage))
    assert [each["metadata"]["name"] for each in requests(stage)] == ["g-1"]
    asyncio.run(stage.clock.advance(61))
    process = Process(stage)
    look(process)
    look(process)
    assert [each["metadata"]["name"] for each in requests(stage)] == ["g-2"]


@pytest.mark.parametrize("dies_at", [1, 2, 3])
def test_a_request_is_completed_by_the_next_process_wherever_one_dies(dies_at: int) -> None:
    stage = TemplateStage()
    build(stage)
    with pytest.raises(Died):
        look(Process(stage, dies_at=dies_at))
    look(Process(stage))
    assert len(requests(stage)) == 1
    assert len(stage.templates) == 2


def test_where_the_kind_is_not_served_the_gang_says_so_and_nothing_else_happens() -> None:
    stage = TemplateStage()
    build(stage)
    process = Process(stage)
    process.relist()
    name = f"{kinds.PROVISIONINGREQUEST.plural}.{kinds.PROVISIONINGREQUEST.group}"
    stage.ask("DELETE", kinds.CRD, name)
    asyncio.run(process.look("provisioning"))
    assert stage.templates == {}
