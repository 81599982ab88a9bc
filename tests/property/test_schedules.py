"""The next and the last due time of a schedule agree with each other, whatever the zone does."""

from hypothesis import given
from hypothesis import strategies as st

from shared.model.schedules import parse, zone

ZONES = ("", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "America/Havana")
YEAR_S = 366 * 86_400
NOON_2025 = 1_735_732_800


@st.composite
def texts(draw: st.DrawFn) -> str:
    def field(least: int, most: int) -> str:
        low, high = sorted((draw(st.integers(least, most)), draw(st.integers(least, most))))
        step = draw(st.integers(1, 7))
        return draw(st.sampled_from(["*", f"*/{step}", str(low), f"{low}-{high}/{step}"]))

    return " ".join(field(*ends) for ends in ((0, 59), (0, 23), (1, 28), (1, 12), (0, 6)))


@given(texts(), st.sampled_from(ZONES), st.integers(0, YEAR_S), st.integers(0, 30 * 86_400))
def test_the_last_of_all_due_times_is_the_latest(
    text: str, zone_name: str, begin: int, length: int
) -> None:
    schedule = parse(text, within=zone(zone_name))
    since = NOON_2025 + begin
    until = since + length
    latest = schedule.latest(since, until)
    if latest is None:
        following = schedule.following(since, since)
        assert following is None or following > until
    else:
        assert since < latest <= until
        assert latest % 60 == 0
        following = schedule.following(since, latest)
        assert following is None or following > until
        assert schedule.following(since, latest - 1) == latest
