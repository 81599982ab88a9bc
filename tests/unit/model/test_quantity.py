"""Quantities are exact and round away from zero."""

import pytest

from shared.model.quantity import (
    BadQuantity,
    format_bytes,
    format_milli,
    is_quantity,
    milli,
    units,
)


@pytest.mark.parametrize(
    ("text", "whole", "thousandths"),
    [
        ("0", 0, 0),
        ("1", 1, 1000),
        ("100m", 1, 100),
        ("1500m", 2, 1500),
        ("0.1", 1, 100),
        (".5", 1, 500),
        ("2.", 2, 2000),
        ("1Ki", 1024, 1024_000),
        ("1.5Gi", 1610612736, 1610612736_000),
        ("128Mi", 134217728, 134217728_000),
        ("2k", 2000, 2_000_000),
        ("1e3", 1000, 1_000_000),
        ("1E3", 1000, 1_000_000),
        ("1E", 10**18, (1 << 63) - 1),
        ("5e-1", 1, 500),
        ("1n", 1, 1),
        ("3u", 1, 1),
        ("-1500m", -2, -1500),
        ("+2", 2, 2000),
        ("99999999999999999999", (1 << 63) - 1, (1 << 63) - 1),
    ],
)
def test_a_quantity_has_an_exact_value(text, whole, thousandths):
    assert (units(text), milli(text)) == (whole, thousandths)


@pytest.mark.parametrize("text", ["9" * 5000, "0." + "0" * 5000 + "1", "1" * 101, "1e1000", ""])
def test_digits_without_end_are_no_quantity(text):
    assert not is_quantity(text)
    with pytest.raises(BadQuantity):
        milli(text)


def test_bare_numbers_of_a_template_count_as_text():
    assert (units(2), milli(0.5), milli(1e-3)) == (2, 500, 1)


@pytest.mark.parametrize("text", ["", "abc", "1x", "1 Gi", "--1", ".", "1mi", "1e", "٣"])
def test_what_is_no_quantity_is_refused_by_name(text):
    with pytest.raises(BadQuantity, match="is no quantity"):
        units(text)


@pytest.mark.parametrize(
    ("amount", "text"), [(0, "0"), (500, "500m"), (2000, "2"), (2500, "2500m")]
)
def test_thousandths_are_printed_as_kubernetes_does(amount, text):
    assert format_milli(amount) == text
    assert milli(text) == amount


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0, "0"), (1000, "1000"), (1024, "1Ki"), (3 << 30, "3Gi")],
)
def test_bytes_are_printed_with_the_largest_suffix_that_loses_nothing(amount, text):
    assert format_bytes(amount) == text
    assert units(text) == amount
