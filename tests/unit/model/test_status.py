"""Statuses follow from pods and fall into the groups of T01 and T02."""

import pytest

from shared.model.status import HOLDS_RESOURCES, PREEMPTABLE, READY, TaskStatus, from_pod


@pytest.mark.parametrize(
    ("phase", "deleting", "has_node", "status"),
    [
        ("Pending", False, False, TaskStatus.PENDING),
        ("Pending", False, True, TaskStatus.BOUND),
        ("Pending", True, True, TaskStatus.RELEASING),
        ("Running", False, True, TaskStatus.RUNNING),
        ("Running", True, True, TaskStatus.RELEASING),
        ("Succeeded", True, True, TaskStatus.SUCCEEDED),
        ("Failed", False, True, TaskStatus.FAILED),
        ("", False, False, TaskStatus.UNKNOWN),
    ],
)
def test_a_pod_implies_a_status(phase, deleting, has_node, status):
    assert from_pod(phase, deleting=deleting, has_node=has_node) is status


def test_a_releasing_task_counts_for_nothing_and_is_no_victim():
    assert not HOLDS_RESOURCES[TaskStatus.RELEASING]
    assert not PREEMPTABLE[TaskStatus.RELEASING]
    assert TaskStatus.RELEASING not in READY


def test_a_succeeded_task_still_counts_towards_its_gang_but_holds_nothing():
    assert TaskStatus.SUCCEEDED in READY
    assert not HOLDS_RESOURCES[TaskStatus.SUCCEEDED]
