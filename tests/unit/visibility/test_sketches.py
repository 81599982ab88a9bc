"""Sketches of durations: the law of their error, conditions, memory."""

import numpy as np
import pytest

from services.visibility.forecast.sketch import COUNT_MAX, ERROR, MAX_S, Sketch

LAW = ERROR * (1 + 1e-9)
GROWTH = (1 + ERROR) / (1 - ERROR)
RANDOM = np.random.default_rng(3)
DRAWN = {
    "long tail": RANDOM.lognormal(6.0, 2.0, 450).clip(1.0, MAX_S),
    "even": RANDOM.uniform(10.0, 500.0, 333),
    "two kinds": np.concatenate([np.full(50, 60.0), np.full(50, 7200.0)]),
    "one": np.array([1234.5]),
}


def sketch_of(durations) -> Sketch:
    sketch = Sketch()
    for seconds in durations:
        sketch.add(float(seconds))
    return sketch


@pytest.mark.parametrize("drawn", DRAWN.values(), ids=DRAWN.keys())
@pytest.mark.parametrize("part", [0.0, 0.1, 0.5, 0.9, 0.99, 1.0])
def test_a_quantile_is_off_by_the_stated_error_at_most(drawn, part):
    true = sorted(drawn)[int(part * (len(drawn) - 1))]
    assert sketch_of(drawn).quantile(part) == pytest.approx(true, rel=LAW)


def test_a_sketch_may_be_finer():
    sketch = Sketch(0.01)
    for seconds in DRAWN["long tail"]:
        sketch.add(float(seconds))
    true = float(np.quantile(DRAWN["long tail"], 0.9, method="lower"))
    assert sketch.quantile(0.9) == pytest.approx(true, rel=0.01 * (1 + 1e-9))


@pytest.mark.parametrize("drawn", DRAWN.values(), ids=DRAWN.keys())
@pytest.mark.parametrize("elapsed", [0.0, 30.0, 250.0, 5_000.0, 1e9])
def test_the_part_that_is_longer_is_right_but_for_one_bucket(drawn, elapsed):
    part = sketch_of(drawn).beyond(elapsed)
    assert np.mean(drawn > elapsed * GROWTH) - 1e-9 <= part
    assert part <= np.mean(drawn > elapsed / GROWTH) + 1e-9


@pytest.mark.parametrize("drawn", DRAWN.values(), ids=DRAWN.keys())
@pytest.mark.parametrize("elapsed", [0.0, 45.0, 300.0])
def test_draws_are_spread_as_the_durations_beyond_the_elapsed_time(drawn, elapsed):
    sketch, longer = sketch_of(drawn), np.sort(drawn[drawn > elapsed * GROWTH])
    draws = [sketch.draw(at, elapsed=elapsed) for at in np.linspace(0.0, 0.999, 400)]
    if not len(longer):
        assert all(draw is None or draw <= elapsed * GROWTH for draw in draws)
        return
    assert all(draw is not None and draw >= elapsed for draw in draws)
    for part in (0.3, 0.5, 0.9):
        low, high = np.quantile(longer, [max(0.0, part - 0.06), min(1.0, part + 0.06)])
        assert low / GROWTH <= np.quantile(draws, part) <= high * GROWTH


def test_an_empty_sketch_has_nothing_to_draw():
    sketch = Sketch()
    assert (sketch.quantile(0.5), sketch.beyond(0.0), sketch.draw(0.5)) == (0.0, 0.0, None)


def test_beyond_the_longest_duration_there_is_nothing_to_draw():
    assert sketch_of([10.0, 20.0]).draw(0.5, elapsed=60.0) is None


def test_memory_is_bounded_and_old_durations_fade():
    sketch = sketch_of(RANDOM.lognormal(8.0, 4.0, 5_000))
    assert len(sketch) < 200
    assert sketch.count <= COUNT_MAX
    for _ in range(2_000):
        sketch.add(60.0)
    assert sketch.quantile(0.5) == pytest.approx(60.0, rel=LAW)


def test_durations_that_follow_each_other_in_batches_are_alike():
    batches = sketch_of(np.repeat(RANDOM.lognormal(6.0, 1.5, 40), 10))
    alone = sketch_of(RANDOM.lognormal(6.0, 1.5, 400))
    assert batches.autocorrelation > 0.6
    assert alone.autocorrelation < 0.15
    assert sketch_of([60.0] * 50).autocorrelation == 0.0
    assert Sketch().autocorrelation == 0.0


def test_durations_out_of_range_count_as_the_least_and_the_most():
    sketch = sketch_of([0.0, -5.0, 1e12])
    assert sketch.quantile(0.0) == pytest.approx(1.0, rel=LAW)
    assert sketch.quantile(1.0) == pytest.approx(MAX_S, rel=LAW)


def test_durations_about_as_long_are_those_a_third_more_or_less():
    sketch = Sketch()
    for seconds in (50.0, 90.0, 100.0, 110.0, 200.0):
        sketch.add(seconds)
    assert sketch.around(sketch.place(100.0)) == pytest.approx(0.6)
    assert sketch.around(sketch.place(1_000.0)) == 0.0
    assert Sketch().around(sketch.place(100.0)) == 0.0


def test_a_sketch_of_few_forgets_sooner():
    short, long = Sketch(count_max=12.0), Sketch()
    for seconds in [60.0] * 100 + [7_200.0] * 20:
        short.add(seconds)
        long.add(seconds)
    assert short.count <= 12.0
    assert short.around(short.place(7_200.0)) > 0.85
    assert long.around(long.place(7_200.0)) < 0.2
