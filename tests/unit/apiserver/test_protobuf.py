"""Bodies in Kubernetes' protobuf are read as the same objects in JSON, all else is refused."""

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pumice.embedded.apiserver import protobuf
from pumice.embedded.apiserver.catalogue import builtin
from pumice.embedded.apiserver.protobuf import BadProtobufError, decode


def number(value):
    """A varint."""
    out = bytearray()
    value &= (1 << 64) - 1
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def member(position, value):
    """One member of a message: bytes, text or a number."""
    if isinstance(value, int):
        return number(position << 3) + number(value)
    data = value.encode() if isinstance(value, str) else value
    return number(position << 3 | 2) + number(len(data)) + data


def body(api_version, kind, raw):
    head = member(1, api_version) + member(2, kind)
    return b"k8s\0" + member(1, head) + member(2, raw)


def named(name):
    """ObjectMeta as Go writes it: the empty fields too."""
    return member(1, name) + member(2, "") + member(3, "") + member(7, 0) + member(8, b"")


def test_what_go_leaves_out_of_json_is_left_out():
    found = decode(body("v1", "Namespace", member(1, named("a")) + member(2, b"")))
    assert found == {
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}, "spec": {},
    }  # fmt: skip


def test_a_zero_that_was_given_is_kept():
    options = decode(body("policy/v1", "DeleteOptions", member(1, 0) + member(4, "Background")))
    assert options["gracePeriodSeconds"] == 0
    assert options["propagationPolicy"] == "Background"


def test_maps_bytes_times_quantities_and_inlined_parts():
    secret = member(2, member(1, "key") + member(2, b"\xff\x00")) + member(3, "Opaque")
    assert decode(body("v1", "Secret", secret))["data"] == {"key": "/wA="}
    quota = member(2, member(1, member(1, "cpu") + member(2, member(1, "4"))))
    assert decode(body("v1", "ResourceQuota", quota))["spec"] == {"hard": {"cpu": "4"}}
    created = member(1, member(8, member(1, 86400)))
    assert decode(body("v1", "ConfigMap", created))["metadata"] == {
        "creationTimestamp": "1970-01-02T00:00:00Z"
    }
    volume = member(1, "v") + member(2, member(2, member(1, "")))  # an emptyDir
    pod = member(2, member(1, volume))
    assert decode(body("v1", "Pod", pod))["spec"]["volumes"] == [{"name": "v", "emptyDir": {}}]


def test_a_number_or_a_word_is_told_apart():
    for inner, value in (
        (member(1, 0) + member(2, 3), 3),
        (member(1, 1) + member(3, "50%"), "50%"),
    ):
        budget = member(2, member(1, inner))
        spec = decode(body("policy/v1", "PodDisruptionBudget", budget))["spec"]
        assert spec == {"minAvailable": value}


def test_negative_numbers_and_packed_lists():
    assert decode(body("v1", "DeleteOptions", member(1, -1)))["gracePeriodSeconds"] == -1
    security = member(4, number(5) + number(6))  # supplementalGroups
    pod = member(2, member(14, security))
    found = decode(body("v1", "Pod", pod))["spec"]["securityContext"]
    assert found["supplementalGroups"] == [5, 6]


def test_every_kind_that_is_served_and_sent_in_protobuf_is_known():
    kinds = {f"{r.api_version} {r.kind}" for r in builtin()}
    known = msgspec.json.decode(protobuf.TABLE.read_bytes())["kinds"]
    assert kinds - set(known) == {
        "apiextensions.k8s.io/v1 CustomResourceDefinition",
        "apiregistration.k8s.io/v1 APIService",
    }


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"{}", "does not begin with k8s"),
        (body("apps/v1", "Deployment", b""), "Deployment of apps/v1 is not known"),
        (b"k8s\0\x0a\xff", "ends too early"),
        (body("v1", "Pod", b"\x0a\x05ab"), "ends too early"),
        (body("v1", "Pod", b"\x0b"), "no form 3"),
        (body("v1", "Pod", b"\xff" * 12), "a number is too long"),
        (body("v1", "Pod", member(1, 7)), "a number stands where bytes belong"),
    ],
)
def test_what_is_no_object_is_refused_with_the_reason(data, said):
    with pytest.raises(BadProtobufError, match=said):
        decode(data)


@given(st.sampled_from(["Pod", "Secret", "Node", "DeleteOptions"]), st.binary(max_size=60))
def test_no_bytes_are_read_as_anything_but_an_object_or_a_refusal(kind, raw):
    with contextlib.suppress(ValueError):
        assert decode(body("v1", kind, raw))["kind"] == kind
