"""Amounts compare as T07 says, in the arrays that decide."""

import numpy as np

from services.scheduler.policy.shares import exceeding_of, fits, is_empty


def amounts(*values):
    return np.array(values)


def test_differences_below_a_tenth_are_none_t07():
    assert fits(amounts(1000.05), amounts(1000))
    assert not fits(amounts(1000.1), amounts(1000))


def test_only_requested_dimensions_decide_about_a_request_and_pods_never_t07():
    used, limit = amounts(5000, 10, 9), amounts(4000, 20, 1)
    assert exceeding_of(used, limit, amounts(0, 1, 1)) == []
    assert exceeding_of(used, limit, amounts(1, 0, 0)) == [0]


def test_pods_alone_are_nothing_t07():
    assert is_empty(amounts(0, 0, 1))
    assert not is_empty(amounts(0, 0, 1, 1))
