"""A time that is read can be written, whatever its zone makes of the ends of the calendar."""

from datetime import datetime, timedelta, timezone

from hypothesis import example, given
from hypothesis import strategies as st

from shared.api import time

ZONES = st.builds(timezone, st.integers(-23, 23).map(lambda hours: timedelta(hours=hours)))


@given(st.datetimes(timezones=ZONES))
@example(datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1))))
@example(datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-1))))
@example(datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=timezone(timedelta())))
def test_a_time_that_is_read_can_be_written(moment: datetime) -> None:
    unix_s = time.read(moment.isoformat())
    if unix_s is not None:
        assert abs((time.read(time.format_seconds(unix_s)) or 0.0) - unix_s) <= 1
        assert abs((time.read(time.format_micro(unix_s)) or 0.0) - unix_s) <= 1
