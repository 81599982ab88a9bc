"""The table of controllers: what each reconciles, watches and is permitted to do (M03, M04).

A new controller is one folder with a `reconciler.py` and one row here. `app` makes the controllers
of the table that `--controllers` selects, under Volcano's names; a test holds the verbs of
`k8s/base/rbac/controller.yaml` to the table.
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from services.controller.adapters.reconciler import Reconciler
from services.controller.cronjob.reconciler import CronJobReconciler
from services.controller.garbage.reconciler import GarbageReconciler
from services.controller.hypernode.reconciler import HyperNodeReconciler
from services.controller.job.reconciler import JobReconciler
from services.controller.jobflow.reconciler import JobFlowReconciler
from services.controller.jobtemplate.reconciler import JobTemplateReconciler
from services.controller.podgroup.reconciler import PodGroupReconciler
from services.controller.provisioning.reconciler import ProvisioningReconciler
from services.controller.queue.reconciler import QueueReconciler
from services.controller.settings import ControllerSettings
from services.controller.sharding.reconciler import ShardingReconciler
from shared.api import kinds
from shared.api.kinds import Kind
from shared.runtime.errors import Rejected


class ControllerRight(msgspec.Struct, frozen=True):
    """Verbs that a controller needs on a kind, or on a subresource of it."""

    kind: Kind
    verbs: tuple[str, ...]
    subresource: str = ""


class Controller(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table."""

    name: str
    """Its name in `--controllers`."""
    reconciler: type[Reconciler]
    queue: str
    """Name of its work queue, in metrics and logs."""
    quarantined_as: tuple[str, str]
    """Kind and stage under which a key that fails is quarantined (ADR 14)."""
    workers: Callable[[ControllerSettings], int] = lambda _: 1
    """Number of keys that are reconciled concurrently."""
    watches: tuple[Kind, ...]
    """Kinds of which it reads what the cache publishes."""
    rights: tuple[ControllerRight, ...]


def _rights(
    kind: Kind, *verbs: str, status: bool = False, owns: bool = False
) -> tuple[ControllerRight, ...]:
    """Return rights on a kind; with `status` its status is patched, with `owns` it has children.

    Owner references that hold back the owner's deletion need `update` of its finalizers, where the
    admission plugin OwnerReferencesPermissionEnforcement asks for it.
    """
    found = [ControllerRight(kind, verbs)]
    if status:
        found.append(ControllerRight(kind, ("patch",), "status"))
    if owns:
        found.append(ControllerRight(kind, ("update",), "finalizers"))
    return tuple(found)


_READ_WRITE: Final = ("get", "create", "patch", "delete")
_TWO_WORKERS: Final = 2
SHARDING: Final = "sharding-controller"

CONTROLLERS: Final = (
    Controller(
        name="job-controller",
        reconciler=JobReconciler,
        queue="jobs",
        quarantined_as=(kinds.JOB.token, "reconcile"),
        workers=lambda settings: settings.worker_threads,
        watches=(
            kinds.JOB, kinds.POD, kinds.PODGROUP, kinds.QUEUE, kinds.COMMAND, kinds.PRIORITYCLASS,
            kinds.PVC, kinds.RESOURCEQUOTA,
        ),
        rights=(
            *_rights(kinds.JOB, "get", "patch", status=True, owns=True),
            *_rights(kinds.POD, *_READ_WRITE),
            *_rights(kinds.PODGROUP, *_READ_WRITE),
            *_rights(kinds.COMMAND, "delete"),
            *_rights(kinds.SERVICE, *_READ_WRITE),
            *_rights(kinds.CONFIGMAP, *_READ_WRITE),
            *_rights(kinds.NETWORKPOLICY, *_READ_WRITE),
            *_rights(kinds.SECRET, "create"),
            *_rights(kinds.PVC, "get", "create"),
        ),
    ),
    Controller(
        name="pg-controller",
        reconciler=PodGroupReconciler,
        queue="bare-pods",
        quarantined_as=(kinds.PODGROUP.token, "reconcile"),
        workers=lambda settings: settings.worker_threads_for_podgroup,
        watches=(kinds.POD, kinds.PODGROUP, kinds.QUEUE, kinds.RESOURCEQUOTA, *kinds.WORKLOADS),
        rights=(
            *_rights(kinds.PODGROUP, "create", "patch", "delete"),
            *_rights(kinds.POD, "patch", owns=True),
            *(right for kind in kinds.WORKLOADS for right in _rights(kind, owns=True)),
        ),
    ),
    Controller(
        name="queue-controller",
        reconciler=QueueReconciler,
        queue="queues",
        quarantined_as=("controllers", "queues"),
        watches=(kinds.QUEUE, kinds.PODGROUP, kinds.COMMAND),
        rights=(
            *_rights(kinds.QUEUE, "get", "create", "patch", status=True),
            *_rights(kinds.COMMAND, "delete"),
            *_rights(kinds.ADMISSION_POLICY, "get"),
            *_rights(kinds.ADMISSION_POLICY_BINDING, "get"),
        ),
    ),
    Controller(
        name="gc-controller",
        reconciler=GarbageReconciler,
        queue="finished-jobs",
        quarantined_as=(kinds.JOB.token, "collect"),
        workers=lambda settings: settings.worker_threads_for_gc,
        watches=(kinds.JOB, kinds.CRONJOB, kinds.JOBFLOW),
        rights=_rights(kinds.JOB, "get", "delete"),
    ),
    Controller(
        name="cronjob-controller",
        reconciler=CronJobReconciler,
        queue=kinds.CRONJOB.token,
        quarantined_as=(kinds.CRONJOB.token, "reconcile"),
        workers=lambda settings: settings.worker_threads_for_cronjob,
        watches=(kinds.CRONJOB, kinds.JOB),
        rights=(
            *_rights(kinds.CRONJOB, "get", status=True, owns=True),
            *_rights(kinds.JOB, "get", "create", "delete"),
        ),
    ),
    Controller(
        name="jobflow-controller",
        reconciler=JobFlowReconciler,
        queue=kinds.JOBFLOW.token,
        quarantined_as=(kinds.JOBFLOW.token, "reconcile"),
        workers=lambda _: _TWO_WORKERS,
        watches=(kinds.JOBFLOW, kinds.JOBTEMPLATE, kinds.JOB),
        rights=(
            *_rights(kinds.JOBFLOW, "get", status=True, owns=True),
            *_rights(kinds.JOB, "get", "create", "delete"),
        ),
    ),
    Controller(
        name="jobtemplate-controller",
        reconciler=JobTemplateReconciler,
        queue=kinds.JOBTEMPLATE.token,
        quarantined_as=(kinds.JOBTEMPLATE.token, "reconcile"),
        workers=lambda _: _TWO_WORKERS,
        watches=(kinds.JOBTEMPLATE, kinds.JOB),
        rights=_rights(kinds.JOBTEMPLATE, "get", status=True),
    ),
    Controller(
        name="hyperNode-controller",
        reconciler=HyperNodeReconciler,
        queue="network",
        quarantined_as=("controllers", "network"),
        watches=(kinds.HYPERNODE, kinds.NODE),
        rights=(
            *_rights(kinds.HYPERNODE, *_READ_WRITE, status=True),
            *_rights(kinds.CONFIGMAP, "get"),
        ),
    ),
    Controller(
        name="provisioning-controller",
        reconciler=ProvisioningReconciler,
        queue="provisioning",
        quarantined_as=(kinds.PROVISIONINGREQUEST.token, "reconcile"),
        watches=(kinds.PODGROUP, kinds.PROVISIONINGREQUEST),
        rights=(
            *_rights(kinds.PROVISIONINGREQUEST, "create", "delete"),
            *_rights(kinds.PODTEMPLATE, "create"),
            *_rights(kinds.POD, "get"),
        ),
    ),
    Controller(
        name=SHARDING,
        reconciler=ShardingReconciler,
        queue="shards",
        quarantined_as=("controllers", "shards"),
        watches=(kinds.NODESHARD, kinds.NODE, kinds.POD),
        rights=(
            *_rights(kinds.NODESHARD, *_READ_WRITE, status=True),
            *_rights(kinds.LEASE, "get", "patch"),
            *_rights(kinds.CONFIGMAP, "get"),
        ),
    ),
)  # fmt: skip

SHARED_RIGHTS: Final = _rights(kinds.EVENT, "create")
"""Rights that every controller needs: it writes Kubernetes Events."""

BUILT: Final = tuple(row.name for row in CONTROLLERS)
ABSENT: Final = ("colocation-config-controller",)
"""Controllers that only Volcano has, accepted so that Volcano's command lines work unchanged."""
_ALL: Final = "*"
_FIELD: Final = "controllers"


def selected(patterns: Sequence[str]) -> frozenset[str]:
    """Return the names that `--controllers` selects, including absent ones that are named.

    `*` selects all that exist; `name` or `+name` adds one, `-name` removes one, in any order.
    Raises Rejected for a name that Volcano does not know, or one both added and removed.
    """
    added: dict[str, None] = {}
    taken: dict[str, None] = {}
    for pattern in patterns:
        if pattern == _ALL:
            continue
        name = pattern[1:] if pattern[:1] in {"+", "-"} else pattern
        if name not in {*BUILT, *ABSENT}:
            known = ", ".join((*BUILT, *ABSENT))
            raise Rejected(f"--controllers: {name!r} is neither * nor one of {known}", field=_FIELD)
        (taken if pattern.startswith("-") else added)[name] = None
    if both := sorted(added.keys() & taken.keys()):
        raise Rejected(f"--controllers: {both[0]} is both added and taken away", field=_FIELD)
    everything = BUILT if _ALL in patterns else ()
    return frozenset((*everything, *added)) - taken.keys()
