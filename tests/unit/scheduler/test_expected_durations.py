"""How long a job says that it will run."""

import msgspec
import pytest

from pumice.testing import Cluster
from shared.api import keys, kinds
from shared.api.batch import Job, JobSpec, TaskSpec
from shared.api.core import Pod
from shared.api.meta import ObjectMeta
from shared.jobs.expected_durations import Basis, Expected, of_gang, of_job, of_pod, parse
from tests.support.structs import pod
from tests.support.world import named

ANNOTATED = Expected(60.0, Basis.ANNOTATION)


def stating(annotation: str = "", deadline_s: int | None = None) -> Pod:
    annotations = {keys.EXPECTED_DURATION: annotation} if annotation else {}
    return pod(annotations=annotations, activeDeadlineSeconds=deadline_s)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90.0), ("5400.5", 5400.5), ("1h30m", 5400.0), ("45s", 45.0)]
)
def test_a_duration_is_a_number_of_seconds_or_as_go_writes_it(text: str, seconds: float) -> None:
    assert parse(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "0", "-5", "-1h", "inf", "nan", "1d"])
def test_a_text_that_is_no_positive_duration_counts_as_absent(text: str) -> None:
    assert parse(text) is None
    assert of_pod(stating(text, 30)) == Expected(30.0, Basis.DEADLINE)


def test_a_pod_says_it_by_annotation_before_its_deadline() -> None:
    assert of_pod(stating("1m", 30)) == ANNOTATED
    assert of_pod(stating()) is None


def test_a_gang_says_it_itself_before_its_pods() -> None:
    stated = {keys.EXPECTED_DURATION: "1m"}
    assert of_gang(stated, [Expected(5.0, Basis.ANNOTATION)]) == ANNOTATED


def test_a_gang_lasts_as_long_as_the_longest_of_its_pods() -> None:
    shorter = Expected(5.0, Basis.ANNOTATION)
    later = Expected(900.0, Basis.DEADLINE)
    assert of_gang({}, [shorter, ANNOTATED, later, None]) == ANNOTATED
    assert of_gang({}, [Expected(9.0, Basis.DEADLINE), later]) == later


def test_a_gang_of_which_some_pods_have_no_limit_has_none() -> None:
    assert of_gang({}, [Expected(9.0, Basis.DEADLINE), None]) is None
    assert of_gang({}) is None


def job_of(*templates: object, annotation: str = "", replicas: int = 1) -> Job:
    said = {keys.EXPECTED_DURATION: annotation} if annotation else {}
    tasks = tuple(
        TaskSpec(
            name=f"t{n}", replicas=replicas, template=msgspec.Raw(msgspec.json.encode(template))
        )
        for n, template in enumerate(templates)
    )
    return Job(metadata=ObjectMeta(annotations=said), spec=JobSpec(tasks=tasks))


LIMITED = {"spec": {"activeDeadlineSeconds": 900}}


def test_a_limit_of_the_job_bounds_what_is_stated() -> None:
    stated = {keys.EXPECTED_DURATION: "1m"}
    assert of_gang(stated, limit_s=90.0) == ANNOTATED
    assert of_gang(stated, limit_s=30.0) == Expected(30.0, Basis.DEADLINE)
    assert of_gang({}, [None], limit_s=30.0) == Expected(30.0, Basis.DEADLINE)
    assert of_gang({}, [Expected(9.0, Basis.DEADLINE)], limit_s=30.0) == Expected(
        9.0, Basis.DEADLINE
    )


def test_the_certain_end_of_a_job_is_its_limit() -> None:
    stated = {keys.EXPECTED_DURATION: "1m", keys.MAX_RUNTIME: "1h"}
    owner = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "name": "g",
        "uid": "u",
        "controller": True,
    }
    meta = {"name": "g", "namespace": "ns", "uid": "uid-ns/g", "annotations": stated}
    body = {"metadata": meta, "spec": {"minMember": 1, "queue": "default"}}
    world = Cluster().put(kinds.PODGROUP, body)
    assert world.job("g").expected_s == 60.0
    owned = {**body, "metadata": {**meta, "ownerReferences": [owner]}}
    assert Cluster().put(kinds.PODGROUP, owned).job("g").expected_s == 3600.0


SAYING = {"metadata": {"annotations": {keys.EXPECTED_DURATION: "1m"}}, "spec": {}}


def test_a_job_says_it_as_the_gang_of_its_pods_does() -> None:
    assert of_job(job_of(LIMITED, annotation="1m")) == ANNOTATED
    assert of_job(job_of(LIMITED, SAYING)) == ANNOTATED
    assert of_job(job_of(LIMITED)) == Expected(900.0, Basis.DEADLINE)
    assert of_job(job_of(LIMITED, {"spec": {}})) is None
    assert of_job(Job()) is None


def test_tasks_without_pods_say_nothing_of_a_job() -> None:
    assert of_job(job_of(SAYING, replicas=0)) is None


@pytest.mark.parametrize(
    "template",
    [
        {"metadata": None, "spec": None},
        {"metadata": {"annotations": None}, "spec": {"activeDeadlineSeconds": None}},
        {"metadata": {"annotations": {keys.EXPECTED_DURATION: 60}}},
        {"spec": {"activeDeadlineSeconds": "long"}},
        {"spec": {"activeDeadlineSeconds": -5}},
        [],
    ],
)
def test_a_template_without_a_readable_duration_says_none(template: object) -> None:
    assert of_job(job_of(template)) is None


def test_the_cluster_state_knows_it_of_group_and_pods() -> None:
    world = Cluster().node("n1").group("g", min_member=1, phase="Inqueue")
    world.pod("g-0", "g", cpu="1", activeDeadlineSeconds=600)
    assert world.job("g").expected == Expected(600.0, Basis.DEADLINE)
    group = named("ns/g", annotations={keys.EXPECTED_DURATION: "2h"})
    world.put(kinds.PODGROUP, {"metadata": group, "spec": {"minMember": 1, "queue": "default"}})
    assert world.job("g").expected == Expected(7200.0, Basis.ANNOTATION)
