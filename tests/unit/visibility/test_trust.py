"""Ways to ask history are trusted by what they said of the jobs that came."""

import pytest

from services.visibility.forecast.trust import Trust


def test_a_way_that_held_what_came_for_likely_is_trusted_more():
    trust = Trust((0.5, 0.5), 10)
    for _ in range(20):
        trust.score("a", (0.1, 0.3))
    weights = trust.weights("a")
    assert sum(weights) == pytest.approx(1.0)
    assert weights[1] > 0.99


def test_before_anything_came_the_weights_are_those_given():
    assert Trust((0.8, 0.2), 10).weights("a") == pytest.approx([0.8, 0.2])


def test_a_user_who_is_new_is_asked_for_as_others_are_and_one_who_is_not_by_his_own():
    trust = Trust((0.5, 0.5), 10)
    for _ in range(60):
        trust.score("a", (0.1, 0.3))
    assert trust.weights("new")[1] > 0.99
    for _ in range(60):
        trust.score("b", (0.3, 0.1))
    assert trust.weights("b")[0] > 0.99
    assert trust.weights("a")[1] > 0.99


def test_no_way_is_given_up_for_one_job_and_old_scores_fade():
    trust = Trust((0.5, 0.5), 10)
    for _ in range(60):
        trust.score("a", (0.3, 0.1))
    trust.score("a", (0.0, 0.3))
    assert trust.weights("a")[0] > 0.99
    for _ in range(100):
        trust.score("a", (0.1, 0.3))
    assert trust.weights("a")[1] > 0.99


def test_the_users_who_came_longest_ago_are_forgotten():
    trust = Trust((0.5, 0.5), 2)
    for user in ("a", "b", "c"):
        for _ in range(30):
            trust.score(user, (0.3, 0.1) if user == "a" else (0.1, 0.3))
    assert trust.weights("a") == trust.weights("never seen")
    assert trust.weights("c")[1] > 0.99
