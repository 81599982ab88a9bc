"""How moments are put into words."""

from pumice.demo.sentences import Severity
from tests.support.structs import node
from tests.unit.demo.objects import (
    Story,
    condition,
    full_cluster,
    gone,
    group_of,
    job_of,
    seen,
    worker_pod,
)


def test_what_happens_to_one_pod_is_told_with_its_name():
    story = Story()
    story.at(1.0, seen(job_of("train", 2, phase="Pending")))
    assert story.at(2.0, seen(worker_pod("train", 0))) == [
        "train: gang admitted by queue default",
        "train: worker-0 created",
    ]
    assert story.at(3.0, seen(worker_pod("train", 0, "node-3"))) == [
        "train: worker-0 bound (1 of 2): node-3"
    ]
    assert story.at(4.0, seen(worker_pod("train", 0, "node-3", "Failed"))) == [
        "train: worker-0 failed"
    ]
    assert story.log[-1].severity is Severity.BAD


def test_many_pods_within_one_glance_are_one_sentence_with_their_nodes():
    story = Story()
    story.at(1.0, seen(job_of("train", 20, phase="Pending")))
    story.at(2.0, *(seen(worker_pod("train", i)) for i in range(20)))
    told = story.at(3.0, *(seen(worker_pod("train", i, f"node-{i % 6}")) for i in range(20)))
    assert told == [
        "train: 20 pods bound (20 of 20): node-0 x4, node-1 x4, node-2 x3, node-3 x3 and 2 more"
    ]


def test_a_glance_that_skips_steps_tells_each_of_them():
    story = Story()
    assert story.at(
        1.0,
        seen(job_of("train", 1, phase="Completed")),
        seen(group_of("train", "Running")),
        seen(worker_pod("train", 0, "node-0", "Succeeded")),
    ) == [
        "train: submitted: 1 pod, all together",
        "train: job Completed after 0.0 s",
        "train: gang admitted by queue default",
        "train: worker-0 created",
        "train: worker-0 bound (1 of 1): node-0",
        "train: worker-0 succeeded (1 of 1)",
    ]


def test_phases_that_follow_each_other_within_a_glance_are_all_told():
    story = Story()
    told = story.at(
        1.0,
        seen(job_of("train", 1, phase="Pending")),
        seen(job_of("train", 1, phase="Running")),
        seen(job_of("train", 1, phase="Completed")),
    )
    assert told[1:] == [
        "train: job Pending",
        "train: job Running",
        "train: job Completed after 0.0 s",
    ]


def test_an_elastic_gang_says_how_many_it_needs():
    story = Story()
    assert story.at(1.0, seen(job_of("grow", 8, 2))) == [
        "grow: submitted: 8 pods, at least 2 together"
    ]


def test_a_wait_is_told_with_its_reason_and_again_when_the_reason_changes():
    story = Story()
    story.at(1.0, seen(job_of("train", 2, phase="Pending")))
    told = []
    for at_s, reason in ((2.0, "no room"), (3.0, "no room"), (4.0, "quota"), (5.0, "quota")):
        told += story.at(
            at_s, seen(group_of("train", "Pending", condition("Unschedulable", reason)))
        )
    assert told == ["train: gang waits: no room", "train: gang waits: quota"]
    assert story.log[-1].severity is Severity.WAITING


def test_a_reason_that_holds_for_a_moment_only_is_not_told():
    story = Story()
    story.at(1.0, seen(job_of("train", 1, phase="Pending")))
    story.at(1.0, seen(group_of("train", "Inqueue", condition("Unschedulable", "1/0 tasks"))))
    told = story.at(1.5, seen(worker_pod("train", 0, "node-0")))
    assert told + story.at(9.0) == [
        "train: worker-0 created",
        "train: worker-0 bound (1 of 1): node-0",
    ]


def test_nodes_are_counted_with_what_they_offer():
    story = Story()
    assert story.at(1.0, seen(node("node-0")), seen(node("node-1", cpu="500m"))) == [
        "cluster: 2 nodes ready (2 nodes, 8500m cpu)"
    ]
    assert story.at(2.0, gone(node("node-1", cpu="500m"))) == ["cluster: lost node-1"]


def test_sentences_are_ascii():
    for sentence in full_cluster().log:
        assert sentence.text.isascii()
        assert "\n" not in sentence.text
