"""How many nodes Volcano would look at (T12)."""

import pytest

from services.scheduler.engine.sampling import Sampling


@pytest.mark.parametrize(
    ("sampling", "nodes", "enough"),
    [
        (Sampling(), 100, 100),
        (Sampling(), 101, 100),
        (Sampling(), 1000, 420),
        (Sampling(), 20_000, 1000),
        (Sampling(percent=100), 5000, 5000),
        (Sampling(percent=40), 1000, 400),
        (Sampling(percent=-1), 1000, 420),
        (Sampling(minimum=10, minimum_percent=1), 6250, 62),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else f"{value.percent}%",
)
def test_the_larger_the_cluster_the_smaller_the_share_that_is_looked_at(sampling, nodes, enough):
    assert sampling.enough(nodes) == enough
