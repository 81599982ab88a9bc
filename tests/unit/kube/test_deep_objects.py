"""An object that no decoder can walk through is reported by name and hides no other."""

import pytest

from shared.api.kinds import JOB
from shared.kube.decode import Changed, ChangeOp, KindDecoder, Malformed

LEVELS = 50_000
"""More than the decoder of any Python bears: 3.11 a thousand, 3.13 ten thousand."""
DEEP = b'{"a":' * LEVELS + b"1" + b"}" * LEVELS


def job_bytes(name: str, template: bytes = b"{}") -> bytes:
    return (
        b'{"metadata":{"name":"%s","namespace":"ns","uid":"u-%s","resourceVersion":"7"},'
        b'"spec":{"tasks":[{"template":%s}]}}' % (name.encode(), name.encode(), template)
    )


def event(op: str, body: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (op.encode(), body)


@pytest.mark.parametrize("op", list(ChangeOp))
def test_a_change_of_it_is_told_with_its_name(op: ChangeOp) -> None:
    lines = (
        event("ADDED", job_bytes("a"))
        + event(op.value, job_bytes("deep", DEEP))
        + event("ADDED", job_bytes("b"))
    )
    first, odd, last = KindDecoder(JOB).events(lines)
    assert isinstance(first, Changed)
    assert isinstance(last, Changed)
    assert isinstance(odd, Malformed)
    assert (odd.op, odd.metadata.key, odd.metadata.uid) == (op, "ns/deep", "u-deep")
    assert odd.metadata.resource_version == "7"
    assert "nested more than" in odd.error


def test_a_list_of_it_and_others_is_read() -> None:
    bodies = b",".join([job_bytes("a"), job_bytes("deep", DEEP), job_bytes("b")])
    page = KindDecoder(JOB).page(b'{"metadata":{"resourceVersion":"9"},"items":[%s]}' % bodies)
    assert [item.metadata.name for item in page.items] == ["a", "b"]
    assert [odd.metadata.name for odd in page.malformed] == ["deep"]
    assert page.resource_version == "9"
