"""An object with bytes that no decoder takes is quarantined by itself and hides no other."""

import pytest

from shared.api.kinds import POD
from shared.kube.client import Kube
from shared.kube.decode import Bookmark, Changed, ChangeOp, KindDecoder, Malformed
from shared.kube.errors import Unreachable
from tests.support.scripted_api import ScriptedApi, chunks
from tests.unit.kube.test_listwatch import conversation

BAD = {
    "no text": b'"schedulerName":"\xff\xfe"',
    "half a character": b'"schedulerName":"\xed\xa0\x80"',
    "a control character": b'"schedulerName":"a\x01b"',
    "a raw line feed": b'"schedulerName":"a\rb"',
    "half an escape": b'"schedulerName":"\\ud800"',
    "no word of JSON": b'"schedulerName":tru',
    "a member too few": b'"schedulerName":',
    "a text for a number": b'"priority":"high"',
    "deep nulls": b'"priority":"x","a":%s1%s' % (b'{"a":' * 700, b"}" * 700),
}


def pod_bytes(name: bytes, spec: bytes = b"", metadata: bytes = b"") -> bytes:
    return (
        b'{"spec":{%s},"metadata":{"name":"%s","namespace":"ns","uid":"u-%s",'
        b'"resourceVersion":"7"%s}}' % (spec, name, name, metadata)
    )


def listed(*bodies: bytes) -> bytes:
    return b'{"kind":"PodList","items":[%s],"metadata":{"resourceVersion":"9"}}' % b",".join(bodies)


@pytest.mark.parametrize("spec", BAD.values(), ids=BAD)
def test_a_page_with_it_is_read_without_it(spec: bytes) -> None:
    page = KindDecoder(POD).page(listed(pod_bytes(b"a"), pod_bytes(b"bad", spec), pod_bytes(b"b")))
    assert [item.metadata.name for item in page.items] == ["a", "b"]
    assert [(odd.metadata.key, odd.metadata.uid) for odd in page.malformed] == [("ns/bad", "u-bad")]
    assert page.malformed[0].error
    assert page.resource_version == "9"


@pytest.mark.parametrize("op", list(ChangeOp))
@pytest.mark.parametrize("spec", BAD.values(), ids=BAD)
def test_a_change_of_it_is_told_with_its_name(spec: bytes, op: ChangeOp) -> None:
    event = b'{"type":"%s","object":%s}\n'
    lines = event % (b"ADDED", pod_bytes(b"a"))
    lines += event % (op.value.encode(), pod_bytes(b"bad", spec))
    lines += b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"12"}}}\n'
    first, odd, last = KindDecoder(POD).events(lines)
    assert isinstance(first, Changed)
    assert isinstance(last, Bookmark)
    assert isinstance(odd, Malformed)
    assert (odd.op, odd.metadata.key, odd.metadata.resource_version) == (op, "ns/bad", "7")


@pytest.mark.parametrize(
    "metadata",
    [b',"labels":{"a":"\xff"}', b',"labels":[3]', b',"generateName":"\x02"'],
    ids=["no text", "no map", "a control character"],
)
def test_its_name_is_read_from_metadata_that_are_bad_themselves(metadata: bytes) -> None:
    page = KindDecoder(POD).page(listed(pod_bytes(b"a"), pod_bytes(b"bad", metadata=metadata)))
    assert [item.metadata.name for item in page.items] == ["a"]
    assert [odd.metadata.key for odd in page.malformed] == ["ns/bad"]


def test_one_without_a_name_hides_no_other() -> None:
    page = KindDecoder(POD).page(
        listed(pod_bytes(b"a"), b'{"metadata":{"name":[3]},"spec":7}', b"{]"[:1] + b"}")
    )
    assert [item.metadata.name for item in page.items if item.metadata.name] == ["a"]
    assert [odd.metadata.name for odd in page.malformed] == [""]


@pytest.mark.parametrize("body", [b"", b"[]", b"\xff", b'{"items":7}', b'{"items":[', b"<html>"])
def test_an_answer_that_is_no_list_is_a_fault_of_the_way_there(body: bytes) -> None:
    with pytest.raises(Unreachable):
        KindDecoder(POD).page(body)


async def test_a_kind_with_one_such_object_is_listed_and_watched(
    api: ScriptedApi, kube: Kube
) -> None:
    initial = b'{"type":"ADDED","object":%s}\n'
    end = (
        b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9",'
        b'"annotations":{"k8s.io/initial-events-end":"true"}}}}\n'
    )
    later = initial % pod_bytes(b"c", BAD["no text"])
    first = [initial % pod_bytes(b"a"), initial % pod_bytes(b"bad", BAD["no text"]), end, later]
    api.then(chunks(*first, ending="hang"))
    assert await conversation(kube, 2) == ["listed a,!bad@9", "malformed c"]
