"""Kubernetes Events: their names tell the same thing the same."""

import msgspec
import pytest

from shared.api.kinds import POD, PODGROUP
from shared.kube.events import Note

NOTE = Note(kind=POD, namespace="ns", about="p", uid="u", reason="Scheduled", message="m")


@pytest.mark.parametrize("about", ["p", "a.b-c", "x" * 253], ids=["short", "dots", "longest"])
def test_the_name_of_an_event_is_legal_and_tells_the_same_thing_the_same(about) -> None:
    note = msgspec.structs.replace(NOTE, about=about)
    again = msgspec.structs.replace(NOTE, about=about, warning=True)
    assert note.name == again.name
    assert len(note.name) <= 253


@pytest.mark.parametrize(
    "other",
    [
        {"kind": PODGROUP},
        {"namespace": "other"},
        {"uid": "v"},
        {"reason": "Evict"},
        {"message": "n"},
        {"occasion": "again"},
    ],
    ids=lambda other: next(iter(other)),
)
def test_what_differs_in_anything_is_another_event(other) -> None:
    assert msgspec.structs.replace(NOTE, **other).name != NOTE.name


def test_an_event_about_an_object_without_a_namespace_stands_in_default() -> None:
    assert msgspec.structs.replace(NOTE, namespace="").place == "default"
