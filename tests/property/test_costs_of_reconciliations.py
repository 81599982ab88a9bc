"""What one job or flow of a tenant may cost the controller: in proportion to its size.

Work is counted in lines of Python, so that the law holds or breaks the same on each machine.
"""

from collections.abc import Callable
from typing import Final

import pytest

from services.controller.job.completed_indexes import gone, with_marks
from services.controller.job.facts import PodView
from services.controller.job.requests import PodSums, at_start
from services.controller.jobflow.plan import plan
from services.controller.jobflow.reconciler import JobFlowReconciler
from shared.api import kinds
from shared.api.batch import Job
from shared.api.core import PodPhase
from shared.api.flow import JobFlow
from shared.api.lenient import lenient
from tests.support.reconcilers import Process, Stage
from tests.support.work import lines_run

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
