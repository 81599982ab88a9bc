"""What a scene makes of watch events."""

from itertools import permutations

import pytest

from pumice.demo.model import MomentKind, Scene, Stage
from shared.api.batch import JobPhase
from tests.support.structs import node
from tests.unit.demo.objects import condition, gone, group_of, job_of, seen, worker_pod

KEY = "default/train"


def kinds(scene, *changes, at_s=1.0):
    return [moment.kind for change in changes for moment in scene.fold(change, at_s)]


def test_a_gang_is_the_same_whatever_is_seen_first():
    changes = (
        seen(job_of("train", 2, phase="Pending")),
        seen(group_of("train", "Inqueue")),
        seen(worker_pod("train", 0, "node-0", "Running")),
        seen(worker_pod("train", 1)),
    )
    results = []
    for order in permutations(changes):
        scene = Scene()
        for change in order:
            scene.fold(change, 1.0)
        gang = scene.gangs[KEY]
        results.append((gang.milestones, dict(gang.members), gang.phase, gang.group_phase))
    assert all(result == results[0] for result in results)


def test_an_event_that_changes_nothing_is_no_moment():
    scene = Scene()
    changes = [
        seen(node("node-0")),
        seen(job_of("train", 1, phase="Running")),
        seen(group_of("train", "Running", condition("Unschedulable", "no room"))),
        seen(worker_pod("train", 0, "node-0", "Running")),
    ]
    assert kinds(scene, *changes)
    assert kinds(scene, *changes) == []


def test_milestones_are_the_first_time_of_each_step_and_the_last_binding():
    scene = Scene()
    scene.fold(seen(job_of("train", 2)), 1.0)
    scene.fold(seen(group_of("train", "Pending")), 1.5)
    assert scene.gangs[KEY].milestones.admitted_s is None
    scene.fold(seen(group_of("train", "Inqueue")), 2.0)
    scene.fold(seen(worker_pod("train", 0, "node-0")), 3.0)
    scene.fold(seen(worker_pod("train", 1, "node-0")), 4.0)
    scene.fold(seen(group_of("train", "Running")), 4.5)
    scene.fold(seen(job_of("train", 2, phase="Running")), 5.0)
    scene.fold(seen(job_of("train", 2, phase="Completed")), 6.0)
    stones = scene.gangs[KEY].milestones
    assert (stones.created_s, stones.admitted_s) == (1.0, 2.0)
    assert (stones.first_bound_s, stones.last_bound_s) == (3.0, 4.0)
    assert (stones.running_s, stones.ended_s) == (5.0, 6.0)


def test_a_gang_whose_pods_are_made_was_admitted_though_its_group_does_not_show_it_yet():
    scene = Scene()
    scene.fold(seen(job_of("train", 1)), 1.0)
    scene.fold(seen(group_of("train", "Pending")), 1.1)
    scene.fold(seen(worker_pod("train", 0)), 1.2)
    moments = scene.fold(seen(group_of("train", "Running")), 2.2)
    assert scene.gangs[KEY].milestones.admitted_s == 1.2
    assert "gang admitted" not in [moment.kind.value for moment in moments]


def test_a_job_that_restarts_has_not_ended():
    scene = Scene()
    scene.fold(seen(job_of("train", 1, phase="Aborted")), 1.0)
    assert scene.unfinished([KEY]) == []
    scene.fold(seen(job_of("train", 1, phase="Restarting")), 2.0)
    assert scene.unfinished([KEY]) == [KEY]
    assert scene.gangs[KEY].milestones.ended_s is None


def test_a_job_that_was_never_seen_has_not_ended():
    assert Scene().unfinished([KEY]) == [KEY]


@pytest.mark.parametrize(
    ("phase", "node_name", "stage"),
    [
        ("Pending", "", Stage.WAITING),
        ("Pending", "node-0", Stage.BOUND),
        ("Running", "node-0", Stage.RUNNING),
        ("Succeeded", "node-0", Stage.SUCCEEDED),
        ("Failed", "node-0", Stage.FAILED),
    ],
)
def test_the_stage_of_a_pod_comes_from_its_node_and_phase(phase, node_name, stage):
    scene = Scene()
    scene.fold(seen(worker_pod("train", 0, node_name, phase)), 1.0)
    assert scene.gangs[KEY].count(stage) == 1


def test_a_pod_that_is_deleted_while_it_runs_is_removed_and_one_that_ended_stays_ended():
    scene = Scene()
    assert kinds(
        scene,
        seen(worker_pod("train", 0, "node-0", "Running")),
        seen(worker_pod("train", 1, "node-0", "Succeeded")),
        gone(worker_pod("train", 0, "node-0", "Running")),
        gone(worker_pod("train", 1, "node-0", "Succeeded")),
    )[-1:] == [MomentKind.POD_REMOVED]
    gang = scene.gangs[KEY]
    assert (gang.count(Stage.REMOVED), gang.count(Stage.SUCCEEDED)) == (1, 1)


def test_a_successor_of_the_same_name_takes_the_place_and_its_forerunner_does_not_remove_it():
    scene = Scene()
    scene.fold(seen(worker_pod("train", 0, "node-0", "Running", uid="first")), 1.0)
    told = kinds(scene, seen(worker_pod("train", 0, uid="second")), at_s=2.0)
    assert told == [MomentKind.POD_CREATED]
    assert kinds(scene, gone(worker_pod("train", 0, "node-0", "Running", uid="first"))) == []
    assert scene.gangs[KEY].count(Stage.WAITING) == 1


def test_a_pod_of_no_job_is_not_shown():
    scene = Scene()
    stray = worker_pod("train", 0, "node-0")
    stray = seen(type(stray)(metadata=type(stray.metadata)(name="stray"), spec=stray.spec))
    assert scene.fold(stray, 1.0) == []
    assert scene.gangs == {}


def test_a_node_carries_the_pods_that_are_bound_or_run_there():
    scene = Scene()
    scene.fold(seen(node("node-0")), 1.0)
    for index, phase in enumerate(("Pending", "Running", "Succeeded", "Failed")):
        scene.fold(seen(worker_pod("train", index, "node-0", phase, cpu="1500m")), 1.0)
    scene.fold(seen(worker_pod("other", 0, "node-1", "Running")), 1.0)
    load = scene.load("node-0")
    assert (load.cpu_milli, load.pods) == (3000, 2)
    assert load.memory_bytes == 2 * 1024**3
    assert load.cpu_milli_by_gang == {KEY: 3000}


def test_a_node_is_told_when_it_becomes_ready_is_lost_and_comes_back():
    scene = Scene()
    assert kinds(scene, seen(node("node-0", ready=False))) == []
    assert kinds(scene, seen(node("node-0"))) == [MomentKind.NODE_READY]
    assert kinds(scene, gone(node("node-0"))) == [MomentKind.NODE_LOST]
    assert kinds(scene, seen(node("node-0"))) == [MomentKind.NODE_READY]


def test_a_gang_waits_until_its_minimum_is_placed():
    scene = Scene()
    scene.fold(seen(job_of("train", 3, 2, phase="Pending")), 1.0)
    scene.fold(seen(group_of("train", "Inqueue", condition("Unschedulable", "no room"))), 1.0)
    scene.settle(2.0)
    assert scene.gangs[KEY].waits_for == "no room"
    scene.fold(seen(worker_pod("train", 0, "node-0")), 2.0)
    assert scene.gangs[KEY].waits_for == "no room"
    scene.fold(seen(worker_pod("train", 1, "node-0")), 2.0)
    assert scene.gangs[KEY].waits_for == ""


def test_the_later_condition_decides_whether_a_gang_waits():
    unschedulable = condition("Unschedulable", "no room", "2026-01-01T00:00:05Z")
    before = condition("Scheduled", "ready", "2026-01-01T00:00:01Z")
    after = condition("Scheduled", "ready", "2026-01-01T00:00:09Z")
    for conditions, why in (
        ((unschedulable, before), "no room"),
        ((before, unschedulable), "no room"),
        ((unschedulable, after), ""),
        ((after, unschedulable), ""),
    ):
        scene = Scene()
        scene.fold(seen(job_of("train", 3, phase="Pending")), 1.0)
        scene.fold(seen(group_of("train", "Inqueue", *conditions)), 1.0)
        scene.settle(2.0)
        assert scene.gangs[KEY].waits_for == why


def test_a_group_that_its_queue_keeps_out_waits_for_that_queue():
    scene = Scene()
    scene.fold(seen(job_of("train", 3, phase="Pending")), 1.0)
    scene.fold(seen(group_of("train", None)), 1.0)
    assert scene.settle(1.1) == []
    assert [moment.detail for moment in scene.settle(1.8)] == ["not admitted by queue default yet"]
    scene.fold(seen(group_of("train", "Inqueue")), 2.0)
    assert scene.settle(2.0) == []
    assert scene.gangs[KEY].waits_for == ""


def test_a_group_that_has_gone_says_nothing_any_more():
    scene = Scene()
    scene.fold(seen(job_of("train", 3, phase="Running")), 1.0)
    scene.fold(seen(group_of("train", "Inqueue", condition("Unschedulable", "no room"))), 1.0)
    scene.settle(2.0)
    scene.fold(gone(group_of("train", "Inqueue")), 3.0)
    assert (scene.gangs[KEY].waits_for, scene.gangs[KEY].group_phase) == ("", None)


def test_a_group_that_belongs_to_no_job_is_not_shown():
    scene = Scene()
    bare = group_of("train", "Inqueue")
    meta = type(bare.metadata)(name="bare", namespace="default")
    assert scene.fold(seen(type(bare)(metadata=meta, status=bare.status)), 1.0) == []
    assert scene.gangs == {}


def test_a_completed_job_waits_for_nothing():
    scene = Scene()
    scene.fold(seen(group_of("train", "Inqueue", condition("Unschedulable", "no room"))), 1.0)
    scene.fold(seen(job_of("train", 3, phase=JobPhase.COMPLETED)), 1.0)
    assert scene.settle(2.0) == []
    assert scene.gangs[KEY].waits_for == ""
