"""The test-only plugins that cases describe in words (README, `conf.customPlugins`)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from pumice.plugins import PERMIT, Arguments, CodeArray, Hooks, Opinion, Reason, Vote
from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.placement.rows import Rows
from services.scheduler.engine.session.session import Session
from services.scheduler.engine.tasks.task import Task, TaskClass
from shared.model.status import TaskStatus


class Fake:
    """Names the running tasks of priority 10 as victims."""

    name = "fake"

    def __init__(self, _: Arguments) -> None:
        """Take no arguments."""

    def contribute(self, hooks: Hooks, _: Session) -> None:
        def unwanted(tasks: Sequence[Task]) -> list[Task]:
            return [task for task in tasks if task.priority == 10]

        hooks.victim_tasks(unwanted)


class Rejecter:
    """Keeps the PodGroup `pgA` out of its queue."""

    name = "test-rejecter"

    def __init__(self, _: Arguments) -> None:
        """Take no arguments."""

    def contribute(self, hooks: Hooks, _: Session) -> None:
        def vote(job: Job) -> Opinion:
            return Opinion(Vote.REJECT) if job.name == "pgA" else PERMIT

        hooks.job_enqueueable(vote)


class DeviceFitAfterEviction:
    """Refuses the task `preemptor` a node until its task `preemptee` is leaving."""

    name = "device-fit-after-eviction"

    def __init__(self, _: Arguments) -> None:
        """Take no arguments."""

    def contribute(self, hooks: Hooks, cluster: Session) -> None:
        task_classes = {
            t.task_class.id for t in cluster.cluster_state.tasks() if t.name == "preemptor"
        }
        nodes = cluster.cluster_state.nodes

        def occupied(task_class: TaskClass, rows: Rows) -> CodeArray:
            codes = [
                task_class.id in task_classes
                and any(
                    task.name == "preemptee" and task.status is not TaskStatus.RELEASING
                    for task in nodes.tasks_on(nodes.name(column))
                )
                for column in rows.index.tolist()
            ]
            return np.array(codes, dtype=np.uint8)

        hooks.predicate(occupied, reasons=[Reason("hidden device capacity is occupied")])


CUSTOM_PLUGINS: Final[Mapping[str, Callable[[Arguments], Any]]] = {
    plugin.name: plugin for plugin in (Fake, Rejecter, DeviceFitAfterEviction)
}
