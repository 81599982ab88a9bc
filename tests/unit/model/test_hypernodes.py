"""The forest of HyperNodes (T10) and label selectors."""

import random

import msgspec
import pytest

from shared.api.selectors import BadSelector, LabelSelector, matches
from shared.api.topology import HyperNodeSpec, MemberSelector
from shared.model.hypernodes import forest, leaves, selected

NODES = {"rack1-a": {"rack": "1"}, "rack1-b": {"rack": "1"}, "rack2-a": {"rack": "2"}}


def spec(tier, *members, name=""):
    kinds = {"node": "Node", "hyper": "HyperNode"}
    return msgspec.convert(
        {
            "tier": tier,
            "tierName": name,
            "members": [
                {"type": kinds[kind], "selector": {"exactMatch": {"name": member}}}
                for kind, member in (entry.split(":") for entry in members)
            ],
        },
        HyperNodeSpec,
    )


TWO_RACKS = {
    "s0": spec(1, "node:rack1-a", "node:rack1-b", name="rack"),
    "s1": spec(1, "node:rack2-a"),
    "s2": spec(2, "hyper:s0", "hyper:s1", name="spine"),
}


def test_nodes_of_all_below_are_below():
    made = forest(TWO_RACKS, NODES)
    assert made.nodes["s2"] == {"rack1-a", "rack1-b", "rack2-a"}
    assert made.by_tier == {1: ("s0", "s1"), 2: ("s2",)}
    assert made.tier_names == {"rack": 1, "spine": 2}
    assert made.ready


def test_the_order_in_which_objects_came_does_not_matter():
    expected = forest(TWO_RACKS, NODES)
    names = list(TWO_RACKS)
    for seed in range(6):
        random.Random(seed).shuffle(names)
        assert forest({name: TWO_RACKS[name] for name in names}, NODES) == expected


def test_ancestors_and_what_contains_two():
    made = forest({**TWO_RACKS, "alone": spec(1, "node:far")}, NODES)
    assert made.ancestors("s0") == ["s0", "s2"]
    assert made.common_ancestor("s0", "s1") == "s2"
    assert made.common_ancestor("s0", "s2") == "s2"
    assert made.common_ancestor("", "s1") == "s1"
    assert made.common_ancestor("s0", "alone") == ""


def test_a_child_of_two_parents_is_kept_by_the_lower_one_and_the_forest_is_not_ready():
    made = forest({**TWO_RACKS, "s3": spec(3, "hyper:s0")}, NODES)
    assert made.parents["s0"] == "s2"
    assert not made.ready
    assert forest({**TWO_RACKS, "s3": spec(3, "hyper:s2")}, NODES).ready


def test_hypernodes_above_themselves_are_not_ready_and_end_every_walk():
    circle = {"a": spec(1, "hyper:b"), "b": spec(2, "hyper:c"), "c": spec(3, "hyper:a")}
    made = forest(circle, NODES)
    assert not made.ready
    assert sorted(made.ancestors("a")) == ["a", "b", "c"]
    assert sorted(made.below("a")) == ["a", "b", "c"]
    assert leaves(circle, "a") == set()


def test_a_member_without_an_object_has_no_nodes_and_no_tier_of_its_own():
    made = forest({"s2": spec(2, "hyper:later")}, NODES)
    assert made.tiers["later"] == 0
    assert made.by_tier == {2: ("s2",)}
    assert made.nodes["s2"] == frozenset()


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ({"exactMatch": {"name": "gone"}}, {"gone"}),
        ({"regexMatch": {"pattern": "^rack1-"}}, {"rack1-a", "rack1-b"}),
        ({"regexMatch": {"pattern": "-a"}}, {"rack1-a", "rack2-a"}),
        ({"regexMatch": {"pattern": "("}}, set()),
        ({"regexMatch": {"pattern": "a{1001}"}}, set()),
        ({"regexMatch": {"pattern": "(" * 2000 + "[" + ")" * 2000}}, set()),
        ({"labelMatch": {"matchLabels": {"rack": "2"}}}, {"rack2-a"}),
        ({"labelMatch": {}}, set()),
        ({"labelMatch": {"matchExpressions": [{"key": "rack", "operator": "Near"}]}}, set()),
        ({}, set()),
    ],
    ids=[
        "exact",
        "anchored",
        "anywhere",
        "bad pattern",
        "too often",
        "too deep",
        "label",
        "empty",
        "bad operator",
        "none",
    ],
)
def test_members_are_told_by_name_pattern_or_label_t10(selector, names):
    assert selected(msgspec.convert(selector, MemberSelector), NODES) == names


def test_a_pattern_that_would_take_hours_to_try_takes_no_time_t10():
    of_many_letters = {"a" * 60: {"rack": "1"}}
    selector = msgspec.convert({"regexMatch": {"pattern": "^([a-z]+)*1$"}}, MemberSelector)
    assert selected(selector, of_many_letters) == set()


@pytest.mark.parametrize(
    ("operator", "values", "holds"),
    [
        ("In", ["x", "y"], True),
        ("In", ["z"], False),
        ("NotIn", ["z"], True),
        ("NotIn", ["x"], False),
        ("Exists", [], True),
        ("DoesNotExist", [], False),
    ],
)
def test_expressions_of_label_selectors(operator, values, holds):
    expression = {"key": "k", "operator": operator, "values": values}
    selector = msgspec.convert({"matchExpressions": [expression]}, LabelSelector)
    assert matches(selector, {"k": "x"}) is holds


@pytest.mark.parametrize(("operator", "values"), [("In", []), ("Exists", ["x"]), ("Gt", ["1"])])
def test_an_expression_that_says_nothing_is_refused_whatever_the_labels(operator, values):
    expression = {"key": "k", "operator": operator, "values": values}
    selector = msgspec.convert({"matchExpressions": [expression]}, LabelSelector)
    with pytest.raises(BadSelector, match=f"k {operator}"):
        matches(selector, {})


def chain(length):
    """Each HyperNode above the next; the last one has a node."""
    links = {f"h{n}": spec(length - n, f"hyper:h{n + 1}") for n in range(length - 1)}
    return {**links, f"h{length - 1}": spec(1, "node:rack1-a")}


def test_a_chain_of_three_thousand_is_a_forest():
    made = forest(chain(3_000), NODES)
    assert made.ready
    assert all(below == {"rack1-a"} for below in made.nodes.values())
    assert len(made.ancestors("h2999")) == 3_000
    assert len(made.below("h0")) == 3_000


def test_a_ring_of_three_thousand_is_none():
    assert not forest({**chain(3_000), "h2999": spec(1, "hyper:h0")}, NODES).ready


def test_one_that_is_met_on_two_ways_is_below_both():
    made = forest(
        {
            "top": spec(3, "hyper:left", "hyper:right"),
            "left": spec(2, "hyper:leaf"),
            "right": spec(2, "hyper:leaf", "node:rack2-a"),
            "leaf": spec(1, "node:rack1-a"),
        },
        NODES,
    )
    assert made.nodes["left"] == {"rack1-a"}
    assert made.nodes["right"] == made.nodes["top"] == {"rack1-a", "rack2-a"}
    assert not made.ready, "the leaf has two parents"
