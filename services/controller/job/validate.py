"""What is wrong with a Job, named by field: the rules of admission that its life rests on.

The controller checks again what a webhook would have refused (W20 to W25), because there may be
none. A job with problems is
held in Pending with the first of them in its state, and nothing is made for
it; editing the job is what lets it go on. All functions take a job with its defaults filled in.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from services.controller.job.group import read_template
from services.controller.job.minresources import pod_usage
from services.controller.job.policies import events_of
from shared.api.batch import Action, Job, JobEvent, LifecyclePolicy, TaskSpec, TopologyPolicy
from shared.api.core import Container, PodSpec
from shared.api.errors import describe
from shared.api.scheduling import ROOT_QUEUE, NetworkTopology, Queue, QueueState
from shared.jobplugins.catalogue import PLUGINS, plugins_of
from shared.model import durations
from shared.model.quantity import BadQuantity, milli

USER_EVENTS: Final = frozenset(
    {
        JobEvent.ANY,
        JobEvent.POD_FAILED,
        JobEvent.POD_EVICTED,
        JobEvent.POD_PENDING,
        JobEvent.UNKNOWN,
        JobEvent.TASK_COMPLETED,
        JobEvent.TASK_FAILED,
        JobEvent.JOB_UPDATED,
    }
)
USER_ACTIONS: Final = frozenset(
    {
        Action.ABORT_JOB,
        Action.RESTART_JOB,
        Action.RESTART_TASK,
        Action.RESTART_POD,
        Action.RESTART_PARTITION,
        Action.TERMINATE_JOB,
        Action.COMPLETE_JOB,
        Action.RESUME_JOB,
    }
)
_LABEL_MAX: Final = 63
_NAME_MAX: Final = 253
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(rf"{_LABEL.pattern}(\.{_LABEL.pattern})*")

Problems = Iterator[str]


def problems(job: Job) -> tuple[str, ...]:
    """Return what is wrong with the spec, each as `field: why`; empty when the job can run."""
    checks: tuple[Callable[[Job], Problems], ...] = (
        _name, _tasks, _minima, _templates, _policies, _volumes, _dependencies, _plugins,
    )  # fmt: skip
    found = [problem for check in checks for problem in check(job)]
    found += _topology("spec.networkTopology", job.spec.network_topology)
    return tuple(found)


def queue_problem(name: str, queue: Queue | None, *, is_leaf: bool) -> str:
    """Return why a new job cannot enter its queue, or "" (W24, J22)."""
    if name == ROOT_QUEUE:
        return "spec.queue: the root queue takes no jobs: name a queue below it"
    if queue is None:
        return f"spec.queue: no queue {name!r}: create it or name another"
    state = queue.status.state
    if state not in {None, QueueState.OPEN}:
        return f"spec.queue: queue {name!r} is {state}: open it or name another"
    if not is_leaf:
        return f"spec.queue: queue {name!r} has queues below it: name one of those"
    return ""


def _name(job: Job) -> Problems:
    """W22: the name of a job is a label of its pods, and with plugin svc that of a Service."""
    name = job.metadata.name
    if len(name) > _LABEL_MAX:
        yield f"metadata.name: has {len(name)} letters; pods carry it as a label, 63 at most"
    elif "svc" in job.spec.plugins and not _LABEL.fullmatch(name):
        yield f"metadata.name: plugin svc makes {name!r} a host name, which takes no dots"


def _tasks(job: Job) -> Problems:
    if not job.spec.tasks:
        yield "spec.tasks: at least one task is needed"
    seen: set[str] = set()
    for index, task in enumerate(job.spec.tasks):
        at = f"spec.tasks[{index}]"
        if task.name in seen:
            yield f"{at}.name: {task.name!r} is the name of an earlier task"
        seen.add(task.name)
        longest = f"{job.metadata.name}-{task.name}-{max(task.replicas - 1, 0)}"
        if not _LABEL.fullmatch(task.name) or len(task.name) > _LABEL_MAX:
            yield f"{at}.name: {task.name!r} is no DNS label"
        elif not _SUBDOMAIN.fullmatch(longest) or len(longest) > _NAME_MAX:
            yield f"{at}.name: its pods would be called {longest!r}, which is no pod name"
        elif "svc" in job.spec.plugins and len(longest) > _LABEL_MAX:
            yield f"{at}.name: with plugin svc {longest!r} becomes a host name, 63 letters at most"
        yield from _partitions(at, task)


def _partitions(at: str, task: TaskSpec) -> Problems:
    """W25."""
    policy = task.partition_policy
    if policy is None:
        return
    at = f"{at}.partitionPolicy"
    if policy.total_partitions <= 0 or policy.partition_size <= 0:
        yield f"{at}: totalPartitions and partitionSize must be greater than 0"
    elif policy.total_partitions * policy.partition_size != task.replicas:
        yield f"{at}: totalPartitions times partitionSize must be replicas ({task.replicas})"
    elif policy.min_partitions > 0 and (
        policy.min_partitions * policy.partition_size != task.min_available
    ):
        yield f"{at}.minPartitions: times partitionSize is not {task.min_available}"
    yield from _topology(f"{at}.networkTopology", policy.network_topology)


def _topology(at: str, topology: NetworkTopology | None) -> Problems:
    if topology and topology.highest_tier_name and topology.highest_tier_allowed is not None:
        yield f"{at}: highestTierAllowed and highestTierName exclude each other"


def _minima(job: Job) -> Problems:
    for index, task in enumerate(job.spec.tasks):
        least = task.min_available or 0
        if least > task.replicas:
            yield (
                f"spec.tasks[{index}].minAvailable: {least} is more than replicas ({task.replicas})"
            )
    replicas = sum(task.replicas for task in job.spec.tasks)
    if job.spec.min_available > replicas:
        yield (
            f"spec.minAvailable: {job.spec.min_available} is more than all replicas ({replicas})"
        )


class _EditedContainer(msgspec.Struct, rename="camel"):
    env: list[dict[str, Any]] | None = None
    volume_mounts: list[dict[str, Any]] | None = None
    ports: list[dict[str, Any]] | None = None


class _EditedSpec(msgspec.Struct, rename="camel"):
    containers: list[_EditedContainer] | None = None
    init_containers: list[_EditedContainer] | None = None
    volumes: list[dict[str, Any]] | None = None
    hostname: str | None = None
    subdomain: str | None = None


class _EditedTemplate(msgspec.Struct):
    """What `podtemplate` and the job plugins touch: it must have the right form for them."""

    metadata: dict[str, Any] | None = None
    spec: _EditedSpec | None = None


def _templates(job: Job) -> Problems:
    """Check of W22 what a pod cannot do without; the API server judges the rest."""
    for index, task in enumerate(job.spec.tasks):
        at = f"spec.tasks[{index}].template"
        try:
            edited = msgspec.json.decode(task.template, type=_EditedTemplate)
            if edited.spec is None or not edited.spec.containers:
                yield f"{at}.spec.containers: at least one container is needed"
                continue
            template = read_template(task)
        except msgspec.ValidationError as error:
            yield f"{at}.{describe(error)}"
            continue
        for group, containers in (
            ("initContainers", template.spec.init_containers),
            ("containers", template.spec.containers),
        ):
            for number, container in enumerate(containers):
                yield from _amounts(f"{at}.spec.{group}[{number}].resources", container, task)
        yield from _countable(at, template.spec)


def _amounts(at: str, container: Container, task: TaskSpec) -> Problems:
    """Each amount is a quantity and not negative; with a NUMA policy CPUs are whole (W25)."""
    asked = container.resources
    for kind, amounts in (("requests", asked.requests), ("limits", asked.limits)):
        for name, amount in amounts.items():
            try:
                below_zero = milli(amount) < 0
            except BadQuantity as error:
                yield f"{at}.{kind}.{name}: {error}"
                continue
            if below_zero:
                yield f"{at}.{kind}.{name}: {amount!r} is less than 0"
    if task.topology_policy in {None, TopologyPolicy.NONE}:
        return
    cpu = str(asked.requests.get("cpu", ""))
    if not (cpu.isdecimal() or (cpu.endswith("000m") and cpu[:-1].isdecimal())):
        yield f"{at}.requests.cpu: topologyPolicy needs a whole number of CPUs"


def _countable(at: str, spec: PodSpec) -> Problems:
    """See that the amounts beside the containers (overhead, pod level) are quantities too."""
    beside = msgspec.structs.replace(spec, containers=(), init_containers=())
    try:
        pod_usage(beside)
    except BadQuantity as error:
        yield f"{at}.spec: {error}"


def _policies(job: Job) -> Problems:
    yield from _policy_list("spec.policies", job.spec.policies)
    for index, task in enumerate(job.spec.tasks):
        yield from _policy_list(f"spec.tasks[{index}].policies", task.policies)


def _policy_list(at: str, policies: tuple[LifecyclePolicy, ...]) -> Problems:
    """W21."""
    seen: set[JobEvent | int] = set()
    for index, policy in enumerate(policies):
        where = f"{at}[{index}]"
        events = events_of(policy)
        yield from _policy(where, policy, events)
        marks: tuple[JobEvent | int, ...] = events
        if policy.exit_code is not None:
            marks = (*marks, policy.exit_code)
        for mark in marks:
            if mark in seen:
                yield f"{where}: {mark} is answered by an earlier policy"
            seen.add(mark)
    if JobEvent.ANY in seen and any(isinstance(m, JobEvent) and m != JobEvent.ANY for m in seen):
        yield f"{at}: where a policy answers *, no other may name an event"


def _policy(where: str, policy: LifecyclePolicy, events: tuple[JobEvent, ...]) -> Problems:
    if policy.exit_code is None and not events:
        yield f"{where}: one of event, events and exitCode is needed"
    if policy.exit_code is not None and events:
        yield f"{where}: event and exitCode exclude each other"
    if policy.exit_code == 0:
        yield f"{where}.exitCode: 0 is success and cannot be answered"
    for event in events:
        if event not in USER_EVENTS:
            yield f"{where}.event: {event} is not for policies; {_listed(USER_EVENTS)} are"
    if policy.action not in USER_ACTIONS:
        yield f"{where}.action: {policy.action!r} is none of {_listed(USER_ACTIONS)}"
    try:
        durations.seconds(policy.timeout)
    except ValueError as error:
        yield f"{where}.timeout: {error}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _volumes(job: Job) -> Problems:
    """W23."""
    seen: set[str] = set()
    for index, volume in enumerate(job.spec.volumes):
        at = f"spec.volumes[{index}]"
        if not volume.mount_path:
            yield f"{at}.mountPath: required"
        if volume.mount_path in seen:
            yield f"{at}.mountPath: {volume.mount_path} is mounted by an earlier volume"
        seen.add(volume.mount_path)
        inline, name = volume.volume_claim is not msgspec.UNSET, volume.volume_claim_name
        if inline == (name != ""):
            yield f"{at}: one of volumeClaim and volumeClaimName is needed, not both"
        elif name and not _SUBDOMAIN.fullmatch(name):
            yield f"{at}.volumeClaimName: {name!r} is no name of a claim"


def _plugins(job: Job) -> Problems:
    """W23."""
    for name in sorted(job.spec.plugins):
        if name not in PLUGINS:
            yield f"spec.plugins.{name}: no such job plugin; there are {_listed(PLUGINS)}"
    for _, plugin, arguments in plugins_of(job):
        yield from plugin.problems(job, arguments)


def _dependencies(job: Job) -> Problems:
    """W25: dependsOn names tasks of this job and has no cycle."""
    targets = {t.name: t.depends_on.name if t.depends_on else () for t in job.spec.tasks}
    for index, task in enumerate(job.spec.tasks):
        for name in targets[task.name]:
            if name not in targets:
                yield f"spec.tasks[{index}].dependsOn.name: no task {name!r} in this job"
    done: set[str] = set()
    while ready := [n for n, on in targets.items() if n not in done and done.issuperset(on)]:
        done.update(ready)
    if stuck := [n for n in targets if n not in done and set(targets[n]) <= targets.keys()]:
        yield f"spec.tasks: dependsOn goes round in a circle over {', '.join(stuck)}"
