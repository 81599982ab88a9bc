"""What a job hands on and waits for, detail by detail as Volcano has it (J12, J25, J30 to J33)."""

import json
from typing import Any

import pytest

from services.controller.job.podtemplate import PodForge
from shared.api import keys
from shared.jobs.defaults import defaulted
from tests.unit.controller.world import job, started, task


def pod_of(labels: dict[str, str], annotations: dict[str, str], **of_task: Any) -> dict[str, Any]:
    """Return the metadata of the first pod of a job with these labels and annotations."""
    first = job(task("a", 1, **of_task), labels=labels, annotations=annotations)
    whole = defaulted(first, scheduler_name="volcano")
    pod: dict[str, Any] = json.loads(PodForge(whole, whole.spec.tasks[0]).body(0))
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
