"""Rules for a Job that can run (W20 to W26), applied by admission and by the controller alike.

All functions are pure and name each fault by its field. Where Volcano has words for a fault, they
are part of ours.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from shared.api.batch import Job, PartitionPolicy, TaskSpec
from shared.api.nesting import TOO_DEEP, is_too_deep
from shared.api.scheduling import ROOT_QUEUE, TIERS, NetworkTopology, QueueState
from shared.jobplugins.catalogue import installed, plugins_of
from shared.jobs.flows import in_circles
from shared.jobs.policies import policy_problems
from shared.jobs.problems import (
    LABEL,
    LABEL_MAX,
    NAME_MAX,
    SUBDOMAIN,
    Problem,
    Problems,
    listed,
    some,
    unqualified,
)
from shared.jobs.templates import template_problems


def job_problems(job: Job, *, pod_level: bool = True) -> tuple[Problem, ...]:
    """Return what is wrong with the spec; empty when the job can run.

    `job` may have its defaults filled in or not. `pod_level`: see `template_problems`.
    """
    if not job.spec.tasks:
        return (Problem("spec.tasks", "No task specified in job spec: at least one is needed"),)
    checks: tuple[Callable[[Job], Problems], ...] = (
        name_problems, _tasks, _minima, policy_problems, _volumes, _dependencies, plugin_problems,
    )  # fmt: skip
    found = [problem for check in checks for problem in check(job)]
    found += template_problems(job, pod_level=pod_level)
    found += topology_problems("spec.networkTopology", job.spec.network_topology)
    return tuple(found)


def queue_problems(name: str, state: str | None, *, exists: bool, children: int) -> Problems:
    """Return why a new job cannot enter its queue (W24, J22); `state` is that of its status.

    A queue whose state has not been written yet counts as open: it was just created.
    """
    at = "spec.queue"
    if name == ROOT_QUEUE:
        yield Problem(
            at,
            "can not submit job to root queue: the root queue takes no jobs: name a queue below it",
        )
    elif not exists:
        yield Problem(
            at,
            f"no queue {name!r}: create it or name another: unable to find job queue:"
            f' queue.scheduling.volcano.sh "{name}" not found',
        )
    elif state not in {None, "", QueueState.OPEN}:
        yield Problem(
            at,
            f"queue {name!r} is {state}: open it or name another: can only submit job to queue"
            f" with state `Open`, queue `{name}` status is `{state}`",
        )
    elif children:
        yield Problem(
            at,
            f"queue {name!r} has queues below it: name one of those: can only submit job to leaf"
            f" queue, queue `{name}` has {children} child queues",
        )


def topology_problems(at: str, topology: NetworkTopology | None) -> Problems:
    """Return whether a network topology names its tier twice."""
    if topology and topology.highest_tier_name and topology.highest_tier_allowed is not None:
        yield Problem(at, TIERS)


def _name(job: Job) -> Problems:
    """W22: the name of a job is a label of its pods, and with plugin svc that of a Service."""
    name = job.metadata.name
    if not name and job.metadata.generate_name:
        return
    if why := unqualified(name):
        yield Problem("metadata.name", f"create job with name {name} validate failed: {why}")
    elif "svc" in job.spec.plugins and not LABEL.fullmatch(name):
        yield Problem(
            "metadata.name", f"plugin svc makes {name!r} a host name, which takes no dots"
        )


def _tasks(job: Job) -> Problems:
    seen: set[str] = set()
    for index, task in enumerate(job.spec.tasks):
        at = f"spec.tasks[{index}]"
        name = task.name or f"default{index}"
        if name in seen:
            yield Problem(f"{at}.name", f"duplicated task name {name}")
        seen.add(name)
        if task.partition_policy is not None:
            yield from partition_problems(f"{at}.partitionPolicy", job, task, task.partition_policy)


def _pod_names(at: str, job: Job, name: str, replicas: int, index: int) -> Problems:
    """W22: names of pods are labels of other objects, and with plugin svc host names.

    That the job's own name has a form that names may have, the API server has seen to.
    """
    longest = f"{job.metadata.name}-{name}-{max(replicas - 1, 0)}"
    if not LABEL.fullmatch(name) or len(name) > LABEL_MAX:
        yield Problem(at, f"{name!r} is no DNS label")
    elif len(longest) > NAME_MAX:
        yield Problem(at, f"its pods would be called {longest!r}, which is no pod name")
    elif "svc" in job.spec.plugins and len(longest) > LABEL_MAX:
        yield Problem(at, f"with plugin svc {longest!r} becomes a host name, 63 letters at most")
    elif not unqualified(job.metadata.name):
        pod = f"{job.metadata.name}-{name}-{index}"
        if why := unqualified(pod):
            yield Problem(at, f"create pod with name {pod} validate failed: {why}")


def partition_problems(at: str, job: Job, task: TaskSpec, policy: PartitionPolicy) -> Problems:
    """W25: partitions of one size that make up all replicas."""
    whose = f"in task: {task.name}, job: {job.metadata.name}"
    total, size = policy.total_partitions, policy.partition_size
    if total <= 0:
        yield Problem(f"{at}.totalPartitions", f"'TotalPartitions' must be greater than 0 {whose}")
    elif size <= 0:
        yield Problem(f"{at}.partitionSize", f"'PartitionSize' must be greater than 0 {whose}")
    elif total * size != task.replicas:
        yield Problem(
            at,
            f"{total} times {size} is not {task.replicas}: 'Replicas' are not equal to"
            f" TotalPartitions*PartitionSize {whose}",
        )
    elif policy.min_partitions > 0 and task.min_available not in {
        None, policy.min_partitions * size
    }:  # fmt: skip
        yield Problem(
            f"{at}.minPartitions",
            f"{policy.min_partitions} times {size} is not {task.min_available}: 'MinAvailable' is"
            f" not equal to MinPartitions*PartitionSize {whose}",
        )
    yield from topology_problems(f"{at}.networkTopology", policy.network_topology)


REPLICAS_MAX: Final = 150_000
"""Pods of one job: what Kubernetes says that a whole cluster should have at most."""


def _not_endless(job: Job) -> Problems:
    """Find where a job asks for more pods than can be made, or counted."""
    total = 0
    for index, task in enumerate(job.spec.tasks):
        total += max(task.replicas, 0)
        if total > REPLICAS_MAX:
            yield Problem(
                f"spec.tasks[{index}].replicas",
                f"{total} pods of one job are too many: {REPLICAS_MAX} are the most",
            )
            return


def _minima(job: Job) -> Problems:
    yield from _not_negative(job)
    yield from _not_endless(job)
    for index, task in enumerate(job.spec.tasks):
        least = task.min_available or 0
        if least > task.replicas:
            yield Problem(
                f"spec.tasks[{index}].minAvailable",
                f"{least} is more than replicas ({task.replicas}): 'minAvailable' is greater than"
                f" 'replicas' in task: {task.name}, job: {job.metadata.name}",
            )
    replicas = sum(task.replicas for task in job.spec.tasks)
    if job.spec.min_available > replicas:
        yield Problem(
            "spec.minAvailable",
            f"{job.spec.min_available} is more than all replicas ({replicas}): job 'minAvailable'"
            " should not be greater than total replicas in tasks",
        )


def _not_negative(job: Job) -> Problems:
    """Check numbers that the schema refuses first, for where there is no schema."""
    spec = job.spec
    amounts: list[tuple[str, int | None, str]] = [
        ("spec.minAvailable", spec.min_available, "job 'minAvailable' must be >= 0"),
        ("spec.maxRetry", spec.max_retry, "must be >= 0"),
        ("spec.ttlSecondsAfterFinished", spec.ttl_seconds_after_finished, "must be >= 0"),
    ]
    for index, task in enumerate(spec.tasks):
        at, whose = f"spec.tasks[{index}]", f"must be >= 0 in task: {task.name}"
        amounts.append((f"{at}.replicas", task.replicas, f"'replicas' {whose}"))
        amounts.append((f"{at}.minAvailable", task.min_available, f"'minAvailable' {whose}"))
    for path, amount, words in amounts:
        if amount is not None and amount < 0:
            yield Problem(path, f"{amount} is less than 0: {words}")


def _volumes(job: Job) -> Problems:
    """W23."""
    seen: set[str] = set()
    for index, volume in enumerate(job.spec.volumes):
        at = f"spec.volumes[{index}]"
        path = volume.mount_path
        if not path:
            yield Problem(f"{at}.mountPath", "mountPath is required")
        if path in seen:
            yield Problem(f"{at}.mountPath", f"duplicated mountPath: {path}")
        seen.add(path)
        inline, name = volume.volume_claim is not msgspec.UNSET, volume.volume_claim_name
        if volume.volume_claim is not msgspec.UNSET and is_too_deep(bytes(volume.volume_claim)):
            yield Problem(f"{at}.volumeClaim", TOO_DEEP)
        if not inline and not name:
            yield Problem(
                at,
                "one of volumeClaim and volumeClaimName is needed:"
                " either VolumeClaim or VolumeClaimName must be specified",
            )
        elif inline and name:
            yield Problem(
                at,
                "conflict: volumeClaim makes a new claim, volumeClaimName uses one that is there:"
                " just specify VolumeClaimName for an existing PVC",
            )
        elif name and not (SUBDOMAIN.fullmatch(name) and len(name) <= NAME_MAX):
            yield Problem(
                f"{at}.volumeClaimName", f"invalid VolumeClaimName {name}: is no name of a claim"
            )


def plugin_problems(job: Job) -> Problems:
    """Return plugins that there are not, and what is wrong with the job for a plugin (W23)."""
    for name in sorted(job.spec.plugins):
        if name not in installed():
            yield Problem(
                f"spec.plugins.{name}",
                f"unable to find job plugin: {name}: there are {listed(installed())}",
            )
    for _, plugin, arguments in plugins_of(job):
        for text in plugin.problems(job, arguments):
            path, _, why = text.partition(": ")
            yield Problem(path, why)


_CIRCLE: Final = (
    "job has dependencies between tasks, but doesn't form a directed acyclic graph(DAG)"
)


def _dependencies(job: Job) -> Problems:
    """W25: dependsOn names tasks of this job and has no cycle."""
    needs = needs_of(job)
    for index, task in enumerate(job.spec.tasks):
        for name in task.depends_on.name if task.depends_on else ():
            if name not in needs:
                yield Problem(
                    f"spec.tasks[{index}].dependsOn.name",
                    f"no task {name!r} in this job: {_CIRCLE}",
                )
    stuck = in_circles(needs)
    names = set(stuck)
    for index, task in enumerate(job.spec.tasks):
        if task.name in names:
            yield Problem(
                f"spec.tasks[{index}].dependsOn.name",
                f"goes round in a circle over {some(stuck)}: {_CIRCLE}",
            )
            break


def needs_of(job: Job) -> Mapping[str, tuple[str, ...]]:
    """Return task → tasks that come before it (J25)."""
    return {t.name: t.depends_on.name if t.depends_on else () for t in job.spec.tasks}


def scale_problems(job: Job) -> Problems:
    """Return which numbers of a changed job do not go together (W26), in Volcano's words."""
    yield from _not_negative(job)
    yield from _not_endless(job)
    for index, task in enumerate(job.spec.tasks):
        at = f"spec.tasks[{index}]"
        if (task.min_available or 0) > task.replicas:
            yield Problem(
                f"{at}.minAvailable",
                f"{task.min_available} is more than replicas ({task.replicas}): 'minAvailable' must"
                f" be <= 'replicas' in task: {task.name}",
            )
        if task.partition_policy is not None:
            yield from partition_problems(f"{at}.partitionPolicy", job, task, task.partition_policy)
    replicas = sum(task.replicas for task in job.spec.tasks)
    if job.spec.min_available > replicas:
        yield Problem(
            "spec.minAvailable",
            f"{job.spec.min_available} is more than all replicas ({replicas}): job 'minAvailable'"
            " must not be greater than total replicas",
        )
    yield from topology_problems("spec.networkTopology", job.spec.network_topology)


def name_problems(job: Job) -> Problems:
    """Return whose names would not do (W22): the job's, or those of its tasks and of their pods."""
    yield from _name(job)
    for index, task in enumerate(job.spec.tasks):
        name = task.name or f"default{index}"
        yield from _pod_names(f"spec.tasks[{index}].name", job, name, task.replicas, index)


_MUTABLE: Final = ("minAvailable", "priorityClassName")
_MUTABLE_OF_TASK: Final = ("replicas", "minAvailable")


def update_problems(old: Mapping[str, Any], new: Mapping[str, Any]) -> Problems:
    """Return which fields of a job's spec may not be changed as they were (W26); plain JSON specs.

    The names of claims that the controller filled in do not count.
    """
    before, after = old.get("tasks") or [], new.get("tasks") or []
    if len(before) != len(after):
        yield Problem("spec.tasks", "job updates may not add or remove tasks")
        return
    changed = _changed("spec", _fixed(old), _fixed(new))
    for path in changed:
        yield Problem(
            path,
            "cannot be changed: job updates may not change fields other than `minAvailable`,"
            " `tasks[*].replicas under spec` and `PriorityClassName`",
        )


def _fixed(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a spec that must stay as it is."""
    fixed = {k: v for k, v in spec.items() if k not in _MUTABLE}
    fixed["tasks"] = [
        {k: v for k, v in task.items() if k not in _MUTABLE_OF_TASK}
        for task in spec.get("tasks") or ()
    ]
    fixed["volumes"] = [
        {k: v for k, v in volume.items() if k != "volumeClaimName" or "volumeClaim" not in volume}
        for volume in spec.get("volumes") or ()
    ]
    return fixed


def _changed(path: str, old: Any, new: Any) -> list[str]:  # noqa: ANN401 - any JSON
    """Return the paths of the fields that differ; absent, null and empty are the same."""
    if (old or None) == (new or None) and not isinstance(old, bool | int):
        return []
    if isinstance(old, dict) and isinstance(new, dict):
        names = sorted(old.keys() | new.keys())
        return [p for n in names for p in _changed(f"{path}.{n}", old.get(n), new.get(n))]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = enumerate(zip(old, new, strict=True))
        return [p for i, (one, other) in pairs for p in _changed(f"{path}[{i}]", one, other)]
    return [] if old == new else [path]
