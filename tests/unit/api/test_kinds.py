"""The catalogue of kinds: paths, decoding that forgives what Go writes, encoding for creates."""

import json

import msgspec
import pytest

from shared.api import kinds
from shared.api.core import Pod
from shared.api.kinds import KINDS, Kind, decode, encode
from shared.api.scheduling import PodGroup, PodGroupSpec


@pytest.mark.parametrize(
    ("kind", "place", "path"),
    [
        (kinds.POD, (), "/api/v1/pods"),
        (kinds.POD, ("ns",), "/api/v1/namespaces/ns/pods"),
        (kinds.POD, ("ns", "p", "binding"), "/api/v1/namespaces/ns/pods/p/binding"),
        (kinds.NODE, ("", "n", "status"), "/api/v1/nodes/n/status"),
        (kinds.NODE, ("ignored", "n"), "/api/v1/nodes/n"),
        (kinds.JOB, ("ns", "j"), "/apis/batch.volcano.sh/v1alpha1/namespaces/ns/jobs/j"),
        (kinds.QUEUE, ("", "q"), "/apis/scheduling.volcano.sh/v1beta1/queues/q"),
    ],
)
def test_a_path_leads_to_the_collection_the_object_or_its_subresource(
    kind: Kind, place: tuple[str, ...], path: str
) -> None:
    assert kind.path(*place) == path


@pytest.mark.parametrize("token", KINDS)
def test_a_token_is_one_subject_token_and_leads_back_to_its_kind(token: str) -> None:
    assert token.isalpha()
    assert KINDS[token].token == token


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.token)
def test_an_object_without_fields_decodes_and_encodes(kind: Kind) -> None:
    assert json.loads(encode(kind, decode(kind, b"{}"))) == {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
    }


def test_an_encoded_object_says_what_it_is() -> None:
    group = PodGroup(spec=PodGroupSpec(min_member=3, queue="research"))
    assert json.loads(encode(kinds.PODGROUP, group)) == {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "spec": {"minMember": 3, "queue": "research"},
    }


def test_nulls_that_go_writes_count_as_absent() -> None:
    node = decode(kinds.CSINODE, b'{"metadata":{"name":"n"},"spec":{"drivers":null}}')
    assert node.spec.drivers == ()
    pod = decode(kinds.POD, b'{"spec":{"containers":[{"name":"c","ports":null}],"volumes":null}}')
    assert pod.spec.containers[0].ports == ()


def test_a_fault_beside_a_null_is_still_a_fault() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"\$\.spec\.priority"):
        decode(kinds.POD, b'{"spec":{"volumes":null,"priority":"high"}}')


def test_what_nobody_reads_is_dropped() -> None:
    pod = decode(
        kinds.POD, b'{"metadata":{"managedFields":[{}],"name":"p"},"spec":{"dnsPolicy":"x"}}'
    )
    assert msgspec.json.encode(pod) == b'{"metadata":{"name":"p"},"spec":{}}'


def test_a_heartbeat_is_no_change_of_a_node() -> None:
    def node(beat: str) -> bytes:
        condition = {"type": "Ready", "status": "True", "lastHeartbeatTime": beat}
        return msgspec.json.encode({"status": {"conditions": [condition]}})

    before, after = (decode(kinds.NODE, node(f"2026-08-20T10:0{n}:00Z")) for n in (1, 2))
    assert before == after


def test_a_pod_of_a_newer_kubernetes_decodes() -> None:
    """A pod that cannot be decoded would be a pod whose usage nobody counts."""
    pod: Pod = decode(
        kinds.POD,
        b'{"spec":{"tolerations":[{"key":"a","operator":"Near"}],"nodeName":"n"},'
        b'"status":{"phase":"Dreaming"}}',
    )
    assert pod.status.phase == "Dreaming"
    assert pod.spec.tolerations[0].operator == "Near"


def test_a_template_travels_verbatim() -> None:
    template = b'{"metadata": {"creationTimestamp": null}, "spec": {"new": [1.5, null]}}'
    job = decode(kinds.JOB, b'{"spec":{"tasks":[{"template":' + template + b"}]}}")
    assert bytes(job.spec.tasks[0].template) == template
    assert template in encode(kinds.JOB, job)


def test_a_claim_spec_travels_verbatim() -> None:
    claim = b'{"resources": {"requests": {"storage": "1Gi"}}, "x": null}'
    job = decode(
        kinds.JOB, b'{"spec":{"volumes":[{"mountPath":"/d","volumeClaim":' + claim + b"}]}}"
    )
    volume = job.spec.volumes[0].volume_claim
    assert volume is not msgspec.UNSET
    assert bytes(volume) == claim
    assert claim in encode(kinds.JOB, job)


@pytest.mark.parametrize("amount", ["2", 2, "500m", "1e3", "+1.5Gi"], ids=repr)
def test_quantities_of_volcano_kinds_are_numbers_or_text(amount: str | int) -> None:
    queue = decode(kinds.QUEUE, msgspec.json.encode({"spec": {"capability": {"cpu": amount}}}))
    assert queue.spec.capability["cpu"] == amount


@pytest.mark.parametrize("amount", ["two", "1 Gi", 0.5, True, ""])
def test_what_is_no_quantity_is_refused(amount: object) -> None:
    with pytest.raises(msgspec.ValidationError, match=r"\$\.spec\.capability"):
        decode(kinds.QUEUE, msgspec.json.encode({"spec": {"capability": {"cpu": amount}}}))
