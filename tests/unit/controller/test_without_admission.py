"""Each rule of admission holds where no webhook was asked: by the schema, or by the controller.

The views that objects are read into here are what the CRDs are made from, so what they refuse the
API server refuses by itself (CEL rules are tried on it: `tests/integration/crds`).
"""

import json

import msgspec
import pytest

from services.controller.job.validate import problems, queue_problem
from shared.api.batch import Job
from shared.api.meta import ObjectMeta
from shared.api.scheduling import Queue, QueueStatus
from shared.jobs.defaults import defaulted
from tests.unit.admission.asking import (
    Json,
    ask,
    container,
    paths,
    queue_named,
    sparse_job,
    template,
)
from tests.unit.admission.asking import task as stated_task
from tests.unit.controller.test_job_life import edit, phase
from tests.unit.controller.world import Cluster, Controller, started, task

MOUNT = {"mountPath": "/a"}


def with_task(**fields: object) -> Json:
    return sparse_job(stated_task("a", 2, **fields))


def policy(**fields: object) -> Json:
    return sparse_job(policies=[{"action": "AbortJob", **fields}])


def named(name: str, body: Json) -> Json:
    return {**body, "metadata": {**body["metadata"], "name": name}}


PARTITIONS = {"totalPartitions": 3, "partitionSize": 1}
TIERS = {"highestTierAllowed": 1, "highestTierName": "rack"}

RULES: dict[str, Json] = {
    "w20 no tasks": {**sparse_job(), "spec": {"tasks": [], "queue": "default"}},
    "w20 two tasks of one name": sparse_job(stated_task("a"), stated_task("a")),
    "w20 a task's minimum": with_task(minAvailable=3),
    "w20 the job's minimum": sparse_job(minAvailable=5),
    "w20 pods without end": sparse_job(stated_task("a", 2**31 - 1)),
    "w20 pods without end of all tasks": sparse_job(
        stated_task("a", 100_000), stated_task("b", 100_000)
    ),
    "w20 negative minimum": sparse_job(minAvailable=-1),
    "w20 negative minimum of a task": with_task(minAvailable=-1),
    "w20 negative replicas": sparse_job(stated_task("a", -1)),
    "w20 negative retries": sparse_job(maxRetry=-1),
    "w20 negative time to live": sparse_job(ttlSecondsAfterFinished=-1),
    "w21 event and exit code": policy(event="PodFailed", exitCode=1),
    "w21 neither": policy(),
    "w21 no such event": policy(event="PodDanced"),
    "w21 an event that is not for users": policy(event="PodRunning"),
    "w21 an event that is not for users, in a list": policy(events=["PodFailed", "OutOfSync"]),
    "w21 no such action": policy(event="PodFailed", action="Dance"),
    "w21 an action that is not for users": policy(event="PodFailed", action="SyncJob"),
    "w21 one event twice": sparse_job(policies=[{"action": "AbortJob", "event": "PodFailed"}] * 2),
    "w21 one exit code twice": sparse_job(policies=[{"action": "AbortJob", "exitCode": 3}] * 2),
    "w21 exit code 0": policy(exitCode=0),
    "w21 any event beside others": policy(events=["*", "PodFailed"]),
    "w21 policies of a task": with_task(policies=[{"action": "AbortJob"}]),
    "w22 a name of the job": named("j" * 64, sparse_job()),
    "w22 a name of a task": sparse_job(stated_task("Upper")),
    "w22 names of pods": sparse_job(stated_task("t" * 62)),
    "w22 names of pods with many replicas": named(
        "j" * 30, sparse_job(stated_task("t" * 28, 10_000), plugins={"svc": []})
    ),
    "w22 no containers": template(containers=[]),
    "w22 no image": container(image=""),
    "w22 a container's name": container(name="Upper"),
    "w22 a variable": container(env=[{"name": "a=b"}]),
    "w22 a port": container(ports=[{"containerPort": 70_000}]),
    "w22 a mount of nothing": container(volumeMounts=[{"name": "v", "mountPath": "/a"}]),
    "w22 no quantity": container(resources={"requests": {"cpu": "much"}}),
    "w22 less than nothing": container(resources={"requests": {"cpu": "-1"}}),
    "w22 more than the limit": container(
        resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}
    ),
    "w22 restart policy": template(restartPolicy="Sometimes"),
    "w23 a plugin that nobody knows": sparse_job(plugins={"nope": []}),
    "w23 no master of mpi": sparse_job(plugins={"mpi": ["--master=nobody"]}),
    "w23 a volume without a path": sparse_job(volumes=[{"mountPath": "", "volumeClaimName": "c"}]),
    "w23 one path twice": sparse_job(volumes=[{**MOUNT, "volumeClaimName": "c"}] * 2),
    "w23 a volume of nothing": sparse_job(volumes=[MOUNT]),
    "w23 a volume of two claims": sparse_job(
        volumes=[{**MOUNT, "volumeClaimName": "c", "volumeClaim": {"x": 1}}]
    ),
    "w23 a name of a claim": sparse_job(volumes=[{**MOUNT, "volumeClaimName": "Upper"}]),
    "w25 a dependency on nobody": with_task(dependsOn={"name": ["nobody"]}),
    "w25 a circle": sparse_job(
        stated_task("a", dependsOn={"name": ["b"]}), stated_task("b", dependsOn={"name": ["a"]})
    ),
    "w25 half a cpu": sparse_job(
        stated_task(
            topologyPolicy="restricted",
            template=container(resources={"requests": {"cpu": "500m"}})["spec"]["tasks"][0][
                "template"
            ],
        )
    ),
    "w25 partitions that do not make up all": with_task(partitionPolicy=PARTITIONS),
    "w25 no partitions": with_task(partitionPolicy={**PARTITIONS, "totalPartitions": 0}),
    "w25 empty partitions": with_task(partitionPolicy={**PARTITIONS, "partitionSize": 0}),
    "w25 a minimum that is not whole partitions": sparse_job(
        stated_task("a", 3, minAvailable=1, partitionPolicy={**PARTITIONS, "minPartitions": 2})
    ),
    "w25 a tier named twice": sparse_job(networkTopology=TIERS),
    "w25 a tier named twice in a partition": sparse_job(
        stated_task("a", 3, partitionPolicy={**PARTITIONS, "networkTopology": TIERS})
    ),
}


def held_by(stated: Json) -> str:
    """Return who holds a job that no webhook refused, "" when nobody does."""
    try:
        read = msgspec.json.decode(json.dumps(stated), type=Job)
    except msgspec.ValidationError:
        return "the schema"
    return "the controller" if problems(defaulted(read, scheduler_name="volcano")) else ""


@pytest.mark.parametrize("rule", list(RULES))
def test_a_job_that_a_webhook_refuses_does_not_run_without_one(rule: str) -> None:
    assert paths(ask("/jobs/validate", RULES[rule])), "the webhook refuses it"
    assert held_by(RULES[rule])


def test_a_good_job_is_held_by_nobody() -> None:
    assert held_by(sparse_job(plugins={"svc": [], "env": []}, minAvailable=1)) == ""


@pytest.mark.parametrize(
    ("queue", "state", "leaf"),
    [
        ("nobody", None, True),
        ("shut", "Closed", True),
        ("shut", "Closing", True),
        ("parent", "Open", False),
        ("root", "Open", True),
    ],
)
def test_a_new_job_waits_for_a_queue_that_a_webhook_would_have_wanted_w24(
    queue: str, state: str | None, leaf: bool
) -> None:
    known = [queue_named(queue, state=state)] if state else [queue_named("default")]
    known += [] if leaf else [queue_named("child", parent=queue)]
    refusal = ask("/jobs/validate", sparse_job(queue=queue), queues=known).message
    status = QueueStatus(state=state) if state else QueueStatus()
    found = Queue(metadata=ObjectMeta(name=queue), status=status) if state else None
    said = queue_problem(queue, found, is_leaf=leaf)
    assert said
    assert said in refusal


def test_of_thousands_of_faults_the_job_is_told_the_first_w20() -> None:
    """The status of a job must not outgrow the API server."""
    cluster, _ = started(task("a", 1), plugins={f"nope-{n:04}": [] for n in range(5000)})
    message = cluster.job.status.state.message
    assert message.startswith("spec.plugins.nope-0000: unable to find job plugin")
    assert message.endswith("; and 4980 more faults")


@pytest.mark.timeout(30)
@pytest.mark.parametrize("action", ["RestartTask", "RestartPod", "RestartJob", "RestartPartition"])
def test_pods_without_end_stop_nobody_w20(action: str) -> None:
    """A slip of the finger must not cost the controller its memory, whatever happens to the job."""
    policies = [{"event": "PodFailed", "action": action}]
    cluster, controller = started(task("a", 2), policies=policies)
    cluster.run_all()
    controller.settle()
    edit(cluster, tasks=[task("a", 2**31 - 1)])
    state = controller.settle().state
    assert state.message == (
        "spec.tasks[0].replicas: 2147483647 pods of one job are too many: 150000 are the most"
    )
    cluster.change_pod("train-a-0", "Failed", 1)
    controller.settle()
    cluster.pods.pop("train-a-1", None)
    controller.settle()
    cluster.command("AbortJob")
    controller.settle()
    assert len(cluster.pods) <= 2


def running() -> tuple[Cluster, Controller]:
    """Return a job of three pods that run."""
    cluster, controller = started(task("a", 2), task("b", 1), minAvailable=3)
    cluster.run_all()
    assert controller.settle().state.phase == "Running"
    return cluster, controller


@pytest.mark.parametrize(
    ("tasks", "pods"),
    [
        ([task("a", 2)], ["a-0", "a-1"]),
        ([task("a", 2), task("b", 1), task("c", 1)], ["a-0", "a-1", "b-0", "c-0"]),
        ([task("x", 2), task("b", 1)], ["b-0", "x-0", "x-1"]),
        ([task("b", 1), task("a", 2)], ["a-0", "a-1", "b-0"]),
    ],
    ids=["a task less", "a task more", "another name", "another order"],
)
def test_tasks_that_changed_where_nobody_refused_it_are_followed_w26(
    tasks: list[Json], pods: list[str]
) -> None:
    """What a webhook keeps from changing does no harm when it does: the job follows, and ends."""
    cluster, controller = running()
    edit(cluster, tasks=tasks, minAvailable=len(pods))
    controller.settle()
    assert sorted(cluster.pods) == [f"train-{name}" for name in pods]
    assert cluster.group is not None
    assert cluster.group.spec.min_member == len(pods)
    cluster.run_all()
    assert controller.settle().running == len(pods)
    for name in pods:
        cluster.change_pod(f"train-{name}", "Succeeded")
    controller.settle()
    assert phase(cluster) == "Completed"


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"tasks": [task("a", 2), task("a", 1)]}, "spec.tasks[1].name"),
        ({"plugins": {"nope": []}}, "spec.plugins.nope"),
        ({"minAvailable": 9}, "spec.minAvailable"),
    ],
)
def test_a_change_that_makes_a_running_job_wrong_stops_nothing_and_is_said_w26(
    change: Json, path: str
) -> None:
    cluster, controller = running()
    edit(cluster, **change)
    state = controller.settle().state
    assert (state.phase, state.reason) == ("Running", "InvalidSpec")
    assert state.message.startswith(path)
    assert len(cluster.pods) == 3
    edit(cluster, tasks=[task("a", 2), task("b", 1)], plugins={}, minAvailable=3)
    for name in list(cluster.pods):
        cluster.change_pod(name, "Succeeded")
    controller.settle()
    assert phase(cluster) == "Completed"
