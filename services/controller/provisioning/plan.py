"""Which ProvisioningRequest a gang has: pure, from its PodGroup and its requests.

A gang that needs nodes (`NODES_NEEDED`) has one request. One that ended without nodes is replaced
after a delay, which doubles with each attempt. A gang that needs none has none.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from shared.api import kinds, time
from shared.api.autoscaling import (
    ENDED,
    NODES_NEEDED,
    POD_SETS_MAX,
    NeededPods,
    ProvisioningRequest,
    attempt_of,
    needed_pods,
    stage_of,
)
from shared.api.base import Json
from shared.api.meta import ObjectMeta
from shared.api.scheduling import PodGroup, PodGroupCondition
from shared.model.backoff import delay_s

FIRST_RETRY_S: Final = 60.0
LONGEST_RETRY_S: Final = 1800.0
_OF_ONE_POD: Final = ("nodeName", "hostname", "ephemeralContainers", "serviceAccount")
"""Fields of a pod's spec that a template of it leaves out."""
_ACCESS: Final = "kube-api-access-"
"""Volumes that the API server adds to each pod."""


class ProvisioningChange(msgspec.Struct, frozen=True, kw_only=True):
    """Writes that a gang's requests need, and when to look again; empty when all is well."""

    create: str = ""
    """Name of the request to create."""
    delete: tuple[ProvisioningRequest, ...] = ()
    again_in_s: float = 0.0


def needs_nodes(group: PodGroup | None) -> PodGroupCondition | None:
    """Return the condition by which a gang needs nodes, None where it does not."""
    if group is None or group.metadata.deletion_timestamp is not None:
        return None
    for condition in group.status.conditions:
        if condition.type == NODES_NEEDED and condition.status == "True":
            return condition
    return None


def change_for(
    group: PodGroup | None, requests: Sequence[ProvisioningRequest], *, now: float
) -> ProvisioningChange:
    """Return the writes that the requests of a gang need; `now` is Unix seconds.

    A request that is replaced is deleted after its successor exists, so that the number of the
    attempt is known to the next process as well.
    """
    needed = needs_nodes(group)
    if group is None:
        return ProvisioningChange()
    own = [each for each in requests if each.metadata.is_controlled_by(group.metadata.uid)]
    if needed is None:
        return ProvisioningChange(delete=tuple(own))
    if not own:
        return ProvisioningChange(create=f"{group.metadata.name}-1")
    *older, last = sorted(own, key=attempt_of)
    stage, condition = stage_of(last)
    due_in_s = 0.0
    if stage in ENDED and condition is not None:
        attempt = attempt_of(last)
        since = time.read(condition.last_transition_time)
        wait_s = delay_s(attempt - 1, first_s=FIRST_RETRY_S, cap_s=LONGEST_RETRY_S)
        due_in_s = (now if since is None else since) + wait_s - now
        if due_in_s <= 0:
            return ProvisioningChange(create=f"{group.metadata.name}-{attempt + 1}")
    return ProvisioningChange(delete=tuple(older), again_in_s=due_in_s)


def pod_sets(condition: PodGroupCondition) -> list[NeededPods]:
    """Return the pod sets of the request that a gang needs, at most `POD_SETS_MAX`."""
    return needed_pods(condition.message)[:POD_SETS_MAX]


def request_body(name: str, group: PodGroup, condition: PodGroupCondition) -> Json:
    """Return the request of a gang; the condition's reason is the class."""
    sets = [
        {"podTemplateRef": {"name": template_name(name, at)}, "count": needed.pods}
        for at, needed in enumerate(pod_sets(condition))
    ]
    return {
        "apiVersion": kinds.PROVISIONINGREQUEST.api_version,
        "kind": kinds.PROVISIONINGREQUEST.kind,
        "metadata": _metadata(name, kinds.PODGROUP, group.metadata),
        "spec": {"provisioningClassName": condition.reason, "podSets": sets},
    }


def template_body(name: str, request: ObjectMeta, pod: Mapping[str, Any]) -> Json:
    """Return the template of pods like one; it is deleted with its request."""
    meta, spec = pod["metadata"], {k: v for k, v in pod["spec"].items() if k not in _OF_ONE_POD}
    spec["volumes"] = _without_access(spec.get("volumes", ()))
    for containers in ("containers", "initContainers"):
        spec[containers] = [
            {**container, "volumeMounts": _without_access(container.get("volumeMounts", ()))}
            for container in spec.get(containers, ())
        ]
    labels = {"labels": meta["labels"]} if meta.get("labels") else {}
    return {
        "apiVersion": kinds.PODTEMPLATE.api_version,
        "kind": kinds.PODTEMPLATE.kind,
        "metadata": _metadata(name, kinds.PROVISIONINGREQUEST, request),
        "template": {"metadata": labels, "spec": spec},
    }


def _without_access(named: Iterable[Json]) -> list[Json]:
    return [each for each in named if not each["name"].startswith(_ACCESS)]


def template_name(request: str, at: int) -> str:
    """Return the name of the template of a request's pod set."""
    return f"{request}-{at}"


def _metadata(name: str, kind: kinds.Kind, owner: ObjectMeta) -> Json:
    reference = kind.controller_reference(owner, blocks_deletion=False)
    return {
        "name": name,
        "namespace": owner.namespace,
        "ownerReferences": [msgspec.to_builtins(reference)],
    }
