"""Groups too large to be imagined, and a time that is over, bound what a forecast makes."""

from services.visibility.forecast import shapes
from services.visibility.forecast.durations import History
from services.visibility.forecast.forecaster import Forecaster
from services.visibility.forecast.simulation import SchedulerRules, waiting
from tests.unit.visibility.test_forecasts import NOW, asked, lasting, pending, starts, two_nodes


def test_a_group_that_is_too_large_to_be_imagined_never_starts_and_delays_nobody(monkeypatch):
    """Anybody may write a minimum of two thousand million pods."""
    made, pods = [], shapes.pods

    def counted(*args, **more):
        found = pods(*args, **more)
        made.append(len(found))
        return found

    monkeypatch.setattr(shapes, "PODS_MAX", 20)
    monkeypatch.setattr(shapes, "pods", counted)
    world = two_nodes().node("n3", cpu="4")
    lasting(world, "vast", 10, pods=5_000)
    pending(world, "a", 50)
    assert starts(asked(world)) == {"vast": None, "a": 0.0}
    assert max(made) == 20


def test_no_more_pods_are_imagined_once_the_time_is_over():
    world = two_nodes()
    for number in range(9):
        lasting(world, f"g{number}", 10)
    made, over = [], iter([False, False, *[True] * 99])

    def templates(job):
        made.append(job.key)
        return ()

    rules = SchedulerRules(world.config, world.plugins, templates=templates)
    forecaster = Forecaster(rules, History(), draws=1)
    forecaster.draw(
        world.cluster_state,
        now=NOW,
        targets=waiting(world.cluster_state),
        out_of_time=lambda: next(over),
    )
    assert len(made) <= 2
