"""Containers learn how many pods their job has, and a ConfigMap lists their names, per task."""

from collections.abc import Sequence
from typing import Any

from pumice.plugins.jobs import Beside, JobView, TaskView


class Roster:
    name = "roster"

    def problems(self, job: JobView, arguments: Sequence[str]) -> Sequence[str]:
        return ["takes one argument, the name of a variable"] if len(arguments) > 1 else []

    def beside(self, job: JobView, arguments: Sequence[str]) -> Sequence[Beside]:
        names = {
            task.name: "\n".join(job.pod_name(task.name, i) for i in range(task.replicas))
            for task in job.tasks
        }
        return [Beside(kind="ConfigMap", name=f"{job.name}-roster", body={"data": names})]

    def edit_pod(
        self,
        pod: dict[str, Any],
        job: JobView,
        task: TaskView,
        index: int,
        arguments: Sequence[str],
    ) -> None:
        size = sum(task.replicas for task in job.tasks)
        variable = {"name": [*arguments, "JOB_SIZE"][0], "value": str(size)}
        for container in pod["spec"]["containers"]:
            container.setdefault("env", []).append(variable)
