"""Volcano's feature gates as flags write them."""

import pytest

from shared.runtime.common import QUEUE_ADMISSION, is_feature_on
from shared.runtime.errors import Rejected


@pytest.mark.parametrize(
    ("text", "on"),
    [
        ("", False),
        ("SchedulingGatesQueueAdmission=true", True),
        ("CSIStorage=true, SchedulingGatesQueueAdmission=1", True),
        ("AllAlpha=true", True),
        ("AllAlpha=true,SchedulingGatesQueueAdmission=false", False),
        ("CSIStorage=true", False),
    ],
)
def test_a_feature_is_on_when_it_or_all_of_its_stage_are_m05(text: str, on: bool) -> None:
    assert is_feature_on(text, QUEUE_ADMISSION) is on


@pytest.mark.parametrize("text", ["SchedulingGatesQueueAdmission", "CSIStorage=perhaps"])
def test_what_cannot_be_read_is_refused_with_the_flag(text: str) -> None:
    with pytest.raises(Rejected, match=r"--feature-gates: .* is not of the form"):
        is_feature_on(text, QUEUE_ADMISSION)
