"""What a job hands on, waits for and tells, detail by detail (J12, J25, J30 to J34)."""

import json
from typing import Any

import msgspec
import pytest

from services.controller.job import effects
from services.controller.job.group import why_pending
from services.controller.job.podtemplate import PodBuilder
from shared.api import keys
from shared.api.meta import ObjectMeta
from shared.api.scheduling import (
    ExtendCluster,
    PodGroup,
    PodGroupCondition,
    PodGroupPhase,
    PodGroupStatus,
    Queue,
    QueueSpec,
)
from shared.jobs.defaults import defaulted
from tests.support.structs import job
from tests.unit.controller.world import Cluster, Controller, running, started, task


def pod_of(labels: dict[str, str], annotations: dict[str, str], **of_task: Any) -> dict[str, Any]:
    """Return the metadata of the first pod of a job with these labels and annotations."""
    first = job(task("a", 1, **of_task), labels=labels, annotations=annotations)
    whole = defaulted(first, scheduler_name="volcano")
    pod: dict[str, Any] = json.loads(PodBuilder(whole, whole.spec.tasks[0]).body(0))
    return pod["metadata"]  # type: ignore[no-any-return]


def test_labels_of_the_job_become_labels_and_annotations_become_annotations_j31_j32() -> None:
    of_job = {keys.PREEMPTABLE: "true", keys.COOLDOWN_TIME: "600s"}
    pod = pod_of({**of_job, "team": "a"}, {})
    assert of_job.items() <= pod["labels"].items()
    assert keys.PREEMPTABLE not in pod["annotations"]
    assert "team" not in pod["labels"]
    pod = pod_of({}, of_job)
    assert of_job.items() <= pod["annotations"].items()
    assert keys.PREEMPTABLE not in pod["labels"]


@pytest.mark.parametrize("policy", ["none", "single-numa-node"])
def test_a_pod_says_the_topology_policy_of_its_task_j31(policy: str) -> None:
    pod = pod_of({}, {}, topologyPolicy=policy)
    assert pod["annotations"][keys.NUMA_TOPOLOGY_POLICY] == policy
    assert keys.NUMA_TOPOLOGY_POLICY not in pod_of({}, {})["annotations"]


@pytest.mark.parametrize(
    ("iteration", "made"),
    [({}, False), ({"iteration": "all"}, False), ({"iteration": "any"}, True)],
    ids=["unset", "all", "any"],
)
def test_a_task_waits_for_all_that_it_depends_on_unless_it_says_any_j25(
    iteration: dict[str, str], *, made: bool
) -> None:
    then = task("then", 1, dependsOn={"name": ["a", "b"], **iteration})
    cluster, controller = started(task("a", 1), task("b", 1), then)
    cluster.change_pod("train-a-0", "Running")
    controller.settle()
    assert ("train-then-0" in cluster.pods) is made
    cluster.change_pod("train-b-0", "Running")
    controller.settle()
    assert "train-then-0" in cluster.pods


def on(event: str, action: str, **extra: Any) -> dict[str, Any]:
    return {"event": event, "action": action, **extra}


CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


def test_a_claim_without_a_name_gets_one_in_the_job_itself_j30() -> None:
    """Admission lets that change pass (W26), and whoever looks for the claim finds it there."""
    cluster, controller = started(
        task("a", 1),
        volumes=[
            {"mountPath": "/new", "volumeClaim": CLAIM},
            {"mountPath": "/old", "volumeClaimName": "mine"},
        ],
    )
    new, old = cluster.job.spec.volumes
    assert new.volume_claim_name.startswith("train-pvc-")
    assert msgspec.json.decode(new.volume_claim) == CLAIM
    assert (old.volume_claim_name, old.mount_path) == ("mine", "/old")
    assert cluster.companions == {f"PersistentVolumeClaim/{new.volume_claim_name}"}
    volumes = json.loads(msgspec.json.encode(cluster.pods["train-a-0"].spec.volumes))
    claims = [volume["persistentVolumeClaim"]["claimName"] for volume in volumes]
    assert claims == [new.volume_claim_name, "mine"]
    assert cluster.job.status.controlled_resources == {
        f"volume-pvc-{name}": name for name in sorted((new.volume_claim_name, "mine"))
    }
    assert cluster.job.status.state.reason == "", (
        "name and claim together are no mistake of the user"
    )
    before = list(cluster.writes)
    controller.settle()
    assert cluster.writes == before


def test_a_job_that_is_applied_again_without_the_name_gets_the_same_one_j30() -> None:
    volumes = [{"mountPath": "/new", "volumeClaim": CLAIM}]
    cluster, controller = started(task("a", 1), volumes=volumes)
    name = cluster.job.spec.volumes[0].volume_claim_name
    cluster.apply(effects.AmendJob(patch={"spec": {"volumes": volumes}}))
    assert cluster.job.spec.volumes[0].volume_claim_name == ""
    controller.settle()
    assert cluster.job.spec.volumes[0].volume_claim_name == name


def test_another_name_beside_a_claim_is_still_a_mistake_w23() -> None:
    volumes = [{"mountPath": "/new", "volumeClaim": CLAIM, "volumeClaimName": "train-pvc-x"}]
    cluster, _ = started(task("a", 1), volumes=volumes)
    assert "conflict" in cluster.job.status.state.message
    assert cluster.pods == {}


def test_a_job_of_a_queue_that_hands_on_says_so_before_anything_is_made_of_it_j33() -> None:
    cluster = Cluster(job(task("a", 1)), group_phase=PodGroupPhase.INQUEUE)
    spec = QueueSpec(extend_clusters=(ExtendCluster(name="b"),))
    cluster.queue = Queue(metadata=ObjectMeta(name="default", uid="q"), spec=spec)
    Controller(cluster).settle()
    mark = {keys.JOB_FORWARDING: "true"}
    assert cluster.group is not None
    pod = cluster.pods["train-a-0"].metadata
    for marked in (cluster.job.metadata, cluster.group.metadata, pod):
        assert mark.items() <= marked.annotations.items()
    assert mark.items() <= pod.labels.items()
    assert cluster.writes.count("AmendJob") == 1


def told(cluster: Cluster, reason: str) -> list[str]:
    return [t.message for t in cluster.told if t.reason == reason]


def test_a_restart_of_a_task_does_not_call_off_what_waits_for_the_job_j12() -> None:
    cluster, controller = running(
        task("a", 2, policies=[on("PodFailed", "RestartTask")]),
        policies=[on("PodEvicted", "AbortJob", timeout="60s")],
        minAvailable=1,
    )
    del cluster.pods["train-a-0"]
    controller.settle()
    cluster.change_pod("train-a-1", "Failed", exit_code=1)
    assert controller.settle().retry_count == 1
    cluster.now += 61
    assert controller.settle().state.phase == "Aborted"


def test_actions_that_are_due_together_are_all_carried_out_j12() -> None:
    restart = [on("PodFailed", "RestartTask", timeout="60s")]
    cluster, controller = running(
        task("a", 1, policies=restart), task("b", 1, policies=restart), task("c", 1), minAvailable=1
    )
    failed = ("train-a-0", "train-b-0")
    before = {name: cluster.pods[name].metadata.uid for name in failed}
    for name in failed:
        cluster.change_pod(name, "Failed", exit_code=1)
    controller.settle()
    cluster.now += 61
    controller.settle()
    after = {name: pod.metadata.uid for name, pod in cluster.pods.items()}
    assert [name for name in before if before[name] == after[name]] == []


def test_the_timeout_of_an_eviction_counts_from_the_eviction_j12() -> None:
    cluster, controller = running(
        task("a", 2), policies=[on("PodEvicted", "AbortJob", timeout="60s")], minAvailable=1
    )
    cluster.change_pod("train-a-0", "Failed", exit_code=1, ended="2025-10-09T08:53:20Z")
    controller.settle()
    cluster.now += 3600
    del cluster.pods["train-a-0"]
    assert controller.settle().state.phase == "Running"
    cluster.now += 61
    assert controller.settle().state.phase == "Aborted"


def test_an_order_and_what_it_does_are_told_in_volcanos_words_j34() -> None:
    cluster, controller = running(task("a", 1))
    cluster.command("AbortJob")
    controller.settle()
    assert [t.split(" and ")[0] for t in told(cluster, "CommandIssued")] == [
        "Start to execute command AbortJob"
    ]
    assert told(cluster, "ExecuteAction") == [
        "Start to execute action AbortJob: Running → Aborting, AbortJob by command uid-order"
    ]


def test_an_order_that_changes_nothing_is_told_too_j34() -> None:
    cluster, controller = running(task("a", 1))
    cluster.command("ResumeJob")
    controller.settle()
    assert len(told(cluster, "CommandIssued")) == 1
    assert "stays Running" in told(cluster, "ExecuteAction")[0]


def test_an_order_that_nobody_knows_is_warned_of_j34() -> None:
    cluster, controller = running(task("a", 1))
    cluster.command("DanceJob")
    controller.settle()
    (warning,) = cluster.told
    assert (warning.reason, warning.warning) == ("CommandIssued", True)
    assert "no action 'DanceJob'" in warning.message


def test_a_second_restart_for_the_same_reason_is_told_again_j34() -> None:
    cluster, controller = running(
        task("a", 1), policies=[on("PodFailed", "RestartJob")], maxRetry=5
    )
    for _ in range(2):
        cluster.run_all()
        controller.settle()
        cluster.change_pod("train-a-0", "Failed", exit_code=1)
        controller.settle()
    restarts = [t for t in cluster.told if t.reason == "ExecuteAction"]
    assert len({t.message for t in restarts}) == 1
    assert "Start to execute action RestartJob" in restarts[0].message
    assert len({t.occasion for t in restarts}) == 2


def test_an_action_that_waits_is_told_when_it_begins_to_wait_j12_j34() -> None:
    cluster, controller = running(
        task("a", 2), policies=[on("PodFailed", "AbortJob", timeout="90s")], minAvailable=1
    )
    cluster.change_pod("train-a-0", "Failed", exit_code=1)
    controller.settle()
    controller.settle()
    assert told(cluster, "ExecuteAction") == [
        "Execute action AbortJob after 1m30s: PodFailed of pod train-a-0, exit code 1"
    ]


@pytest.mark.parametrize(
    ("conditions", "reason"),
    [
        ([], None),
        ([("Unschedulable", "True", 1, "NotEnoughResources")], "NotEnoughResources"),
        ([("Unschedulable", "False", 1, "NotEnoughResources")], None),
        ([("Unschedulable", "True", 1, "Old"), ("Scheduled", "True", 2, "ready")], None),
        ([("Scheduled", "True", 1, "ready"), ("Unschedulable", "True", 2, "New")], "New"),
    ],
    ids=["none", "unschedulable", "no-more", "scheduled-since", "unschedulable-again"],
)
def test_what_holds_a_group_back_is_what_was_said_of_it_last_j34(
    conditions: list[tuple[str, str, int, str]], reason: str | None
) -> None:
    said = [
        PodGroupCondition(
            type=kind, status=status, last_transition_time=f"2025-10-09T09:00:0{at}Z", reason=why
        )
        for kind, status, at, why in conditions
    ]
    group = PodGroup(status=PodGroupStatus(phase=PodGroupPhase.INQUEUE, conditions=tuple(said)))
    found = why_pending(group)
    assert (found.reason if found else None) == reason
