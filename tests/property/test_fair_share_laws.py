"""Laws of decayed usage, of the order by usage over share, and of what it leads to."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.model.decayed_usage import DecayedTotal, decay
from shared.model.fair_tree import paths, usage_over_share

DAY = 86_400.0
half_lives = st.floats(600.0, 30 * DAY)
times = st.integers(0, int(20 * DAY)).map(float)
spans = st.tuples(st.integers(1, 64), times, times).map(lambda each: (each[0], *sorted(each[1:])))
amounts = st.floats(0.0, 1e12)
NAMES = st.sampled_from("abcdef")


@given(st.lists(spans, min_size=1, max_size=6), st.floats(DAY / 4, 30 * DAY), st.data())
def test_the_closed_form_is_the_integral_whatever_the_order_of_reports(allocations, half, data):
    now, total = 21 * DAY, DecayedTotal(half, at=data.draw(times))
    changes = [(a, s) for a, s, _ in allocations] + [(-a, e) for a, _, e in allocations]
    for amount, when in data.draw(st.permutations(changes)):
        total.start(amount, when)
        total.at(data.draw(times))
    integral = sum(
        amount * simpson(lambda x: decay(now - x, half), start, end)
        for amount, start, end in allocations
    )
    assert total.at(now) == pytest.approx(integral, rel=1e-6, abs=1e-3)
    assert total.held == 0


def simpson(f, start, end, steps=2000):
    """The integral of `f`, by Simpson's rule."""
    width = (end - start) / steps
    inner = sum((4 if i % 2 else 2) * f(start + i * width) for i in range(1, steps))
    return (f(start) + inner + f(end)) * width / 3


@given(amounts, half_lives, times)
def test_usage_halves_in_each_half_life(used, half, at):
    total = DecayedTotal(half, at=at, used=used)
    assert total.at(at + half) == pytest.approx(used / 2, rel=1e-9)
    assert total.at(at + 3 * half) == pytest.approx(used / 8, rel=1e-9)


@given(st.dictionaries(NAMES, amounts, min_size=2), st.floats(0.5, 1.0))
def test_time_alone_changes_no_order(usage, fraction):
    shares = dict.fromkeys(usage, 1.0)
    later = {name: used * fraction for name, used in usage.items()}
    now, then = usage_over_share(usage, shares), usage_over_share(later, shares)
    for a, b in itertools.combinations(usage, 2):
        if not math.isclose(now[a], now[b], rel_tol=1e-9):
            assert (now[a] < now[b]) == (then[a] < then[b])


@given(st.dictionaries(NAMES, amounts, min_size=2), st.data())
def test_who_has_used_less_of_an_equal_share_never_comes_later(usage, data):
    values = usage_over_share(usage, dict.fromkeys(usage, data.draw(st.floats(0.1, 10.0))))
    for a, b in itertools.permutations(usage, 2):
        if usage[a] < usage[b]:
            assert values[a] <= values[b]


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.sampled_from("abcdef-"), min_size=1), st.data()
)
def test_every_queue_has_a_place_whatever_the_parents(parents, data):
    usage = {queue: data.draw(amounts) for queue in parents}
    values = paths(parents, usage, dict.fromkeys(parents, 1.0))
    assert set(values) == set(parents)
    assert all(path and min(path) >= 0.0 for path in values.values())


@given(st.lists(st.integers(0, 50), min_size=2, max_size=6), st.integers(1, 4))
def test_with_equal_demand_and_shares_usages_converge(past_days, slots):
    half, hour = 7 * DAY, 3600.0
    users = [DecayedTotal(half, used=days * DAY) for days in past_days]
    first = max(past_days) * DAY
    shares = dict.fromkeys(range(len(users)), 1.0)
    for step in range(24 * 7 * 12):
        now = step * hour
        for _ in range(slots):  # each slot goes to who comes first, for an hour
            values = usage_over_share({i: user.at(now) for i, user in enumerate(users)}, shares)
            chosen = users[min(values, key=lambda i: (values[i], i))]
            chosen.start(1, now)
            chosen.end(1, now + hour)
            chosen.at(now + hour)
    used = [user.at(24 * 7 * 12 * hour) for user in users]
    assert max(used) - min(used) <= max(2 * slots * hour, first * decay(12 * 7 * DAY, half))
