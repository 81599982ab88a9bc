"""This release reads what former ones wrote, and is known to write what they do not read.

What a former release does not take as it is meant stands on the page of upgrades, with what to do
about it; nothing else may come.
"""

import json
import re

import msgspec
import pytest

from pumice.events import envelope
from shared.api.kinds import KINDS, decode
from shared.bus.seal import Seal
from shared.contracts import codec
from shared.contracts import messages as m
from tests.support.pages import ROOT
from tests.support.valid_objects import VALID_OBJECTS
from tests.upgrade import describe
from tests.upgrade.compare import differences
from tests.upgrade.former import CLASSES, CLUSTER, Former, Recorded, former

PAGE = ROOT / "docs" / "upgrading.md"
SPOKEN = [release for release in former() if release.spoke]
EACH = pytest.mark.parametrize("release", SPOKEN, ids=lambda release: release.name)
EACH_MESSAGE = pytest.mark.parametrize(
    ("release", "message"),
    [
        pytest.param(release, message, id=f"{release.name}-{number}-{message.name}")
        for release in SPOKEN
        for number, message in enumerate(release.messages)
    ],
)
_DECODERS = {
    "state": codec.decode_fact,
    "command": codec.decode_command,
    "desired": codec.decode_desired,
    "outcome": codec.decode_outcome,
    "lease": codec.decode_lease,
    "member": codec.decode_member,
    "waiting": codec.decode_waiting,
}
_BY_NAME = {
    "marker": codec.decode_marker,
    "leader": codec.decode_leader,
    "poison": msgspec.json.Decoder(m.Poison).decode,
}


def read(message: Recorded) -> object:
    """Return a message as the readers of its subject decode it."""
    _, _, stream, *rest = message.subject.split(".")
    if stream == "events":
        return envelope.decode(message.payload)
    return _BY_NAME.get(rest[0], _DECODERS[stream])(message.payload)


def within(inner: object, outer: object) -> bool:
    """Tell whether a JSON value has everything that another has; it may have more members."""
    if isinstance(inner, dict) and isinstance(outer, dict):
        return all(key in outer and within(value, outer[key]) for key, value in inner.items())
    if isinstance(inner, list) and isinstance(outer, list):
        return len(inner) == len(outer) and all(map(within, inner, outer))
    return inner == outer


@EACH_MESSAGE
def test_a_message_of_a_former_release_is_read_with_all_that_it_says(
    release: Former, message: Recorded
) -> None:
    found = read(message)
    if isinstance(found, envelope.CloudEvent):
        assert found.data.key == found.subject
        return
    assert within(json.loads(codec.unpack(message.payload)), json.loads(msgspec.json.encode(found)))


@EACH_MESSAGE
def test_the_object_in_a_fact_of_a_former_release_is_read(
    release: Former, message: Recorded
) -> None:
    found = read(message)
    if not isinstance(found, m.Fact) or bytes(found.body) == b"null":
        return
    opened = Seal(release.state_key).open(found)
    view = decode(KINDS[opened.kind], opened.body)
    assert view.metadata.uid == found.uid
    assert f"{view.metadata.namespace}/{view.metadata.name}".lstrip("/") == found.key


@EACH
def test_every_kind_of_message_of_a_former_release_is_kept(release: Former) -> None:
    kept = {message.name for message in release.messages}
    kinds = VALID_OBJECTS.keys() & release.forms("bodies")["types"].keys()
    assert {*CLASSES, *(f"state.{kind} put" for kind in kinds)} <= kept
    forms = release.forms("messages")
    for name in ("command", "desired"):
        for form in forms["types"][name]["union"]:
            tag = forms["structs"][form["struct"]]["tag"]
            assert f"{name} {tag}" in kept


@EACH
def test_nothing_that_a_former_release_writes_is_refused_or_left_out(release: Former) -> None:
    present = describe.described(CLUSTER)
    for part in ("messages", "bodies"):
        assert differences(release.forms(part), present[part]) == set()


@EACH
def test_what_a_former_release_does_not_take_stands_on_the_page_of_upgrades(
    release: Former,
) -> None:
    present = describe.described(CLUSTER)
    found = differences(present["messages"], release.forms("messages"))
    assert {(where, how) for how, where in found} == set(said_on_the_page(release.name))


@EACH
def test_a_former_release_reads_each_field_that_it_knows_of_the_objects_in_facts(
    release: Former,
) -> None:
    present = describe.described(CLUSTER)
    found = differences(present["bodies"], release.forms("bodies"))
    assert [each for each in found if each.how != "ignored"] == []


@pytest.mark.parametrize("release", former(), ids=lambda release: release.name)
def test_the_page_of_upgrades_has_a_section_for_each_former_release(release: Former) -> None:
    text = PAGE.read_text("utf-8")
    assert f"\n## From {release.name}\n" in text
    assert release.revision[:7] in section(text, release.name)


def section(text: str, release: str) -> str:
    """Return what the page says of a release."""
    return text.partition(f"\n## From {release}\n")[2].partition("\n## ")[0]


def said_on_the_page(release: str) -> list[tuple[str, str]]:
    """Return the rows of the page's table of what a release refuses or ignores."""
    said = section(PAGE.read_text("utf-8"), release)
    return re.findall(r"^\| `([\w.]+)` \| (refused|ignored|missing|type) \|", said, re.MULTILINE)
