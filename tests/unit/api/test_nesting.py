"""JSON that is nested without end is told from what people write, and can be cut to a size."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.api import depths
from shared.api.nesting import NESTING_MAX, TOO_DEEP, cut, is_cut, is_too_deep


def nested(levels: int, opening: str = '{"a":', closing: str = "}") -> bytes:
    return (opening * levels + "1" + closing * levels).encode()


@pytest.mark.parametrize(("opening", "closing"), [('{"a":', "}"), ("[", "]"), ('[{"a":', "}]")])
def test_the_bound_itself_is_not_too_deep(opening: str, closing: str) -> None:
    per_round = len(closing)
    at_most = nested(NESTING_MAX // per_round, opening, closing)
    assert not is_too_deep(at_most)
    assert cut(at_most) == at_most
    assert is_too_deep(nested(NESTING_MAX // per_round + 1, opening, closing))


def test_what_breaks_off_far_below_is_short_all_the_same() -> None:
    assert len(cut(b'{"a":' + b"[" * 100_000)) < 1000


def test_width_is_not_depth_and_brackets_of_a_text_do_not_count() -> None:
    wide = json.dumps({"list": [{"a": [1]}] * 500, "text": '[{"\\' * 500}).encode()
    assert not is_too_deep(wide)
    assert cut(wide) == wide


@pytest.mark.parametrize("levels", [NESTING_MAX + 1, 1100, 9000])
def test_what_is_cut_can_be_read_and_keeps_all_that_is_not_too_deep(levels: int) -> None:
    deep = b'{"metadata":{"name":"x"},"spec":' + nested(levels) + b',"more":[1,{"b":"]"}]}'
    short = cut(deep)
    read = json.loads(short)
    assert read["metadata"] == {"name": "x"}
    assert read["more"] == [1, {"b": "]"}]
    assert is_cut(short)
    assert not is_cut(deep)
    assert TOO_DEEP in json.dumps(read["spec"])
    assert not is_too_deep(short)


@given(
    st.recursive(
        st.none() | st.text(alphabet='[]{}"\\a\n', max_size=6),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(st.text(alphabet='{["\\', max_size=3), inner, max_size=3)
        ),
        max_leaves=40,
    ),
    st.integers(1, 6),
)
def test_depths_in_columns_are_those_of_one_bracket_after_the_other(value, levels: int) -> None:
    text = json.dumps(value).encode()
    assert depths.is_deeper(text, levels) == is_too_deep(text, levels)
    assert depths.cut_below(text, (levels,), b'"cut"', most=1000) == cut(text, levels).replace(
        f'"({TOO_DEEP})"'.encode(), b'"cut"'
    )


def test_a_text_with_more_marks_than_content_is_cut_higher_up() -> None:
    wide = b"[" * 100 + b",".join([b"[]"] * 700_000) + b"]" * 100
    assert is_too_deep(wide)
    short = cut(wide)
    assert len(short) < 200
    assert is_cut(short)
    assert not is_too_deep(short)
