"""Pods, groups and jobs that the controller makes have the user of what asked for them."""

import msgspec
import pytest

from services.controller.cronjob.jobs import job_at
from services.controller.job.podtemplate import PodBuilder
from services.controller.jobflow.status import job_of
from services.controller.podgroup.groups import group_for, patch_of
from shared.api import keys
from shared.api.batch import Job
from shared.api.core import Pod
from shared.api.cron import CronJob
from shared.api.flow import JobFlow, JobTemplate
from shared.api.lenient import lenient
from shared.api.scheduling import PodGroup
from shared.jobs.defaults import defaulted
from tests.support import world

FORGED = {keys.USER: "mallory"}


def named(user: str, name: str = "j") -> dict[str, object]:
    return {
        "name": name,
        "namespace": "ns",
        "uid": "u",
        **({"annotations": {keys.USER: user}} if user else {}),
    }


@pytest.mark.parametrize("user", ["ann", ""])
def test_the_pods_of_a_job_have_its_user_and_not_that_of_their_template(user: str) -> None:
    stated = world.job("j", world.task("w", 1, annotations=FORGED))
    job = lenient({**stated, "metadata": named(user)}, Job)
    full = defaulted(job, scheduler_name="volcano")
    body = msgspec.json.decode(PodBuilder(full, full.spec.tasks[0]).body(0))
    assert body["metadata"]["annotations"].get(keys.USER, "") == user


@pytest.mark.parametrize("user", ["ann", ""])
def test_the_jobs_of_a_cronjob_have_its_user(user: str) -> None:
    template = {
        "metadata": {"annotations": FORGED},
        "spec": world.job("j", world.task("w", 1))["spec"],
    }
    spec = {"schedule": "* * * * *", "jobTemplate": template}
    cron = lenient({"metadata": named(user), "spec": spec}, CronJob)
    assert job_at(cron, 60).metadata.annotations.get(keys.USER, "") == user


@pytest.mark.parametrize("user", ["ann", ""])
def test_the_jobs_of_a_flow_have_its_user(user: str) -> None:
    flow = lenient({"metadata": named(user)}, JobFlow)
    template = lenient({"metadata": {**named("mallory", "t")}}, JobTemplate)
    assert job_of(flow, template).metadata.annotations.get(keys.USER, "") == user


def test_the_group_of_a_bare_pod_has_its_user_and_keeps_it() -> None:
    first = lenient(world.pod(annotations={keys.USER: "ann"}), Pod)
    body = group_for(first, {})
    assert body["metadata"]["annotations"][keys.USER] == "ann"
    later = lenient(world.pod(annotations={keys.USER: "bob"}), Pod)
    group = lenient(body, PodGroup)
    assert patch_of(group, group_for(later, {})) == {}
