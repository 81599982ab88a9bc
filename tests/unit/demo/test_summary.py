"""What is printed at the end."""

import pytest

from pumice.demo.model import Scene
from pumice.demo.summary import timeline, totals, what_is_missing
from tests.support.structs import node
from tests.unit.demo.objects import (
    NO_ROOM,
    Story,
    full_cluster,
    gone,
    group_of,
    job_of,
    seen,
    worker_pod,
)


def completed() -> Scene:
    story = Story()
    story.at(1.0, seen(node("node-0")))
    story.at(2.0, seen(job_of("train", 2, phase="Pending")))
    story.at(2.1, seen(group_of("train", "Inqueue")))
    story.at(2.5, seen(worker_pod("train", 0, "node-0")))
    story.at(4.0, seen(worker_pod("train", 1, "node-0")))
    story.at(4.5, seen(job_of("train", 2, phase="Running")))
    story.at(8.0, seen(worker_pod("train", 0, "node-0", "Succeeded")))
    story.at(8.0, gone(worker_pod("train", 1, "node-0", "Running")))
    story.at(8.2, seen(job_of("train", 2, phase="Completed")))
    return story.scene


def test_the_timeline_counts_from_the_first_job():
    head, row = (line.plain.split() for line in timeline(completed(), 80))
    assert head == ["job", "created", "admitted", "pods", "bound", "running", "ended", "phase"]
    assert row == ["train", "0.0", "0.1", "0.5", "-", "2.0", "2.5", "6.2", "Completed"]


def test_a_step_that_was_not_reached_is_a_dash():
    scene = full_cluster().scene
    row = timeline(scene, 80)[-1].plain.split()
    assert row == ["waits-for-room", "0.3", "0.4", "-", "-", "-", "Pending"]


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_the_timeline_is_ascii_and_no_wider_than_asked(width):
    for scene in (completed(), full_cluster().scene, full_cluster("x" * 200).scene):
        for line in timeline(scene, max(width, 80)):
            assert line.cell_len <= max(width, 80)
        shown = "".join(line.plain for line in timeline(completed(), width))
        assert shown.isascii()


def test_a_wide_timeline_draws_waiting_starting_and_running_in_proportion():
    bar = timeline(completed(), 200)[1].plain.rpartition("Completed")[2].strip()
    assert (bar.count("."), bar.count("-"), bar.count("#")) == (5, 19, 36)


def test_the_totals_count_jobs_pods_and_the_busiest_second():
    assert totals(completed()) == [
        "1 of 1 job completed 6.2 s after the first was submitted",
        "2 pods bound to 1 node, 1 succeeded, 1 removed with their completed job",
        "at best 1 pods/s bound (most within one second)",
    ]
    assert totals(full_cluster().scene)[-1] == "at best 27 pods/s bound (most within one second)"


def test_nothing_seen_gives_a_summary_all_the_same():
    assert len(timeline(Scene(), 80)) == 1
    assert totals(Scene())[0] == "0 of 0 jobs completed 0.0 s after the first was submitted"


def test_what_is_missing_names_each_job_how_far_it_came_and_why():
    scene = full_cluster().scene
    lines = what_is_missing(scene, ["default/waits-for-room", "default/never"])
    phases = "default/waits-for-room: job phase Pending, group phase Inqueue"
    assert lines == [
        f"{phases}, pods: 10 waiting of 10; {NO_ROOM}",
        "default/never: never seen",
    ]
    assert what_is_missing(completed(), ["default/train"]) == []


def test_a_failed_job_is_missing():
    story = Story()
    story.at(1.0, seen(job_of("train", 1, phase="Failed")))
    assert what_is_missing(story.scene, ["default/train"]) == [
        "default/train: job phase Failed, group phase none, pods: none of 1"
    ]
