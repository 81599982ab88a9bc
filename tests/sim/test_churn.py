"""A full cluster of gangs comes to rest: what `tests.sim.churn` plays, for half a minute."""

import pytest

from tests.sim.churn import conf, mix_of, play


@pytest.mark.parametrize("mix", ["teams", "1", "2"])
def test_queues_take_back_their_own_without_evicting_the_same_pods_again(mix):
    result = play(mix_of(mix), conf(), lasting_s=20.0)
    assert result.violations == []
    assert len(result.tally.evicted) <= 30
    assert result.tally.most_often[1] <= 2


def test_with_volcanos_evictions_they_would():
    result = play(mix_of("1"), conf(volcano=True), lasting_s=10.0)
    assert len(result.tally.evicted) > 30
