"""ProvisioningRequest (autoscaling.x-k8s.io/v1): a request for the nodes of a whole gang.

The kind is Cluster Autoscaler's; it exists only where that has installed it. The scheduler says by
the condition `NODES_NEEDED` of a PodGroup for which pods there are no nodes, the controller makes a
request of that, and the autoscaler writes the conditions of the request.
"""

import enum
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from shared.api.base import View
from shared.api.meta import ObjectMeta

CONSUMES: Final = "autoscaling.x-k8s.io/consume-provisioning-request"
"""Annotation of a pod: the request whose nodes it uses."""
CLASS_NAME: Final = "autoscaling.x-k8s.io/provisioning-class-name"
"""Annotation of a pod: the class of that request."""
NODES_NEEDED: Final = "NodesNeeded"
"""Condition of a PodGroup: True while a ProvisioningRequest is to be made for it."""
POD_SETS_MAX: Final = 32
"""Most pod sets of a request."""

_CLASS: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+")
_CLASS_LETTERS: Final = 253
_SET: Final = re.compile(r"(\d+) like (\S+)")


class Reference(View, frozen=True, kw_only=True):
    """Reference to a PodTemplate of the same namespace."""

    name: str = ""


class PodSet(View, frozen=True, kw_only=True):
    """A number of equal pods."""

    pod_template_ref: Reference = Reference()
    count: int = 0


class ProvisioningRequestSpec(View, frozen=True, kw_only=True):
    """The pods to provision nodes for, and how."""

    pod_sets: tuple[PodSet, ...] = ()
    provisioning_class_name: str = ""


class RequestCondition(View, frozen=True, kw_only=True):
    """Condition of a request."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class ProvisioningRequestStatus(View, frozen=True, kw_only=True):
    """What the autoscaler reports."""

    conditions: tuple[RequestCondition, ...] = ()


class ProvisioningRequest(View, frozen=True, kw_only=True):
    """A request for the nodes of one gang; its spec never changes."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ProvisioningRequestSpec = ProvisioningRequestSpec()
    status: ProvisioningRequestStatus = ProvisioningRequestStatus()

    @property
    def pods(self) -> int:
        """Number of pods that it asks nodes for."""
        return sum(each.count for each in self.spec.pod_sets)


class ProvisioningStage(enum.StrEnum):
    """How far a request has come: the last of the conditions of these types that is True."""

    NEW = "New"
    ACCEPTED = "Accepted"
    PROVISIONED = "Provisioned"
    BOOKING_EXPIRED = "BookingExpired"
    CAPACITY_REVOKED = "CapacityRevoked"
    FAILED = "Failed"


ENDED: Final = frozenset(
    {
        ProvisioningStage.BOOKING_EXPIRED,
        ProvisioningStage.CAPACITY_REVOKED,
        ProvisioningStage.FAILED,
    }
)
"""Stages of a request that brings no nodes any more."""


def stage_of(request: ProvisioningRequest) -> tuple[ProvisioningStage, RequestCondition | None]:
    """Return the stage of a request, and the condition that says so."""
    true = {each.type: each for each in request.status.conditions if each.status == "True"}
    for stage in reversed(ProvisioningStage):
        if stage in true:
            return stage, true[stage]
    return ProvisioningStage.NEW, None


def is_class(text: str) -> bool:
    """Tell whether a text can be the name of a provisioning class: `check-capacity.example.com`."""
    return len(text) <= _CLASS_LETTERS and _CLASS.fullmatch(text) is not None


class NeededPods(NamedTuple):
    """Equal pods that wait for nodes."""

    pods: int
    like: str
    """Name of one of them."""


def needed_text(needed: Iterable[NeededPods]) -> str:
    """Return the message of `NODES_NEEDED`: `nodes for pods: 15 like a-worker-0, 1 like a-head`."""
    return "nodes for pods: " + ", ".join(f"{count} like {like}" for count, like in needed)


def needed_pods(message: str) -> list[NeededPods]:
    """Return the pods that the message of `NODES_NEEDED` names."""
    found = _SET.findall(message.replace(",", " "))
    return [NeededPods(int(count), like) for count, like in found]


def attempt_of(request: ProvisioningRequest) -> int:
    """Return which of a gang's requests it is, from 1: the number at the end of its name."""
    number = request.metadata.name.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0
