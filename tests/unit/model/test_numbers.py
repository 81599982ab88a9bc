"""Whole numbers and booleans in texts that users write."""

import pytest

from shared.model.numbers import parse_bool, whole


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("7", 7), ("9" * 18, 10**18 - 1)])
def test_digits_are_a_number(text: str, number: int) -> None:
    assert whole(text) == number


@pytest.mark.parametrize(
    "text", ["", "-1", "+1", " 1", "1.0", "٣", "²", "1_0", "9" * 19, "9" * 5000]
)
def test_anything_else_is_none(text: str) -> None:
    assert whole(text) is None


@pytest.mark.parametrize(
    ("text", "truth"),
    [("1", True), ("T", True), ("True", True), ("0", False), ("FALSE", False)]
    + [(text, None) for text in ("", "tRUE", "yes", "on", None)],
)
def test_a_boolean_reads_as_go_reads_it(text: str | None, truth: bool | None) -> None:
    assert parse_bool(text) is truth
