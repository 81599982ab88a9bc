"""What is sealed is read with the key alone, and nowhere but where it belongs."""

import msgspec
import pytest

from shared.bus.seal import SEALED, Seal
from shared.contracts.codec import decode_fact, encode
from shared.contracts.messages import Fact, Op
from shared.contracts.versions import ContractError

BODY = msgspec.Raw(b'{"spec":{"env":"planted"}}')


def fact(**changes) -> Fact:
    given = {"kind": "jobs", "key": "ns/j", "uid": "u", "rv": "7", "body": BODY, **changes}
    return Fact(**given)


@pytest.mark.parametrize("kind", sorted(SEALED))
def test_a_sealed_body_comes_back_and_shows_nothing_on_its_way(kind) -> None:
    payload = encode(Seal("key").close(fact(kind=kind)))
    assert b"planted" not in payload
    assert Seal("key").open(decode_fact(payload)) == fact(kind=kind)


def test_the_same_body_looks_different_each_time() -> None:
    assert Seal("key").close(fact()) != Seal("key").close(fact())


@pytest.mark.parametrize("other", ["", "another"])
def test_a_sealed_body_cannot_be_read_without_the_key(other) -> None:
    with pytest.raises(ContractError, match="the cache and its reader share one"):
        Seal(other).open(Seal("key").close(fact()))


@pytest.mark.parametrize(
    "moved", [{"kind": "cronjobs"}, {"key": "ns/k"}, {"uid": "v"}, {"rv": "8"}]
)
def test_a_sealed_body_cannot_be_moved_to_another_object_or_version(moved) -> None:
    sealed = Seal("key").close(fact())
    with pytest.raises(ContractError):
        Seal("key").open(msgspec.structs.replace(sealed, **moved))


@pytest.mark.parametrize("body", [b'{"sealed":"AAAA"}', b'{"sealed":1}', b'{"sealed":"%%"}'])
def test_a_broken_seal_is_refused(body) -> None:
    with pytest.raises(ContractError):
        Seal("key").open(fact(body=msgspec.Raw(body)))


def test_what_needs_no_seal_travels_open() -> None:
    for open_fact in (fact(kind="pods"), fact(op=Op.DELETE, body=msgspec.Raw(b"null"))):
        assert Seal("key").close(open_fact) == open_fact
    assert Seal("").close(fact()) == fact()
    assert Seal("key").open(fact()) == fact(), "of a cache that had no key yet"
