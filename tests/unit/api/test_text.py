"""Error texts, times and merge patches."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pumice.embedded.apiserver.patching import merge
from shared.api import kinds, time
from shared.api.base import describe_decode_error
from shared.api.batch import JobPhase, JobState, JobStatus
from shared.api.patch import merge_patch


@pytest.mark.parametrize(
    ("document", "text"),
    [
        (b'{"spec":{"tasks":[{"replicas":"3"}]}}', "spec.tasks[0].replicas: expected int, got str"),
        (b'{"spec":{"minAvailable":-1}}', "spec.minAvailable: expected int >= 0"),
        (b'{"spec":{"volumes":[{}]}}', "spec.volumes[0]: object missing required field mountPath"),
        (b'{"spec":{"plugins":{"svc":3}}}', "spec.plugins[...]: expected array, got int"),
        (b'{"spec":{"plugins":{"svc":[3]}}}', "spec.plugins[...][0]: expected str, got int"),
        (
            b'{"spec":{"policies":[{"event":"PodDied"}]}}',
            "spec.policies[0].event: invalid enum value 'PodDied'",
        ),
        (b"[]", "expected object, got array"),
        (b"{", "input data was truncated"),
        (b'{"spec": nil}', "JSON is malformed: invalid character (byte 13)"),
    ],
)
def test_a_fault_is_told_by_the_field_that_has_it(document: bytes, text: str) -> None:
    with pytest.raises(msgspec.DecodeError) as caught:
        kinds.decode(kinds.JOB, document)
    assert describe_decode_error(caught.value) == text


@pytest.mark.parametrize(
    ("text", "unix_s"),
    [
        ("1970-01-01T00:00:00Z", 0.0),
        ("2026-08-20T10:00:00Z", 1787220000.0),
        ("2026-08-20T12:00:00+02:00", 1787220000.0),
        ("2026-08-20T10:00:00.250000Z", 1787220000.25),
    ],
)
def test_a_time_is_read(text: str, unix_s: float) -> None:
    assert time.parse(text) == unix_s


@pytest.mark.parametrize("text", ["", "yesterday", "2026-08-20T10:00:00", "2026-13-01T00:00:00Z"])
def test_what_is_no_time_is_refused_by_its_text(text: str) -> None:
    with pytest.raises(ValueError, match="RFC 3339") as caught:
        time.parse(text)
    assert repr(text) in str(caught.value)


def test_times_are_written_as_kubernetes_writes_them() -> None:
    assert time.format_seconds(1787220000.999) == "2026-08-20T10:00:00Z"


def test_a_counter_that_goes_back_to_nothing_is_patched_away() -> None:
    before = JobStatus(running=2, state=JobState(phase=JobPhase.RUNNING, reason="x"))
    after = JobStatus(running=0, pending=2, state=JobState(phase=JobPhase.PENDING, reason="x"))
    assert merge_patch(before, after) == {
        "pending": 2,
        "running": None,
        "state": {"phase": "Pending"},
    }


@pytest.mark.parametrize(
    ("before", "after", "patch"),
    [
        ({"a": 1}, {"a": 1}, {}),
        ({}, {"a": {"b": 1}}, {"a": {"b": 1}}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}, {"a": {"c": None}}),
        ({"a": [1, 2]}, {"a": [2]}, {"a": [2]}),
        ({"a": {"b": 1}}, {"a": 3}, {"a": 3}),
        ({"a": 1}, {"a": True}, {"a": True}),
        ({"a": {"b": 1}}, {}, {"a": None}),
    ],
)
def test_a_merge_patch_says_the_difference(before: dict, after: dict, patch: dict) -> None:
    assert merge_patch(before, after) == patch


plain = st.recursive(
    st.integers() | st.text(max_size=3) | st.booleans() | st.lists(st.integers(), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.sampled_from("abcd"), plain, max_size=4)


@given(before=objects, after=objects)
def test_a_merge_patch_leads_from_before_to_after(before: dict, after: dict) -> None:
    assert repr(sorted_deep(merge(before, merge_patch(before, after)))) == repr(sorted_deep(after))


def sorted_deep(value: object) -> object:
    """Return the value with sorted keys, so that `repr` tells True from 1 but not orders apart."""
    if isinstance(value, dict):
        return {key: sorted_deep(value[key]) for key in sorted(value)}
    return value
