"""Changes of jobs: what may change, and what a change may not bring about (W26)."""

import msgspec
import pytest

from services.admission.rules.review import Verdict
from shared.api.batch import JobSpec, TaskSpec
from tests.unit.admission.asking import Json, ask, paths, sparse_job, task


def update(before: Json, **changes) -> Verdict:
    now = {**before, "spec": {**before["spec"], **changes}}
    return ask("/jobs/validate", now, old=before, operation="UPDATE")


def test_a_job_may_be_scaled_w26() -> None:
    before = sparse_job(task("a", 3))
    assert update(before, tasks=[task("a", 5, minAvailable=2)], minAvailable=2).allowed
    assert update(before, priorityClassName="high").allowed


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"queue": "other"}, "spec.queue"),
        ({"schedulerName": "other"}, "spec.schedulerName"),
        ({"tasks": [task("b", 3)]}, "spec.tasks[0].name"),
        ({"plugins": {"svc": []}}, "spec.plugins"),
        ({"tasks": [task("a", 3), task("b")]}, "spec.tasks"),
        (
            {"tasks": [task("a", 3, template={"spec": {}})]},
            "spec.tasks[0].template.spec.containers",
        ),
        ({"policies": [{"action": "AbortJob", "event": "*"}]}, "spec.policies"),
    ],
)
def test_any_other_change_names_its_field_w26(changes: Json, path: str) -> None:
    verdict = update(sparse_job(task("a", 3)), **changes)
    assert not verdict.allowed
    assert path in paths(verdict)
    assert "job updates may not" in verdict.message


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"tasks": [task("a", -1)]}, "spec.tasks[0].replicas"),
        ({"tasks": [task("a", 1, minAvailable=2)]}, "spec.tasks[0].minAvailable"),
        ({"minAvailable": 9}, "spec.minAvailable"),
    ],
)
def test_numbers_are_checked_again_when_they_change_w26(changes: Json, path: str) -> None:
    assert path in paths(update(sparse_job(task("a", 3)), **changes))


def test_whoever_applies_a_file_again_need_not_state_the_defaults_w26() -> None:
    before = sparse_job(task("a", 3), plugins={"mpi": ["--master=a"]})
    patch = {
        op["path"].removeprefix("/spec/"): op["value"] for op in ask("/jobs/mutate", before).patch
    }
    stored = {**before, "spec": {**before["spec"], **patch}}
    again = sparse_job(task("a", 5), plugins={"mpi": ["--master=a"]})
    assert ask("/jobs/validate", again, old=stored, operation="UPDATE").allowed
    other = sparse_job(task("a", 3, maxRetry=9), plugins={"mpi": ["--master=a"]})
    verdict = ask("/jobs/validate", other, old=stored, operation="UPDATE")
    assert paths(verdict) == ["spec.tasks[0].maxRetry"]


def test_the_name_of_a_claim_that_the_controller_filled_in_is_no_change_w26() -> None:
    before = sparse_job(volumes=[{"mountPath": "/a", "volumeClaim": {"x": 1}}])
    filled = [{"mountPath": "/a", "volumeClaim": {"x": 1}, "volumeClaimName": "made"}]
    assert update(before, volumes=filled).allowed
    assert not update(before, volumes=[{"mountPath": "/b", "volumeClaim": {"x": 1}}]).allowed


def test_a_job_that_was_stored_before_there_were_rules_can_lose_its_finalizers_w26() -> None:
    bad = sparse_job(task("a"), task("a"))
    freed = {**bad, "metadata": {**bad["metadata"], "labels": {"x": "y"}}}
    assert ask("/jobs/validate", freed, old=bad, operation="UPDATE").allowed


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tasks": [task("a", -1)]}, "'replicas' must be >= 0 in task: a"),
        ({"tasks": [task("a", 3, minAvailable=-1)]}, "'minAvailable' must be >= 0 in task: a"),
        (
            {"tasks": [task("a", 1, minAvailable=2)]},
            "'minAvailable' must be <= 'replicas' in task: a",
        ),
        ({"minAvailable": 9}, "job 'minAvailable' must not be greater than total replicas"),
        ({"minAvailable": -1}, "job 'minAvailable' must be >= 0"),
    ],
)
def test_numbers_of_a_change_are_refused_in_volcanos_words_w26(changes: Json, words: str) -> None:
    assert words in update(sparse_job(task("a", 3)), **changes).message


IMMUTABLE: dict[str, object] = {
    "schedulerName": "other", "volumes": [{"mountPath": "/a", "volumeClaimName": "c"}],
    "plugins": {"env": []}, "runningEstimate": "5m", "queue": "other", "maxRetry": 7,
    "policies": [{"action": "AbortJob", "event": "PodFailed"}], "ttlSecondsAfterFinished": 5,
    "minSuccess": 1, "networkTopology": {"mode": "soft"},
}  # fmt: skip
IMMUTABLE_OF_TASK: dict[str, object] = {
    "name": "other", "policies": [{"action": "AbortJob", "event": "PodFailed"}], "maxRetry": 7,
    "topologyPolicy": "best-effort", "dependsOn": {"name": ["b"]},
    "partitionPolicy": {"totalPartitions": 3, "partitionSize": 1},
    "template": {"spec": {"containers": [{"name": "main", "image": "other"}]}},
}  # fmt: skip
MUTABLE = {"minAvailable", "priorityClassName", "tasks"}
MUTABLE_OF_TASK = {"replicas", "minAvailable"}


def test_each_field_of_a_job_is_either_mutable_or_not_w26() -> None:
    """A field that is new in the API needs a decision here."""
    of_job = {field.encode_name for field in msgspec.structs.fields(JobSpec)}
    assert of_job == IMMUTABLE.keys() | MUTABLE
    of_task = {field.encode_name for field in msgspec.structs.fields(TaskSpec)}
    assert of_task == IMMUTABLE_OF_TASK.keys() | MUTABLE_OF_TASK


@pytest.mark.parametrize("field", list(IMMUTABLE))
def test_a_field_of_a_job_that_may_not_change_w26(field: str) -> None:
    (named,) = paths(update(sparse_job(task("a", 3)), **{field: IMMUTABLE[field]}))
    assert named.startswith(f"spec.{field}")


@pytest.mark.parametrize("field", list(IMMUTABLE_OF_TASK))
def test_a_field_of_a_task_that_may_not_change_w26(field: str) -> None:
    changed = task("a", 3, **{field: IMMUTABLE_OF_TASK[field]}) if field != "name" else task("o", 3)
    named = paths(update(sparse_job(task("a", 3), task("b")), tasks=[changed, task("b")]))
    assert named
    assert all(path.startswith(f"spec.tasks[0].{field}") for path in named)


def test_more_replicas_may_not_make_names_that_pods_cannot_have_w22_w26() -> None:
    before = sparse_job(task("a" * 49, 10), name="j" * 11, plugins={"svc": []})
    assert update(before, tasks=[task("a" * 49, 5)]).allowed
    verdict = update(before, tasks=[task("a" * 49, 11)])
    assert paths(verdict) == ["spec.tasks[0].name"]
    assert "-10' becomes a host name, 63 letters at most" in verdict.message


def test_a_fault_that_was_there_before_does_not_hold_up_scaling_w26() -> None:
    before = sparse_job(task("Bad", 3), name="stored.when.nobody.looked")
    assert update(before, tasks=[task("Bad", 2)]).allowed
