"""Durations in Go's notation."""

import pytest

from shared.model import durations


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("", 0.0), ("30s", 30.0), ("1h30m", 5400.0), ("1.5m", 90.0), ("200ms", 0.2), ("0", 0.0)]
    + [(f"2{micro}s", 2e-6) for micro in ("u", "\u00b5", "\u03bc")],
)
def test_a_duration_reads_as_go_reads_it(text: str, seconds: float) -> None:
    assert durations.seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["soon", "10", "-5s", "5 s", "1h30", "3000000h", "9" * 5000 + "h"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no duration"):
        durations.seconds(text)


@pytest.mark.parametrize(("whole", "text"), [(5, "5s"), (63, "1m3s"), (3600, "1h0m0s")])
def test_a_duration_is_written_as_go_writes_it(whole: int, text: str) -> None:
    assert durations.text(whole) == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("-1h", -3600.0), ("+5s", 5.0), ("1h30m", 5400.0), ("0", 0.0)]
    + [(text, None) for text in ("", "--1s", "3", "5 m", "1d", "m")],
)
def test_a_signed_duration_reads_as_go_reads_it(text: str, seconds: float | None) -> None:
    assert durations.parse(text) == seconds


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90.0), (".5", 0.5), ("2m", 120.0), ("-2m", -120.0), ("x", None)]
)
def test_a_setting_may_be_a_plain_number_of_seconds(text: str, seconds: float | None) -> None:
    assert durations.setting(text) == seconds
