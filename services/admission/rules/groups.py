"""The file of `--admission-conf`: resource groups, sources of users, and limits.

A resource group says where the pods of some namespaces or annotations have to run (W30). The groups
have Volcano's form.
"""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Final

import msgspec
import yaml

from shared.api import keys
from shared.api.base import describe_decode_error
from shared.jobs.limits import LimitScope

_NAMESPACE: Final = "namespace"
_ANNOTATION: Final = "annotation"


class BadConfiguration(ValueError):  # noqa: N818 - reads as the fact it states
    """The file cannot be read; the text names the field."""


class Selects(msgspec.Struct, frozen=True, kw_only=True):
    """Selects pods: `namespace` with names, or `annotation` with lines `key: value`."""

    key: str = ""
    value: tuple[str, ...] = ()


class ResourceGroup(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One resource group; its pods get its settings."""

    resource_group: str = ""
    object: Selects = Selects()
    scheduler_name: str = ""
    tolerations: tuple[dict[str, Any], ...] = ()
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    affinity: str = ""
    """JSON."""

    def has(self, namespace: str, annotations: Mapping[str, str]) -> bool:
        """Tell whether a pod belongs to the group; without a key, by the group's own name."""
        if self.object.key == _NAMESPACE:
            return namespace in self.object.value
        if self.object.key not in {"", _ANNOTATION}:
            return False
        if any(annotations.get(key) == value for key, value in self.annotations().items()):
            return True
        mark = annotations.get(keys.RESOURCE_GROUP)
        return not self.object.key and mark is not None and mark == self.resource_group

    def annotations(self) -> Mapping[str, str]:
        """Return the annotations that select; a line that is not `key: value` selects nothing."""
        return _annotations(self.object.value)

    def parsed_affinity(self) -> dict[str, Any] | None:
        """Return the affinity; None when there is none."""
        if not self.affinity:
            return None
        parsed = msgspec.json.decode(self.affinity)
        return parsed if isinstance(parsed, dict) else None


@cache
def _annotations(lines: tuple[str, ...]) -> Mapping[str, str]:
    """Return what lines of YAML say, each a mapping of its own; of one key the first line counts.

    Cached, as every pod asks.
    """
    found: dict[str, str] = {}
    for line in lines:
        try:
            stated = yaml.load(line, yaml.BaseLoader)  # noqa: S506 - it makes texts only
        except yaml.YAMLError:
            continue
        for key, value in stated.items() if isinstance(stated, dict) else ():
            if isinstance(key, str) and isinstance(value, str):
                found.setdefault(key, value)
    return found


class UserSource(msgspec.Struct, frozen=True, kw_only=True):
    """Says whose objects a service account creates: the annotation of their owner."""

    requester: str
    """Name of the requester, such as `system:serviceaccount:argo:argo`."""
    annotation: str


class SubmitLimit(LimitScope, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Largest number of Jobs that have not finished, of users or of all users of a queue."""

    submitted: Annotated[int, msgspec.Meta(ge=0)]


class AdmissionConfiguration(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The file of `--admission-conf`."""

    resource_groups: tuple[ResourceGroup, ...] = ()
    users: tuple[UserSource, ...] = ()
    limits: tuple[SubmitLimit, ...] = ()


def read_configuration(text: str) -> AdmissionConfiguration:
    """Return what a file in YAML says. Raises `BadConfiguration`, which names the field."""
    try:
        plain = yaml.safe_load(text) or {}
        found = msgspec.convert(plain, AdmissionConfiguration, strict=False)
    except yaml.YAMLError as error:
        raise BadConfiguration(f"no YAML: {' '.join(str(error).split())}") from error
    except msgspec.ValidationError as error:
        raise BadConfiguration(describe_decode_error(error)) from error
    for index, group in enumerate(found.resource_groups):
        at = f"resourceGroups[{index}]"
        if group.object.key not in {"", _NAMESPACE, _ANNOTATION}:
            raise BadConfiguration(
                f"{at}.object.key: {group.object.key!r} is neither namespace nor annotation"
            )
        try:
            sound = not group.affinity or group.parsed_affinity() is not None
        except msgspec.DecodeError:
            sound = False
        if not sound:
            raise BadConfiguration(f"{at}.affinity: is no JSON object")
    for index, source in enumerate(found.users):
        for field in ("requester", "annotation"):
            if not getattr(source, field):
                raise BadConfiguration(f"users[{index}].{field}: is empty")
    return found
