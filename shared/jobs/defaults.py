"""A Job as admission would have left it (W10 to W13), with what may be missing filled in.

No webhook is needed for a job to run; where one has run, nothing here changes anything. The result
is never written back, so the user's object stays the user's.
"""

from typing import Final

import msgspec

from shared.api.batch import DEFAULT_MAX_RETRY, Job, TaskSpec
from shared.api.scheduling import DEFAULT_QUEUE

DEFAULT_TASK_RETRY: Final = 3
IMPLIED_PLUGINS: Final = {
    "tensorflow": ("svc",),
    "pytorch": ("svc",),
    "ray": ("svc",),
    "mpi": ("svc", "ssh"),
}
"""Job plugins that need others (W13, JP9)."""


def defaulted(job: Job, *, scheduler_name: str) -> Job:
    """Return `job` with every default filled in."""
    spec = job.spec
    tasks = tuple(_task(index, task) for index, task in enumerate(spec.tasks))
    plugins = dict(spec.plugins)
    for name in spec.plugins:
        for implied in IMPLIED_PLUGINS.get(name, ()):
            plugins.setdefault(implied, ())
    full = msgspec.structs.replace(
        spec,
        queue=spec.queue or DEFAULT_QUEUE,
        scheduler_name=spec.scheduler_name or scheduler_name,
        max_retry=spec.max_retry or DEFAULT_MAX_RETRY,
        tasks=tasks,
        plugins=plugins,
        min_available=spec.min_available or sum(t.min_available or 0 for t in tasks),
    )
    return msgspec.structs.replace(job, spec=full)


def _task(index: int, task: TaskSpec) -> TaskSpec:
    """Fill in a task (W11, W12); the DNS policy of host network is set in `podtemplate`."""
    least = task.min_available
    if least is None:
        partition = task.partition_policy
        by_partition = partition.min_partitions * partition.partition_size if partition else 0
        least = by_partition or task.replicas
    return msgspec.structs.replace(
        task,
        name=task.name or f"default{index}",
        max_retry=task.max_retry or DEFAULT_TASK_RETRY,
        min_available=least,
    )
