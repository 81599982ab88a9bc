"""Usage over share, after the examples of Slurm's page about Fair Tree."""

import math

from shared.model.fair_tree import paths, usage_over_share


def test_a_part_of_the_usage_like_the_part_of_the_shares_is_one():
    assert usage_over_share({"a": 3.0, "b": 1.0}, {"a": 3.0, "b": 1.0}) == {"a": 1.0, "b": 1.0}


def test_who_has_half_the_share_has_twice_the_value():
    values = usage_over_share({"a": 5.0, "b": 5.0}, {"a": 2.0, "b": 1.0})
    assert values["b"] == 2 * values["a"]


def test_without_usage_all_are_zero_and_without_a_share_infinite():
    assert usage_over_share({}, {"a": 1.0, "b": 0.0}) == {"a": 0.0, "b": math.inf}


def test_usage_below_counts_above_and_levels_above_decide_first():
    parents = {"physics": "root", "lasers": "physics", "optics": "physics", "law": "root"}
    usage = {"lasers": 10.0, "law": 5.0}
    values = paths(parents, usage, dict.fromkeys(parents, 1.0))
    order = sorted(values, key=values.__getitem__)
    assert order == ["law", "physics", "optics", "lasers"]


def test_a_queue_decides_between_equals_of_another_parent():
    parents = {"a": "", "b": "", "a1": "a", "b1": "b", "b2": "b"}
    usage = {"a1": 6.0, "b1": 5.0, "b2": 1.0}
    values = paths(parents, usage, dict.fromkeys(parents, 1.0))
    assert sorted(("a1", "b1", "b2"), key=values.__getitem__) == ["b2", "a1", "b1"]


def test_parents_in_a_circle_end():
    assert len(paths({"a": "b", "b": "a"}, {"a": 1.0}, {"a": 1.0, "b": 1.0})) == 2
