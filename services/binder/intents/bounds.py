"""Limits of an intent or a desired status that are checked in the message, without a request.

A correct scheduler respects these limits. They protect against a faulty one, or another program
with its permissions. What depends on the pod is checked where the pod is read, and by preconditions
of the writes (`evict`).
"""

from typing import Final

from shared.api import keys
from shared.contracts.messages import (
    Bind,
    BindGang,
    Command,
    Desired,
    DesiredNativePodGroup,
    DesiredPod,
)
from shared.contracts.subjects import split_key
from shared.jobs.native_groups import INITIALLY_SCHEDULED, PREFIX

MEMBERSHIP: Final = frozenset(
    {
        keys.GROUP_NAME,
        keys.GROUP_NAME_VOLCANO,
        keys.TASK_SPEC,
        keys.TASK_INDEX,
        keys.JOB_NAME,
        keys.JOB_NAMESPACE,
        keys.JOB_VERSION,
        keys.JOB_RETRY_COUNT,
        keys.TEMPLATE_UID,
        keys.QUEUE_NAME,
        keys.OUT_OF_SYNC,
    }
)
"""Annotations that say what a pod belongs to: no binding changes them."""
_KUBERNETES: Final = ("kubernetes.io", "k8s.io")
"""Domains whose annotations Kubernetes keeps to itself; the kubelet acts on some."""
_OF_PODS: Final = frozenset({"PodScheduled"})
"""Types of the conditions that scheduling writes on pods."""
_OF_NATIVE_GROUPS: Final = (INITIALLY_SCHEDULED, PREFIX)
"""Beginnings of the types of those that it writes on native PodGroups."""


def breach(command: Command) -> str:
    """Return the limit that an intent breaks; empty: none.

    - The pods of a gang, and the claims of a pod, are in the namespace of their gang.
    - A binding gives no annotation of Kubernetes' own, and none of `MEMBERSHIP`.
    - A victim is in the namespace of its gang, if the intent names the gang.
    """
    if isinstance(command, BindGang):
        return next(filter(None, (_of_bind(command, item) for item in command.binds)), "")
    for victim in command.victims:
        if victim.job and _namespace(victim.job) != _namespace(victim.pod):
            return f"victim {victim.pod} is not in the namespace of its gang {victim.job}"
    return ""


def _of_bind(gang: BindGang, item: Bind) -> str:
    namespace = _namespace(gang.job)
    if _namespace(item.pod) != namespace:
        return f"pod {item.pod} is not in the namespace of its gang {gang.job}"
    for use in item.claims:
        if _namespace(use.claim) != namespace:
            return f"claim {use.claim} is not in the namespace of pod {item.pod}"
    for device_use in item.devices:
        if _namespace(device_use.claim) != namespace:
            return f"resource claim {device_use.claim} is not in the namespace of pod {item.pod}"
    for name in item.annotations:
        if name in MEMBERSHIP or _is_kubernetes(name):
            return f"annotation {name} is not for a binding to give"
    return ""


def breach_of_desired(desired: Desired) -> str:
    """Return the limit that a desired status breaks; empty: none.

    Of a pod's conditions only PodScheduled is scheduling's to write (D02).
    """
    if isinstance(desired, DesiredPod):
        for condition in desired.conditions:
            if condition.type not in _OF_PODS:
                return f"condition {condition.type} of a pod is not scheduling's to write"
    if isinstance(desired, DesiredNativePodGroup):
        for condition in desired.conditions:
            if not condition.type.startswith(_OF_NATIVE_GROUPS):
                return f"condition {condition.type} of a PodGroup is not scheduling's to write"
    return ""


def _is_kubernetes(annotation: str) -> bool:
    domain, slash, _ = annotation.partition("/")
    return bool(slash) and any(domain == own or domain.endswith(f".{own}") for own in _KUBERNETES)


def _namespace(key: str) -> str:
    return split_key(key)[0]
