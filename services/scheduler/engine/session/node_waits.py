"""Which tasks of a job wait for nothing but nodes, at the end of a cycle."""

from collections.abc import Callable, Mapping

from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.plan import JobExplanation
from services.scheduler.engine.session.failures import JobFailures
from services.scheduler.engine.session.network import Network
from services.scheduler.engine.session.view import ClusterView
from services.scheduler.engine.tasks.task import Task
from shared.model.status import TaskStatus

_NODES = frozenset({"predicate", "topology"})
"""The gates of jobs that nodes, or each HyperNode, refused."""


def tasks_for_nodes(
    view: ClusterView,
    job: Job,
    explanations: Mapping[str, JobExplanation],
    failures: Callable[[Job], JobFailures],
    network: Network,
) -> list[Task]:
    """Return the pending tasks of a job for which its queue has a share, in their order.

    There are none for a job that waits for something else, and none for a gang if its queue has no
    share for the whole minimum: nodes alone would not start it.
    """
    why, queue = explanations.get(job.key), view.queue(job.queue)
    if why is None or why.gate not in _NODES or queue is None:
        return []
    if why.gate == "topology" and not network.ready:
        return []  # it waits for HyperNodes that form a tree
    refused = failures(job)
    room = view.room_of(queue)
    found = []
    for task in sorted(job.by_status[TaskStatus.PENDING].values(), key=view.hooks.task_order):
        if task.gated or task.backoff_reason or task.uid in refused.over_quota:
            continue
        dims, request = list(task.task_class.dims), task.task_class.request
        if (request[dims] <= room[dims]).all():
            room[: len(request)] -= request
            found.append(task)
    return found if len(found) >= view.hooks.job_ready(job) else []
