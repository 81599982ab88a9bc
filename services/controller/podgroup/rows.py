"""The table of workloads whose pods form one PodGroup: rows of YAML, one for each kind.

`rows.yaml` beside this file has the default rows; the ConfigMap that a flag names adds to them, and
a row of it replaces the default one of its kind. A path such as `object.spec.workers[*].name` walks
through the workload; one that begins with `item` walks through an element of `each`.
"""

import re
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from services.controller.config_text import BadConfigError, decoded

KEY: Final = "rows.yaml"
_ROWS_MAX: Final = 200
_STEP: Final = re.compile(r"\.([A-Za-z0-9_-]+)|\['([^'\[\]]+)'\]")
_PATH: Final = re.compile(rf"(?:object|item)(?:{_STEP.pattern})+")
_LENGTH_MAX: Final = 256

Text = Annotated[str, Meta(min_length=1, max_length=_LENGTH_MAX)]
Paths = Annotated[tuple[Text, ...], Meta(max_length=20)]


class RowPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the parts of a file; an unknown field is refused."""


class RoleRow(RowPart, frozen=True, kw_only=True):
    """Pods of a workload that count to its minimum: one role, or one for each element of a list."""

    name: str = ""
    """A name, or the path of one; by default the key of an element of a mapping, in lower case."""
    each: str = ""
    """Path of a list or a mapping."""
    count: str | Annotated[int, Meta(ge=0)] = 1
    """Pods, or their path; 1 where there is nothing."""
    times: str | Annotated[int, Meta(ge=0)] = 1
    """A factor of `count`."""
    template: str = ""
    """Path of the pod template, which has the requests of pods that do not exist yet."""
    when: Paths = ()
    """Conditions: `path` for something that is there, or `path=value`; all have to hold."""
    unless: Paths = ()
    """Conditions of which none may hold."""


class WorkloadRow(RowPart, frozen=True, kw_only=True):
    """How the pods of workloads of one kind are grouped."""

    group: Annotated[str, Meta(max_length=_LENGTH_MAX)]
    """API group, of any version; empty for the core group."""
    kind: Text
    enabled: bool = True
    minimum: Paths = ()
    """Paths of minMember; the first one with a number counts, and replaces that of the roles."""
    queue: Paths = ()
    """Paths of the queue; without any, what annotations of pods and workload say."""
    priority: Paths = ()
    """Paths of the PriorityClass; without any, that of the pods."""
    label: str = ""
    """Label of the pods whose value is their role."""
    split: str = ""
    """Label of the pods that divides a workload: a PodGroup for each value."""
    roles: Annotated[tuple[RoleRow, ...], Meta(max_length=50)] = ()


class _File(RowPart, frozen=True, kw_only=True):
    rows: Annotated[tuple[WorkloadRow, ...], Meta(max_length=_ROWS_MAX)] = ()


Rows = Mapping[tuple[str, str], WorkloadRow]
"""Rows by group and kind."""


def parse(text: str) -> Rows:
    """Return the default rows with those of a file. Raises BadConfigError that names the field."""
    rows = decoded(text, KEY, _File).rows
    for number, row in enumerate(rows):
        _check(row, f"{KEY}: rows[{number}]")
    return {**DEFAULT, **_by_kind(rows)}


def _by_kind(rows: tuple[WorkloadRow, ...]) -> dict[tuple[str, str], WorkloadRow]:
    return {(row.group, row.kind): row for row in rows}


def _check(row: WorkloadRow, at: str) -> None:
    for name in ("minimum", "queue", "priority"):
        for path in getattr(row, name):
            _check_path(path, f"{at}.{name}", item=False)
    for number, role in enumerate(row.roles):
        here = f"{at}.roles[{number}]"
        if not (role.name or role.each):
            raise BadConfigError(f"{here}.name: a role without each needs a name")
        if role.each:
            _check_path(role.each, f"{here}.each", item=False)
        for name, path in _paths_of(role):
            _check_path(path, f"{here}.{name}", item=bool(role.each))


def _paths_of(role: RoleRow) -> Iterator[tuple[str, str]]:
    """Yield the paths of a role that may walk through an item, with their field."""
    if is_path(role.name):
        yield "name", role.name
    yield from (("count", role.count),) if isinstance(role.count, str) else ()
    yield from (("times", role.times),) if isinstance(role.times, str) else ()
    yield from (("template", role.template),) if role.template else ()
    yield from (("when", condition.partition("=")[0]) for condition in role.when)
    yield from (("unless", condition.partition("=")[0]) for condition in role.unless)


def _check_path(path: str, at: str, *, item: bool) -> None:
    if len(path) > _LENGTH_MAX or not _PATH.fullmatch(path):
        raise BadConfigError(f"{at}: {path[:80]!r} is no path such as object.spec.replicas")
    if path.startswith("item") and not item:
        raise BadConfigError(f"{at}: {path!r} needs a role with each")


def is_path(text: str) -> bool:
    """Tell whether a text is a path and no name."""
    return text.startswith(("object.", "object[", "item.", "item["))


def steps(path: str) -> list[str]:
    """Return the fields that a path walks through, without `object` or `item`."""
    return [plain or quoted for plain, quoted in _STEP.findall(path)]


def value_at(path: str, scope: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a value of JSON
    """Return what is at a path, None where there is nothing; `scope` has `object` and `item`."""
    found: Any = scope.get("item" if path.startswith("item") else "object")
    for step in steps(path):
        if not isinstance(found, dict):
            return None
        found = found.get(step)
    return found


DEFAULT: Final[Rows] = _by_kind(
    decoded(
        (resources.files("services.controller.podgroup") / KEY).read_text("utf-8"), KEY, _File
    ).rows
)
