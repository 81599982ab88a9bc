"""Fields that anybody may write, as a fuzzer found them: read with bounds, or as absent."""

import msgspec
import pytest

from services.controller.cronjob import steps
from services.controller.cronjob.sync import sync
from services.controller.garbage.reconciler import due_at
from services.controller.job.facts import pod_view
from services.controller.jobflow.plan import NOTES_MAX, plan
from services.controller.podgroup.groups import group_for
from shared.api import keys
from shared.api.batch import Job
from shared.api.core import Pod
from shared.api.cron import CronJob
from shared.api.flow import JobFlow
from tests.support.structs import pod
from tests.support.world import job_owner

TASKS = [{"name": "w", "replicas": 1, "template": {"spec": {"containers": [{"name": "c"}]}}}]
NEVER = "2026-06-30T23:59:60Z"
"""A second that Python does not know."""


def odd_pod(**annotations: str) -> Pod:
    """Return a pod of a job with annotations (`_` for `-`) under Volcano's prefix."""
    told = {f"volcano.sh/{name.replace('_', '-')}": text for name, text in annotations.items()}
    owners = [job_owner("j", "u")]
    return pod(cpu="1e1.5", annotations=told, metadata={"ownerReferences": owners})


@pytest.mark.parametrize("text", ["9" * 5000, "٣", "-1", "1e3"])
def test_a_number_in_an_annotation_of_a_pod_may_be_anything(text: str) -> None:
    said = {"task_spec": "w", "task_index": text, "job_version": text, "job_retry_count": text}
    owner, view = pod_view(odd_pod(**said, job_name="j"))
    assert (owner, view.task) == ("u", "w")
    assert (view.index, view.version) == (-1, 0)


def test_a_bare_pod_with_an_amount_that_is_none_has_a_group_that_asks_for_nothing() -> None:
    group = group_for(odd_pod(), {keys.GROUP_MIN_MEMBER: "9" * 5000})
    assert (group["spec"]["minMember"], group["spec"]["minResources"]) == (1, {})


def test_a_cron_job_whose_status_names_nothing_and_no_time_is_looked_at() -> None:
    status = {"active": [{"uid": "x"}], "lastScheduleTime": NEVER, "lastSuccessfulTime": NEVER}
    body = {
        "metadata": {"name": "c", "namespace": "ns", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"tasks": TASKS}}},
        "status": status,
    }
    cron = msgspec.json.decode(msgspec.json.encode(body), type=CronJob)
    look = sync(cron, [], now=1_767_225_700.0)
    asked = list(look)
    assert [ask for ask in asked if isinstance(ask, steps.ReadJob)] == []


def test_a_finished_job_without_a_time_is_never_due() -> None:
    status = {"state": {"phase": "Completed", "lastTransitionTime": NEVER}}
    spec = {"tasks": TASKS, "ttlSecondsAfterFinished": 1}
    job = msgspec.json.encode({"spec": spec, "status": status})
    assert due_at(msgspec.json.decode(job, type=Job)) is None


def test_of_a_flow_with_thousands_of_faults_a_few_are_told() -> None:
    flows = [{"name": f"f{n}", "dependsOn": {"targets": ["nobody"]}} for n in range(5000)]
    flow = msgspec.convert({"metadata": {"name": "f"}, "spec": {"flows": flows}}, JobFlow)
    assert len(plan(flow, [], {}).notes) <= NOTES_MAX + 1
