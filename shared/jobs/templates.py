"""Rules for a pod template from which pods can be made (W22, W25).

The API server checks each pod when it is created, but then the job is there already and can only
fail. So the faults that people make are found before: forms, names, images, amounts, mounts. What
is not checked here the API server refuses with its own words.
"""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from shared.api.base import without_nulls
from shared.api.batch import Job, TaskSpec, TopologyPolicy
from shared.api.core import Container, PodSpec, PodTemplateSpec, ResourceRequirements
from shared.api.nesting import TOO_DEEP, is_too_deep
from shared.jobs.pod_terms import PARTITIONED_TASKS_MAX, excess
from shared.jobs.problems import LABEL, LABEL_MAX, Problem, Problems, unreadable
from shared.model import quantity
from shared.model.quantity import BadQuantity, milli

_TEMPLATE: Final = msgspec.json.Decoder(PodTemplateSpec)
_ENVIRONMENT_NAME: Final = re.compile(r"[\x20-\x3c\x3e-\x7e]+")
"""Printable ASCII but the equals sign: what Kubernetes takes since 1.34."""
_PORT_MAX: Final = 65_535
_RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")
_OVERCOMMITTED: Final = frozenset({"cpu", "memory", "ephemeral-storage"})


class _EditedContainer(msgspec.Struct, rename="camel"):
    name: str
    image: str | None = None
    env: list[dict[str, Any]] | None = None
    volume_mounts: list[dict[str, Any]] | None = None
    ports: list[dict[str, Any]] | None = None


class _EditedSpec(msgspec.Struct, rename="camel"):
    containers: list[_EditedContainer] | None = None
    init_containers: list[_EditedContainer] | None = None
    volumes: list[dict[str, Any]] | None = None
    hostname: str | None = None
    subdomain: str | None = None
    restart_policy: str | None = None


class _EditedTemplate(msgspec.Struct):
    """Fields that are read here, and that the job plugins edit: they must have the right form."""

    metadata: dict[str, Any] | None = None
    spec: _EditedSpec | None = None


def read_template(task: TaskSpec) -> PodTemplateSpec:
    """Return what is counted of a task's template; msgspec.ValidationError names a bad field."""
    return _TEMPLATE.decode(msgspec.json.encode(without_nulls(msgspec.json.decode(task.template))))


def template_problems(job: Job, *, pod_level: bool = True) -> Problems:
    """Return what is wrong with the templates of all tasks.

    `pod_level`: whether the cluster knows resources of whole pods; one that does not ignores them.
    """
    mounted = frozenset(str(volume.mount_path) for volume in job.spec.volumes)
    for index, task in enumerate(job.spec.tasks):
        at = f"spec.tasks[{index}].template"
        if is_too_deep(bytes(task.template)):
            yield Problem(at, TOO_DEEP)
            continue
        try:
            edited = msgspec.json.decode(task.template, type=_EditedTemplate)
            if edited.spec is None or not edited.spec.containers:
                yield Problem(f"{at}.spec.containers", "at least one container is needed")
                continue
            spec = read_template(task).spec
        except msgspec.ValidationError as error:
            fault = unreadable(error)
            yield Problem(f"{at}.{fault.path}" if fault.path else at, fault.reason)
            continue
        yield from _Template(index, mounted).of_forms(edited.spec)
        yield from _Amounts(index, task, pod_level=pod_level).of_spec(spec)


def term_problems(job: Job) -> Problems:
    """Return which tasks of a job ask for too much in their pods; unreadable ones are left out."""
    for index, task in enumerate(job.spec.tasks):
        try:
            why = excess(read_template(task).spec)
        except (msgspec.DecodeError, RecursionError):
            continue  # `template_problems` says what is wrong with it
        if why:
            field, _, reason = why.partition(": ")
            yield Problem(f"spec.tasks[{index}].template.{field}", reason)
    partitioned = sum(task.partition_policy is not None for task in job.spec.tasks)
    if partitioned > PARTITIONED_TASKS_MAX:
        most = f"at most {PARTITIONED_TASKS_MAX} may have one"
        yield Problem("spec.tasks", f"{partitioned} tasks with a partitionPolicy, {most}")


class _Template:
    """Checks the containers and volumes of one task."""

    def __init__(self, index: int, mounted: frozenset[str]) -> None:
        self._at = f"spec.tasks[{index}].template.spec"
        self._mounted = mounted
        """Where the job's own volumes are mounted, in each container."""

    def of_forms(self, spec: _EditedSpec) -> Problems:
        if spec.restart_policy and spec.restart_policy not in _RESTART_POLICIES:
            yield self._problem(
                "restartPolicy",
                f'Unsupported value: "{spec.restart_policy}": supported values: '
                + ", ".join(f'"{known}"' for known in _RESTART_POLICIES),
            )
        volumes: set[str] = set()
        for number, volume in enumerate(spec.volumes or ()):
            yield from self._name(f"volumes[{number}].name", str(volume.get("name", "")), volumes)
        seen: set[str] = set()
        for group, containers in (
            ("initContainers", spec.init_containers or ()),
            ("containers", spec.containers or ()),
        ):
            for number, container in enumerate(containers):
                at = f"{group}[{number}]"
                yield from self._name(f"{at}.name", container.name, seen)
                yield from self._container(at, container, volumes)

    def _container(self, at: str, container: _EditedContainer, volumes: set[str]) -> Problems:
        if not container.image:
            yield self._problem(f"{at}.image", "Required value")
        for number, variable in enumerate(container.env or ()):
            name = str(variable.get("name", ""))
            if not _ENVIRONMENT_NAME.fullmatch(name):
                yield self._problem(
                    f"{at}.env[{number}].name",
                    f'Invalid value: "{name}": is no name of an environment variable',
                )
        for number, port in enumerate(container.ports or ()):
            value = port.get("containerPort")
            if not isinstance(value, int) or not 1 <= value <= _PORT_MAX:
                yield self._problem(
                    f"{at}.ports[{number}].containerPort",
                    f"Invalid value: {value}: must be between 1 and {_PORT_MAX}, inclusive",
                )
        taken: set[str] = set()
        for number, mount in enumerate(container.volume_mounts or ()):
            where = f"{at}.volumeMounts[{number}]"
            if str(mount.get("name", "")) not in volumes:
                yield self._problem(f"{where}.name", f'Not found: "{mount.get("name", "")}"')
            path = str(mount.get("mountPath", ""))
            if not path:
                yield self._problem(f"{where}.mountPath", "Required value")
            elif path in taken or path in self._mounted:
                yield self._problem(
                    f"{where}.mountPath", f'Invalid value: "{path}": must be unique'
                )
            taken.add(path)

    def _name(self, at: str, name: str, earlier: set[str]) -> Problems:
        """Check a name and remember it among the earlier ones."""
        if not LABEL.fullmatch(name) or len(name) > LABEL_MAX:
            yield self._problem(
                at,
                f'Invalid value: "{name}": must consist of lower case alphanumeric characters or'
                f" '-', start and end with an alphanumeric character, {LABEL_MAX} letters at most",
            )
        elif name in earlier:
            yield self._problem(at, f'Duplicate value: "{name}"')
        earlier.add(name)

    def _problem(self, field: str, fault: str) -> Problem:
        """Return a fault in Kubernetes's words."""
        return Problem(f"{self._at}.{field}", fault)


class _Amounts:
    """Checks the resources of one task: quantities, not negative, requests within limits."""

    def __init__(self, index: int, task: TaskSpec, *, pod_level: bool) -> None:
        self._index = index
        self._at = f"spec.tasks[{index}].template.spec"
        self._whole = task.topology_policy not in {None, "", TopologyPolicy.NONE}
        self._pod_level = pod_level

    def of_spec(self, spec: PodSpec) -> Problems:
        faults: list[Problem] = []
        for group, containers in (
            ("containers", spec.containers), ("initContainers", spec.init_containers)
        ):  # fmt: skip
            for number, container in enumerate(containers):
                resources = container.resources
                faults += self._of(f"{group}[{number}].resources", resources)
                faults += self._whole_cpus(f"{group}[{number}].resources", resources)
        faults += self._quantities("overhead", spec.overhead)
        if spec.resources is not None and self._pod_level:
            faults += self._of("resources", spec.resources)
            if not faults:
                faults += self._aggregate(spec, spec.resources)
        return iter(faults)

    def _of(self, at: str, resources: ResourceRequirements) -> Problems:
        bad = False
        for kind, amounts in (("requests", resources.requests), ("limits", resources.limits)):
            for fault in self._quantities(f"{at}.{kind}", amounts):
                bad = True
                yield fault
        if bad:
            return
        for name, amount in sorted(resources.requests.items()):
            limit = resources.limits.get(name)
            if limit is None or milli(amount) == milli(limit):
                continue
            word = "less than or equal to" if name in _OVERCOMMITTED else "equal to"
            if milli(amount) > milli(limit) or name not in _OVERCOMMITTED:
                yield Problem(
                    f"{self._at}.{at}.requests.{name}",
                    f'Invalid value: "{quantity.canonical(amount)}":'
                    f" must be {word} {name} limit of {quantity.canonical(limit)}",
                )

    def _quantities(self, at: str, amounts: Mapping[str, Any]) -> Problems:
        for name, amount in sorted(amounts.items()):
            where = f"{self._at}.{at}.{name}"
            try:
                below_zero = milli(amount) < 0
            except BadQuantity as error:
                yield Problem(where, str(error))
                continue
            if below_zero:
                yield Problem(
                    where, f"{amount!r} is less than 0: must be greater than or equal to 0"
                )

    def _whole_cpus(self, at: str, resources: ResourceRequirements) -> Problems:
        """W25: a NUMA policy deals in whole CPUs; limits count where nothing is requested."""
        if not self._whole:
            return
        amounts = resources.requests or resources.limits
        try:
            cpu = milli(amounts.get("cpu", 0))
        except BadQuantity:
            return
        if cpu <= 0 or cpu % 1000:
            yield Problem(
                f"{self._at}.{at}.requests.cpu",
                "the cpu request isn't an integer, and topologyPolicy needs whole CPUs",
            )

    def _aggregate(self, spec: PodSpec, whole: ResourceRequirements) -> Problems:
        """See that a pod as a whole requests enough for its containers together."""
        together = _together(spec)
        for name, amount in sorted(whole.requests.items()):
            needed = together.get(name, 0)
            if milli(amount) < needed:
                yield Problem(
                    f"{self._at}.resources.requests.{name}",
                    "Invalid value:"
                    f' "{quantity.canonical(amount)}": must be greater than or equal to aggregate'
                    f" container requests of {_text(name, needed)}",
                )


def _together(spec: PodSpec) -> dict[str, int]:
    """Return what the containers request at most at any time, in thousandths by resource."""
    highest: Counter[str] = Counter()
    running: Counter[str] = Counter()
    for container in spec.init_containers:
        resources = _requested(container)
        for name, amount in resources.items():
            highest[name] = max(highest[name], running[name] + amount)
        if container.restart_policy == "Always":
            running.update(resources)
    for container in spec.containers:
        running.update(_requested(container))
    return dict(running | highest)


def _requested(container: Container) -> dict[str, int]:
    """Return what a container requests; a limit counts where nothing is requested."""
    resources = container.resources
    return {
        name: milli(amount) for name, amount in {**resources.limits, **resources.requests}.items()
    }


def _text(name: str, amount_milli: int) -> str:
    if name == "cpu" or amount_milli % 1000:
        return quantity.format_milli(amount_milli)
    return quantity.format_bytes(amount_milli // 1000)
