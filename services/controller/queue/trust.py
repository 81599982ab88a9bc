"""Decides which Commands to queues are carried out, because queues have no namespace (ADR 13).

A Command of any namespace may name any queue, and the object does not contain its creator. So a
Command is carried out if it comes from a trusted namespace, where only administrators may write, or
if the API server has checked at admission that its creator may update that queue. That check is the
ValidatingAdmissionPolicy of k8s/base; it must have been in force, unchanged, when the Command was
created.
"""

from collections.abc import Collection
from typing import Final

import msgspec

from shared.api import time
from shared.api.base import Json
from shared.api.batch import Command

POLICY: Final = "pumice-queue-commands"
"""Name of the policy and of its binding."""
ANYWHERE: Final = "*"
EXPRESSION: Final = (
    "!has(object.target) || object.target.kind != 'Queue' ||"
    " authorizer.group('scheduling.volcano.sh').resource('queues')"
    ".name(object.target.name).check('update').allowed()"
)
_RULE: Final[Json] = {
    "apiGroups": ["bus.volcano.sh"],
    "apiVersions": ["*"],
    "operations": ["CREATE", "UPDATE"],
    "resources": ["commands"],
}
_SETTLING_S: Final = 10.0
"""Seconds after the write of a policy during which an API server may still not apply it."""


class _Managed(msgspec.Struct, frozen=True, kw_only=True):
    time: str = ""
    subresource: str = ""


class _Meta(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    creation_timestamp: str
    deletion_timestamp: str = ""
    managed_fields: tuple[_Managed, ...] = ()


class _Written(msgspec.Struct, frozen=True, kw_only=True):
    metadata: _Meta
    spec: Json = msgspec.field(default_factory=dict)


def in_trusted_namespace(command: Command, namespaces: Collection[str]) -> bool:
    """Tell whether a Command comes from a trusted namespace."""
    return ANYWHERE in namespaces or command.metadata.namespace in namespaces


def guarded_since(policy: bytes, binding: bytes) -> float:
    """Return the time since which the policy checks each Command; infinity if it does not."""
    try:
        written = [msgspec.json.decode(data, type=_Written) for data in (policy, binding)]
        are_ours = _is_our_policy(written[0].spec) and _denies(written[1].spec)
        if not are_ours or any(one.metadata.deletion_timestamp for one in written):
            return float("inf")
        return max(_changed_at(one.metadata) for one in written) + _SETTLING_S
    except (msgspec.DecodeError, ValueError):
        return float("inf")


def made_at(command: Command) -> float:
    """Return when a Command was created; minus infinity if unknown."""
    created = command.metadata.creation_timestamp
    return time.parse(created) if created else float("-inf")


def _changed_at(meta: _Meta) -> float:
    """Return when anything but the status of an object was last written."""
    times = [one.time for one in meta.managed_fields if one.time and one.subresource != "status"]
    return max(time.parse(text) for text in (meta.creation_timestamp, *times))


def _is_our_policy(spec: Json) -> bool:
    """Tell whether a policy's spec is ours, apart from the message of its refusal."""
    expressions = [validation.get("expression", "") for validation in spec.get("validations", ())]
    match = spec.get("matchConstraints") or {}
    rules = [_plain(rule, scope="*") for rule in match.get("resourceRules", ())]
    rest = {name: value for name, value in match.items() if name != "resourceRules"}
    others = spec.keys() - {"failurePolicy", "matchConstraints", "validations", "auditAnnotations"}
    return (
        spec.get("failurePolicy", "Fail") == "Fail"
        and [" ".join(text.split()) for text in expressions] == [EXPRESSION]
        and rules == [_RULE]
        and _is_unbounded(rest)
        and not others
    )


def _denies(spec: Json) -> bool:
    return (
        spec.get("policyName") == POLICY
        and "Deny" in spec.get("validationActions", ())
        and _is_unbounded(spec.get("matchResources") or {})
        and not spec.keys() - {"policyName", "validationActions", "matchResources"}
    )


def _is_unbounded(match: Json) -> bool:
    """Tell whether a policy leaves out nothing but other kinds; the API server adds defaults."""
    plain = _plain(match, matchPolicy="Equivalent")
    return not any(plain.values())


def _plain(fields: Json, **defaults: str) -> Json:
    return {name: value for name, value in fields.items() if defaults.get(name) != value}
