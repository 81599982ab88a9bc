"""What one job or flow of a tenant may cost the controller: in proportion to its size.

Work is counted in lines of Python, so that the law holds or breaks the same on each machine.
"""

from collections.abc import Callable
from typing import Final

import msgspec
import pytest

from services.controller.job.completed_indexes import gone, with_marks
from services.controller.job.facts import JobFacts, PodView
from services.controller.job.group import DesiredGroupSpec
from services.controller.job.kills import specified_names
from services.controller.job.plan import advance
from services.controller.job.rejected_creates import RejectedCreates
from services.controller.job.requests import PodSums, at_start, compare
from services.controller.jobflow.plan import plan
from services.controller.jobflow.reconciler import JobFlowReconciler
from shared.api import kinds
from shared.api.batch import Job, TaskSpec
from shared.api.core import PodPhase
from shared.api.flow import JobFlow
from shared.api.lenient import lenient
from shared.api.scheduling import PodGroup, PodGroupPhase, PodGroupSpec, PodGroupStatus
from tests.support.laws import lines_run
from tests.unit.controller.reconcilers import Process, Stage

FLOWS: Final[dict[str, Callable[[int], list[dict]]]] = {
    "a chain": lambda size: [
        {"name": f"a{n}", "dependsOn": {"targets": [f"a{n - 1}"] if n else []}} for n in range(size)
    ],
    "a circle": lambda size: [
        {"name": f"a{n}", "dependsOn": {"targets": [f"a{(n + 1) % size}"]}} for n in range(size)
    ],
    "targets that are no jobs": lambda size: [
        {"name": f"a{n}", "dependsOn": {"targets": [f"z{n}"]}} for n in range(size)
    ],
    "one for all": lambda size: [
        {"name": f"a{n}", "dependsOn": {"targets": ["a0"] if n else []}} for n in range(size)
    ],
    "probes": lambda size: [
        {
            "name": f"a{n}",
            "dependsOn": {"targets": [], "probe": {"httpGetList": [{"path": "/", "port": 1}]}},
        }
        for n in range(size)
    ],
    "one name again and again": lambda size: [{"name": "a"}] * size,
}


@pytest.mark.parametrize("name", FLOWS)
def test_a_flow_is_planned_in_time_in_proportion_to_its_jobs(name: str) -> None:
    def work(size: int) -> int:
        body = {"metadata": {"name": "f", "uid": "u"}, "spec": {"flows": FLOWS[name](size)}}
        flow = lenient(body, JobFlow)
        running = {"state": {"phase": "Running"}}
        jobs = [
            lenient({"metadata": {"name": f"f-a{n}"}, "status": running}, Job) for n in range(size)
        ]
        return lines_run(lambda: (plan(flow, (), {}), plan(flow, jobs, {})))

    work(4)
    assert work(1_000) <= 2.3 * work(500) + 1_000


def test_a_job_is_taken_over_in_time_in_proportion_to_its_tasks() -> None:
    def work(size: int) -> int:
        names = [f"t{n}" for n in range(size)]
        counts = {name: {"phase": {"Running": 1}} for name in names}
        body = {
            "metadata": {"name": "j", "uid": "u"},
            "spec": {"tasks": [{"name": name, "replicas": 1} for name in names]},
            "status": {"state": {"phase": "Running"}, "taskStatusCount": counts},
        }
        job = lenient(body, Job)
        pods = {
            f"j-{name}-0": PodView(
                name=f"j-{name}-0", uid=name, task=name, index=0, phase=PodPhase.RUNNING
            )
            for name in names[: size // 2]
        }
        done = {name: {0} for name in names[size // 2 :]}
        sums = PodSums(pods.values())

        def take_over() -> None:
            assert gone(job, done, pods)
            assert with_marks({}, job, done, pods)
            at_start(job, pods, sums, done)
            assert at_start(job, pods, sums, {}), "pods that are gone are evicted"

        return lines_run(take_over)

    work(4)
    assert work(400) <= 2.3 * work(200) + 1_000


INQUEUE: Final = PodGroup(status=PodGroupStatus(phase=PodGroupPhase.INQUEUE))
FAILING: Final[dict[str, Callable[[int], dict]]] = {
    "tasks with policies": lambda size: {
        "tasks": [
            {"name": f"t{n}", "replicas": 1, "policies": [{"event": "PodFailed", "action": "?"}]}
            for n in range(size)
        ],
    },
    "policies about other exit codes": lambda size: {
        "tasks": [{"name": f"t{n}", "replicas": 1} for n in range(size)],
        "policies": [{"exitCode": n + 1_000, "action": "AbortJob"} for n in range(size)],
    },
    "policies with a timeout": lambda size: {
        "tasks": [{"name": f"t{n}", "replicas": 1} for n in range(size)],
        "policies": [{"event": "PodFailed", "action": "RestartTask", "timeout": "1h"}],
    },
    "partitions without pods": lambda size: {
        "tasks": [{"name": f"t{n}", "replicas": 1} for n in range(size)],
        "policies": [{"event": "PodFailed", "action": "RestartPartition"}],
    },
    "tasks that wait for all others": lambda size: {
        "tasks": [
            {"name": f"t{n}", "replicas": 1, "dependsOn": {"name": [f"t{m}" for m in range(20)]}}
            for n in range(size)
        ],
    },
}


@pytest.mark.parametrize("name", FAILING)
def test_a_job_whose_pods_all_fail_takes_time_in_proportion_to_its_size(name: str) -> None:
    def work(size: int) -> int:
        spec = FAILING[name](size)
        status = {"state": {"phase": "Running"}}
        job = lenient({"metadata": {"name": "j", "uid": "u"}, "spec": spec, "status": status}, Job)
        before = [
            PodView(name=f"j-t{n}-0", uid=f"{n}", task=f"t{n}", index=0, phase=PodPhase.RUNNING)
            for n in range(size)
        ]
        after = [msgspec.structs.replace(pod, phase=PodPhase.FAILED, exit_code=1) for pod in before]
        pods = {pod.name: pod for pod in after}

        def fail() -> None:
            sums = PodSums(before)
            requests = []
            for was, now in zip(before, after, strict=True):
                sums.change(was, now)
                requests += compare(job, was, now, sums)
            assert len(requests) == size
            group = DesiredGroupSpec(plain={}, typed=PodGroupSpec())
            facts = JobFacts(job=job, pods=pods, group=INQUEUE, desired_group=group)
            found = advance(facts, requests, (), now=1.7e9)
            # Once more, as the passes that follow do: with pods that are gone, and actions that
            # wait.
            gone = msgspec.structs.replace(facts, pods={})
            advance(gone, requests, found.delayed, now=1.7e9)

        return lines_run(fail)

    work(4)
    assert work(400) <= 2.3 * work(200) + 1_000


def test_pods_that_a_quota_holds_are_reviewed_in_time_in_proportion_to_their_number() -> None:
    def work(size: int) -> int:
        tasks = [{"name": f"t{n}", "replicas": 1} for n in range(size)]
        job = lenient({"metadata": {"name": "j"}, "spec": {"tasks": tasks}}, Job)
        rejected = RejectedCreates()
        for n in range(size):
            rejected.over_quota(f"j-t{n}-0", "compute")
        return lines_run(lambda: rejected.keep_only(specified_names(job)))

    assert work(400) <= 2.3 * work(200) + 100


def test_successes_of_a_task_are_joined_a_few_times_and_not_with_each_pod() -> None:
    """Joining two sets of indexes is one line, and costs as much as they hold."""
    replicas, joined = 1_000, 0

    class Indexes(set[int]):
        def __ror__(self, other):
            nonlocal joined
            joined += 1
            return set.__or__(self, other)

    task = TaskSpec(name="t", replicas=replicas)
    sums, completed = PodSums(()), Indexes()
    for index in range(replicas):
        pod = PodView(name=f"{index}", uid="", task="t", index=index, phase=PodPhase.RUNNING)
        sums.change(pod, msgspec.structs.replace(pod, phase=PodPhase.SUCCEEDED))
        completed.add(index)
        assert sums.all_succeeded(task, completed) is (index == replicas - 1)
    assert 0 < joined <= 20


async def test_a_flow_that_is_deleted_or_changed_is_waiting_for_no_template_any_more() -> None:
    stage = Stage()
    process = Process(stage)
    stage.flow("f", {f"a{n}": [] for n in range(50)})
    process.relist()
    await process.look("jobflows")
    flows = process.controllers["jobflows"]
    assert isinstance(flows, JobFlowReconciler)
    assert len(flows.awaited()) == 50
    stage.ask("PATCH", kinds.JOBFLOW, "f", {"spec": {"flows": [{"name": "a7"}]}})
    process.relist()
    await process.look("jobflows")
    assert flows.awaited() == {"default/a7"}
    stage.ask("DELETE", kinds.JOBFLOW, "f")
    process.relist()
    await process.controllers["jobflows"].process("default/f")
    assert not flows.awaited()
