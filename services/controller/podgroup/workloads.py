"""PodGroups of workloads: pods of all owners below one RayCluster, JobSet or Deployment. Pure.

A row of the table (`rows`) derives minimum, roles and queue from the workload. What the API server
stores in a custom resource may be anything, so a value of another type counts as
absent, and numbers are bounded.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from services.controller.job.minresources import Milli, as_texts
from services.controller.podgroup.groups import GroupChange, group_for, model, patch_of, usage
from services.controller.podgroup.rows import RoleRow, WorkloadRow, is_path, value_at
from shared.api import keys
from shared.api.base import DNS_LABEL, Json
from shared.api.core import Pod, PodSpec
from shared.api.meta import ObjectMeta
from shared.api.scheduling import PodGroup
from shared.model.numbers import whole

PODS_MAX: Final = 1_000_000
_ROLES_MAX: Final = 1_000
_NAME: Final = re.compile(DNS_LABEL)
_NO_ROLE: Final = ""


class GroupedWorkload(msgspec.Struct, frozen=True, kw_only=True):
    """A workload of a kind in the table, with its row."""

    row: WorkloadRow
    api_version: str
    metadata: ObjectMeta
    content: Mapping[str, Any]
    """The whole object."""

    @property
    def reference(self) -> Json:
        """Return a reference to it as the controller of its PodGroups."""
        return {
            "apiVersion": self.api_version,
            "kind": self.row.kind,
            "name": self.metadata.name,
            "uid": self.metadata.uid,
            "controller": True,
        }


class WorkloadGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A PodGroup of a workload and its pods."""

    name: str
    pods: tuple[Pod, ...]


def groups_of(workload: GroupedWorkload, pods: Iterable[Pod]) -> list[WorkloadGroup]:
    """Return pods by their PodGroup: one for all, or one for each value of the label `split`."""
    found: dict[str, list[Pod]] = {}
    whole_name = f"podgroup-{workload.metadata.uid}"
    for pod in pods:
        part = pod.metadata.labels.get(workload.row.split, "") if workload.row.split else ""
        is_name = _NAME.fullmatch(part) is not None
        found.setdefault(f"{whole_name}-{part}" if is_name else whole_name, []).append(pod)
    return [WorkloadGroup(name=name, pods=tuple(each)) for name, each in sorted(found.items())]


def role_of(workload: GroupedWorkload, pod: Pod) -> str:
    """Return the role of a pod, "" for none."""
    if not workload.row.label:
        return _NO_ROLE
    value = pod.metadata.labels.get(workload.row.label, "")
    return value if _NAME.fullmatch(value) else _NO_ROLE


class _Role(NamedTuple):
    pods: int
    template: Any


def minima(workload: GroupedWorkload) -> dict[str, int]:
    """Return the minimum number of pods of each role."""
    return {name: role.pods for name, role in _roles(workload).items()}


def _roles(workload: GroupedWorkload) -> dict[str, _Role]:
    found: dict[str, _Role] = {}
    for role in workload.row.roles:
        for key, item in _elements(role, workload.content):
            scope = {"object": workload.content, "item": item}
            if not _applies(role, scope):
                continue
            named = value_at(role.name, scope) if is_path(role.name) else role.name or key.lower()
            name = named if isinstance(named, str) and _NAME.fullmatch(named) else ""
            count = _number(role.count, scope) * _number(role.times, scope)
            if name and count and (name in found or len(found) < _ROLES_MAX):
                before = found[name].pods if name in found else 0
                template = value_at(role.template, scope) if role.template else None
                found[name] = _Role(min(before + count, PODS_MAX), template)
    return found


def _elements(role: RoleRow, content: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    if not role.each:
        yield "", None
        return
    found = value_at(role.each, {"object": content})
    if isinstance(found, dict):
        yield from list(found.items())[:_ROLES_MAX]
    elif isinstance(found, list):
        yield from (("", each) for each in found[:_ROLES_MAX])


def _applies(role: RoleRow, scope: Mapping[str, Any]) -> bool:
    return all(_holds(c, scope) for c in role.when) and not any(
        _holds(c, scope) for c in role.unless
    )


def _holds(condition: str, scope: Mapping[str, Any]) -> bool:
    path, equal, value = condition.partition("=")
    found = value_at(path, scope)
    if not equal:
        return found not in (None, "", 0, False, [], {})
    text = str(found).lower() if isinstance(found, bool) else str(found)
    return found is not None and text == value


def _number(stated: str | int, scope: Mapping[str, Any]) -> int:
    """Return a count, given in a row or by a path; 1 if there is none."""
    found = _count(value_at(stated, scope)) if isinstance(stated, str) else stated
    return 1 if found is None else found


def _count(value: Any) -> int | None:  # noqa: ANN401 - a value of JSON
    """Return a number of pods, None for any other value; annotations hold text."""
    found = whole(value) if isinstance(value, str) else value
    if isinstance(found, bool) or not isinstance(found, int) or found < 0:
        return None
    return min(found, PODS_MAX)


def _first(paths: Sequence[str], content: Mapping[str, Any]) -> Any:  # noqa: ANN401 - of JSON
    found = (value_at(path, {"object": content}) for path in paths)
    return next((value for value in found if value not in (None, "")), None)


def body_of(workload: GroupedWorkload, group: WorkloadGroup) -> Json:
    """Return the desired PodGroup of pods of a workload."""
    body = group_for(model(group.pods), workload.metadata.annotations)
    metadata, spec = body["metadata"], body["spec"]
    metadata["name"] = group.name
    metadata["ownerReferences"] = [workload.reference]
    found = _roles(workload)
    roles = {role: each.pods for role, each in found.items()}
    stated = _count(_first(workload.row.minimum, workload.content))
    least = stated if stated is not None else sum(roles.values())
    spec["minMember"] = max(1, min(least, PODS_MAX))
    spec["minTaskMember"] = roles if stated is None and workload.row.label else {}
    counts = found if stated is None else {}
    spec["minResources"] = _resources(workload, group.pods, counts, spec["minMember"])
    queue, priority = (
        _first(paths, workload.content) for paths in (workload.row.queue, workload.row.priority)
    )
    if isinstance(queue, str):
        spec["queue"] = queue
    if isinstance(priority, str):
        spec["priorityClassName"] = priority
    return body


def _resources(
    workload: GroupedWorkload, pods: Sequence[Pod], roles: Mapping[str, _Role], least: int
) -> dict[str, str]:
    """Return the resources of the minimum: by the templates of roles, else by existing pods."""
    by_role: dict[str, list[Pod]] = {}
    for pod in pods:
        by_role.setdefault(role_of(workload, pod), []).append(pod)
    total: Milli = {}
    if not roles:
        _add(total, usage(model(tuple(pods)).spec), least)
    for name, role in roles.items():
        some = by_role.get(name)
        spec = _pod_spec(role.template) or (model(tuple(some)).spec if some else None)
        if spec is None and len(roles) == 1:
            spec = model(tuple(pods)).spec
        if spec is not None:
            _add(total, usage(spec), role.pods)
    return as_texts(total)


def _add(total: Milli, amounts: Milli, count: int) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount * count


def _pod_spec(template: Any) -> PodSpec | None:  # noqa: ANN401 - a value of JSON
    """Return the spec of a pod template, None of what is none."""
    if not isinstance(template, dict):
        return None
    try:
        return msgspec.convert(template.get("spec"), PodSpec)
    except msgspec.ValidationError:
        return None


def change_for_workload(
    workload: GroupedWorkload, group: WorkloadGroup, present: PodGroup | None, *, is_whole: bool
) -> GroupChange:
    """Return the writes that one PodGroup of a workload needs.

    `is_whole`: the pods are all that are in the group. Those that have just come do not tell what
    a PodGroup that is there should be.
    """
    lacking = ((pod, _lacks(workload, pod, group.name)) for pod in group.pods)
    annotate = tuple((pod, desired) for pod, desired in lacking if desired)
    if present is None:
        return GroupChange(create=body_of(workload, group), annotate=annotate)
    patch = patch_of(present, body_of(workload, group)) if is_whole else {}
    return GroupChange(patch=patch, annotate=annotate)


def _lacks(workload: GroupedWorkload, pod: Pod, group: str) -> dict[str, str]:
    """Return the annotations that a pod of a group lacks."""
    present = pod.metadata.annotations
    desired = {keys.GROUP_NAME: group, keys.WORKLOAD_GROUP: "true"}
    role = role_of(workload, pod)
    if role and keys.TASK_SPEC not in present:
        desired[keys.TASK_SPEC] = role
    return {name: value for name, value in desired.items() if present.get(name) != value}
