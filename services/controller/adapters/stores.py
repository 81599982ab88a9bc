"""The stores of the controller by kind, their indexes, and queries over them."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import msgspec

from services.controller.adapters.records import JobRecord
from services.controller.adapters.store import IndexedStore, ObjectChange, StoreKey, Touched
from services.controller.job.facts import PodView, pod_view
from services.controller.podgroup.groups import GroupFacts, group_name, is_bare, model
from services.controller.provisioning.plan import needs_nodes
from shared.api import keys, kinds
from shared.api.autoscaling import ProvisioningRequest
from shared.api.batch import Command, Job
from shared.api.core import Node, Pod, PodPhase, ResourceQuota, ResourceQuotaStatus
from shared.api.cron import CronJob
from shared.api.flow import JobFlow, JobTemplate
from shared.api.kinds import Kind
from shared.api.meta import ObjectMeta
from shared.api.scheduling import NodeShard, PodGroup, PriorityClass, Queue
from shared.api.topology import HyperNode
from shared.api.workloads import Workload
from shared.kube.decode import PartialObject
from shared.model.numbers import whole
from shared.model.quantity import BadQuantity, milli

_OWNERS: Final = {(kind.api_version, kind.kind): kind for kind in (kinds.CRONJOB, kinds.JOBFLOW)}
_TARGET_KINDS: Final = (kinds.JOB, kinds.QUEUE)
NO_TARGET: Final = StoreKey("", "")
"""Value of the index for Commands whose target is of a kind that takes no Commands."""


class StoredPod(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is stored of a pod: a small view of a job's pod, the complete object of a bare pod."""

    owner_key: str = ""
    """Owner key of its job, see `owner_key`."""
    view: PodView | None = None
    group: str = ""
    """Key of the PodGroup of a bare pod: `namespace/podgroup-<uid of the owner>`."""
    pod: Pod | None = None
    node: str = ""
    """Node on which it requests CPU, where loads of nodes are followed (S03)."""
    cpu_milli: int = 0


class StoredNode(msgspec.Struct, frozen=True, gc=False):
    """What is stored of a node: its metadata, and the capacity by which shards are sized."""

    metadata: ObjectMeta
    cpu_milli: int


def owner_key(namespace: str, uid: str) -> str:
    """Return the key by which the objects of an owner are found.

    The namespace is part of it because the API server does not check owner references: one from
    another namespace is forged.
    """
    return f"{namespace}/{uid}"


def pod_to_store(
    pod: Pod, scheduler_names: Collection[str], known: StoredPod | None, *, loads: bool = False
) -> StoredPod | None:
    """Return the part of a pod to store, None if it is neither bare nor a job's.

    `known` is its stored part. A job's pod stays one even if its annotations change. With `loads`
    pods of any scheduler that request CPU on a node are stored too.
    """
    meta = pod.metadata
    found = pod_view(pod)
    bare = meta.deletion_timestamp is None and is_bare(pod, scheduler_names)
    before = known if found is None else None
    node, cpu_milli = load_of(pod) if loads else ("", 0)
    if found is None and not bare and not node and (before is None or before.view is None):
        return None
    return StoredPod(
        owner_key=owner_key(meta.namespace, found[0])
        if found
        else before.owner_key
        if before
        else "",
        view=found[1] if found else before.view if before else None,
        group=f"{meta.namespace}/{group_name(pod)}" if bare else "",
        pod=pod if bare else None,
        node=node,
        cpu_milli=cpu_milli,
    )


def load_of(pod: Pod) -> tuple[str, int]:
    """Return the node of a pod and the CPU that its containers request there; "" for none.

    As Volcano counts it: without init containers, and without mirror pods (S03).
    """
    ended = pod.status.phase in {PodPhase.SUCCEEDED, PodPhase.FAILED}
    if not pod.spec.node_name or ended or keys.MIRROR in pod.metadata.annotations:
        return "", 0
    requests = (one.resources.requests.get("cpu", 0) for one in pod.spec.containers)
    return pod.spec.node_name, sum(milli(cpu) for cpu in requests)


def group_of_request(request: ProvisioningRequest) -> str:
    """Return the key of the PodGroup that a request was made for, "" for one of another author."""
    owner = request.metadata.controller
    is_ours = owner is not None and owner.kind == kinds.PODGROUP.kind
    return f"{request.metadata.namespace}/{owner.name}" if owner is not None and is_ours else ""


def group_of_owner(owner: Workload) -> tuple[str]:
    """Return the key of the PodGroup of an owner's bare pods."""
    return (f"{owner.metadata.namespace}/podgroup-{owner.metadata.uid}",)


def other_owners(stored: StoredPod) -> tuple[str, ...]:
    """Return the owner keys of the owners of a bare pod that do not control it."""
    if stored.pod is None:
        return ()
    meta = stored.pod.metadata
    return tuple(
        owner_key(meta.namespace, ref.uid) for ref in meta.owner_references if not ref.controller
    )


def owners_of(job: Job) -> Iterator[StoreKey]:
    """Yield the objects that a job comes from: a CronJob or JobFlow, and a JobTemplate."""
    meta = job.metadata
    owner = meta.controller
    kind = _OWNERS.get((owner.api_version, owner.kind)) if owner is not None else None
    if owner is not None and kind is not None:
        yield StoreKey(kind.token, f"{meta.namespace}/{owner.name}")
    for key in templates_of(job):
        yield StoreKey(kinds.JOBTEMPLATE.token, key)


def controller_key(job: Job) -> tuple[str, ...]:
    """Return the owner key of the CronJob or the JobFlow that controls a job, if one does."""
    owner = job.metadata.controller
    if owner is None or (owner.api_version, owner.kind) not in _OWNERS:
        return ()
    return (owner_key(job.metadata.namespace, owner.uid),)


def templates_of(job: Job) -> tuple[str, ...]:
    """Return the key of the template that a job was made from, if it was."""
    meta = job.metadata
    namespace, dot, name = meta.labels.get(keys.CREATED_BY_TEMPLATE, "").partition(".")
    return (f"{namespace}/{name}",) if dot and namespace == meta.namespace else ()


def target_of(command: Command) -> StoreKey:
    """Return the job, always one of the Command's own namespace, or the queue that it is for."""
    target = command.target
    if target is None or not any(_is_for(command, kind) for kind in _TARGET_KINDS):
        return NO_TARGET
    if _is_for(command, kinds.JOB):
        return StoreKey(kinds.JOB.token, f"{command.metadata.namespace}/{target.name}")
    return StoreKey(kinds.QUEUE.token, target.name)


def _is_for(command: Command, kind: Kind) -> bool:
    target = command.target
    return target is not None and (target.api_version, target.kind) == (kind.api_version, kind.kind)


def _given(command: Command) -> tuple[int, str]:
    """Sort Commands by creation; their times have whole seconds only."""
    return int(command.metadata.resource_version or 0), command.metadata.key


def metadata_to_store(meta: ObjectMeta) -> PartialObject:
    """Return the part to store of an object of which only names and labels are read."""
    return PartialObject(
        metadata=ObjectMeta(
            name=meta.name,
            namespace=meta.namespace,
            uid=meta.uid,
            resource_version=meta.resource_version,
            labels=meta.labels,
        )
    )


def node_to_store(node: Node) -> StoredNode:
    """Return the part of a node to store."""
    cpu = node.status.capacity.get("cpu", 0)
    return StoredNode(metadata_to_store(node.metadata).metadata, milli(cpu))


def is_for_record(command: Command, record: JobRecord) -> bool:
    """Tell whether a Command to the job's name is for this very job."""
    return command.target is not None and command.target.uid in {"", record.uid}


class Stores:
    """A store for each kind that the controller reads, and the records of its jobs."""

    def __init__(self) -> None:
        self.jobs: dict[str, JobRecord] = {}
        """Memory of each job, by key; the job itself is in `job_objects`, too."""
        self.queues: IndexedStore[Queue] = IndexedStore()
        self.groups: IndexedStore[PodGroup] = IndexedStore(
            {"queue": lambda group: (group.spec.queue,)}
        )
        self.crons: IndexedStore[CronJob] = IndexedStore()
        self.flows: IndexedStore[JobFlow] = IndexedStore()
        self.templates: IndexedStore[JobTemplate] = IndexedStore()
        self.hypernodes: IndexedStore[HyperNode] = IndexedStore()
        self.nodes: IndexedStore[StoredNode] = IndexedStore()
        self.shards: IndexedStore[NodeShard] = IndexedStore()
        self.provisioning: IndexedStore[ProvisioningRequest] = IndexedStore(
            {"group": lambda request: (group_of_request(request),)}
        )
        self.commands: IndexedStore[Command] = IndexedStore(
            {"target": lambda command: (target_of(command),)}
        )
        self.claims: IndexedStore[PartialObject] = IndexedStore()
        self.priorities: IndexedStore[PriorityClass] = IndexedStore()
        self.quotas: IndexedStore[ResourceQuota] = IndexedStore()
        self.pods: IndexedStore[StoredPod] = IndexedStore(
            {
                "job": lambda pod: (pod.owner_key,) if pod.owner_key else (),
                "group": lambda pod: (pod.group,) if pod.group else (),
                "other-owner": other_owners,
            }
        )
        self.job_objects: IndexedStore[Job] = IndexedStore(
            {"owner": controller_key, "template": templates_of}
        )
        self.owners: dict[str, IndexedStore[Workload]] = {
            kind.token: IndexedStore({"group": group_of_owner}) for kind in kinds.WORKLOADS
        }
        self.by_kind: dict[str, IndexedStore[Any]] = {
            kinds.JOB.token: self.job_objects,
            kinds.POD.token: self.pods,
            kinds.PODGROUP.token: self.groups,
            kinds.QUEUE.token: self.queues,
            kinds.COMMAND.token: self.commands,
            kinds.PRIORITYCLASS.token: self.priorities,
            kinds.PVC.token: self.claims,
            kinds.RESOURCEQUOTA.token: self.quotas,
            kinds.CRONJOB.token: self.crons,
            kinds.JOBFLOW.token: self.flows,
            kinds.JOBTEMPLATE.token: self.templates,
            kinds.HYPERNODE.token: self.hypernodes,
            kinds.NODE.token: self.nodes,
            kinds.NODESHARD.token: self.shards,
            kinds.PROVISIONINGREQUEST.token: self.provisioning,
            **self.owners,
        }
        self._gone: dict[str, StoreKey] = {}
        """Uid → object whose deletion was confirmed, until STATE shows it."""
        self.quarantined: dict[StoreKey, str] = {}
        """Existing objects that are in no store, with uid: other pods, and unreadable objects."""
        self._grouped: tuple[IndexedStore[Any], ...] = (self.pods, *self.owners.values())
        """Bare pods and their owners."""

    def local_uids(self) -> Mapping[str, Mapping[str, str]]:
        """Return the uid of each object by kind and key, also of objects that are in no store."""
        found = {token: dict(store.uids()) for token, store in self.by_kind.items()}
        for ref, uid in self.quarantined.items():
            found[ref.token][ref.key] = uid
        return found

    def unpublished(self, covered: Mapping[str, str]) -> set[tuple[str, str]]:
        """Return the objects (token, key) that this process has written since STATE was published.

        `covered` maps the token of a kind to the resourceVersion up to which STATE has its changes.
        """
        found: set[tuple[str, str]] = set(self._gone.values())
        for token, store in self.by_kind.items():
            found.update(
                (token, key) for key in store.newer_than(whole(covered.get(token, "")) or 0)
            )
        return found

    def stray_commands(self, key: str) -> list[Command]:
        """Return the Commands to a job of this key that is not known, or not the one meant."""
        found, record = self.commands_to(key), self.jobs.get(key)
        return [c for c in found if record is None or not is_for_record(c, record)]

    def commands_to(self, job: str) -> list[Command]:
        """Return the Commands to a job of that key in the order in which they were given."""
        if not self.commands:
            return []
        found = self.commands.by_index("target", StoreKey(kinds.JOB.token, job))
        return sorted(found, key=_given)

    def queue_commands(self) -> tuple[Command, ...]:
        """Return the Commands to queues in the order in which they were given."""
        found = (c for c in self.commands.values() if target_of(c).token == kinds.QUEUE.token)
        return tuple(sorted(found, key=_given))

    def misdirected_commands(self) -> list[Command]:
        """Return the Commands whose target is of a kind that takes none."""
        return self.commands.by_index("target", NO_TARGET)

    def jobs_of(self, owner: ObjectMeta) -> list[Job]:
        """Return the jobs that an object controls in its own namespace, by name."""
        return self.job_objects.by_index("owner", owner_key(owner.namespace, owner.uid))

    def jobs_from(self, template_key: str) -> list[Job]:
        """Return the jobs that name a template as their origin, by name."""
        return self.job_objects.by_index("template", template_key)

    def owner_of(self, job: Job) -> CronJob | JobFlow | None:
        """Return the CronJob or the JobFlow that controls a job, if it exists."""
        ref = job.metadata.controller
        if ref is None:
            return None
        key = f"{job.metadata.namespace}/{ref.name}"
        owners: tuple[CronJob | JobFlow | None, ...] = (self.crons.get(key), self.flows.get(key))
        return next((o for o in owners if o is not None and o.metadata.uid == ref.uid), None)

    def metadata_of(self, ref: StoreKey) -> ObjectMeta | None:
        """Return the metadata of an object, if it is there and its metadata is held."""
        found = self.by_kind[ref.token].get(ref.key) if ref.token in self.by_kind else None
        return getattr(found, "metadata", None)

    def groups_per_queue(self) -> dict[str, int]:
        """Return how many PodGroups are in each queue that has some (Q02)."""
        return {queue: len(keys) for queue, keys in self.groups.index_values("queue").items()}

    def bare_groups(self) -> Iterator[str]:
        """Yield the keys of the groups of bare pods that have pods, or an owner that is known."""
        return iter(dict.fromkeys(k for s in self._grouped for k in s.index_values("group")))

    def is_bare_group(self, key: str) -> bool:
        """Tell whether a group of bare pods has pods or a known owner."""
        return any(key in store.index_values("group") for store in self._grouped)

    def group_facts(self, key: str) -> GroupFacts:
        """Return the facts of one group of bare pods."""
        pods = self.pods.by_index("group", key)
        bare = tuple(stored.pod for stored in pods if stored.pod is not None)
        if bare:
            owners = tuple(self._owners_of(model(bare)))
        else:
            stores = self.owners.values()
            owners = tuple(owner for store in stores for owner in store.by_index("group", key))
        return GroupFacts(pods=bare, owners=owners, group=self.groups.get(key))

    def _owners_of(self, pod: Pod) -> Iterator[Workload]:
        """Yield the owners of a pod that are watched, in the order of its references."""
        for reference in pod.metadata.owner_references:
            key = f"{pod.metadata.namespace}/podgroup-{reference.uid}"
            for store in self.owners.values():
                yield from store.by_index("group", key)

    def groups_of_owner(self, owner: Workload) -> tuple[str, ...]:
        """Return the keys of the PodGroups of bare pods that name an owner, its own group first."""
        at = owner_key(owner.metadata.namespace, owner.metadata.uid)
        others = (stored.group for stored in self.pods.by_index("other-owner", at))
        return tuple(dict.fromkeys((*group_of_owner(owner), *others)))


def quota_changed(change: ObjectChange[ResourceQuota], touched: Touched) -> None:
    """Touch a quota that has more room than before; less room changes nothing.

    The API server checks the status, which the quota controller updates.
    """
    if change.before is not None and (
        change.after is None or _has_more_room(change.before.status, change.after.status)
    ):
        touched.add(kinds.RESOURCEQUOTA, change.key)


def _has_more_room(before: ResourceQuotaStatus, after: ResourceQuotaStatus) -> bool:
    """Tell whether a limit of a quota was removed, or leaves more room."""
    if not before.hard.keys() <= after.hard.keys():
        return True
    return any(_room(after, name) > _room(before, name) for name in before.hard)


def _room(status: ResourceQuotaStatus, name: str) -> int:
    """Return what a quota leaves of a resource; 0 for amounts that cannot be read."""
    try:
        return milli(status.hard[name]) - milli(status.used.get(name, 0))
    except BadQuantity:
        return 0


def request_changed(change: ObjectChange[ProvisioningRequest], touched: Touched) -> None:
    """Touch the gang of a ProvisioningRequest."""
    if key := group_of_request(change.present):
        touched.add(kinds.PROVISIONINGREQUEST, key)


def node_need_changed(change: ObjectChange[PodGroup], touched: Touched) -> None:
    """Touch the ProvisioningRequest of a gang that needs nodes, or no longer does."""
    if needs_nodes(change.before) != needs_nodes(change.after):
        touched.add(kinds.PROVISIONINGREQUEST, change.key)


def node_changed(change: ObjectChange[StoredNode], touched: Touched) -> None:
    """Touch a node whose labels or CPU changed; nothing depends on its other fields."""
    before, after = change.before, change.after
    if before is None or after is None or _sharding_facts(before) != _sharding_facts(after):
        touched.add(kinds.NODE, change.key)


def _sharding_facts(node: StoredNode) -> tuple[Mapping[str, str], int]:
    return node.metadata.labels, node.cpu_milli


def is_same_queue(before: Queue, after: Queue) -> bool:
    """Tell whether two versions of a queue are equal for jobs: same spec and state."""
    same = before.status.state == after.status.state
    return same and before.metadata.generation == after.metadata.generation


def stored_load(pod: StoredPod | None) -> tuple[str, int]:
    """Return the node of a stored pod and its CPU there; "" for none."""
    return (pod.node, pod.cpu_milli) if pod is not None else ("", 0)
