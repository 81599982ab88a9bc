"""Volume checks (VolumeZone, NodeVolumeLimits, VolumeBinding, VolumeRestrictions), on all nodes.

What a claim's own state forbids holds for every node; the rest are masks over nodes. Of the room
that a driver publishes each claim is held against the whole, as kube-scheduler does it: two claims
that wait together may be placed where only one of them fits, and a driver that cannot make a volume
gives the claim back.
"""

from collections.abc import Iterator

import numpy as np
from msgspec import structs

from pumice.plugins import (
    BoolArray,
    ClaimUse,
    Cluster,
    CodeArray,
    CrossNodeVerdict,
    Reason,
    Task,
    TaskClass,
)
from services.scheduler.engine.nodes.attributes import NodeAttributes
from services.scheduler.policy.states.capacities import Capacities
from services.scheduler.policy.states.volumes import ZONE_LABELS, Attachment, Volumes, size_of
from shared.api import keys
from shared.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass

_NO_PROVISIONER = frozenset({"", "kubernetes.io/no-provisioner"})
_GA = {
    "failure-domain.beta.kubernetes.io/zone": keys.ZONE,
    "failure-domain.beta.kubernetes.io/region": keys.REGION,
}
_SEPARATOR = "__"

BINDING_REASONS = (
    Reason("persistentvolumeclaim not found", resolvable=False),
    Reason("pod has unbound immediate PersistentVolumeClaims", resolvable=False),
    Reason(
        "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
        resolvable=False,
    ),
    Reason("node(s) didn't match PersistentVolume's node affinity", resolvable=False),
    Reason("node(s) didn't find available persistent volumes to bind", resolvable=False),
    Reason("node(s) did not have enough free storage", resolvable=False),
)
_UNKNOWN, _UNBOUND, _LOST, _ELSEWHERE, _NONE_TO_BIND, _NO_SPACE = range(1, 7)
ZONE_REASONS = (Reason("node(s) had no available volume zone", resolvable=False),)
_IN_USE = (
    "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
)
RESTRICTION_REASONS = (Reason(_IN_USE), Reason(_IN_USE, resolvable=False))
_USED_HERE, _USED_ELSEWHERE = 1, 2
_ONE_POD = "ReadWriteOncePod"
LIMIT_REASONS = (Reason("node(s) exceed max volume count"),)


class VolumePredicates:
    """The volume predicates: binding, zones and limits."""

    def __init__(self, cluster: Cluster) -> None:
        self._nodes = cluster.nodes
        self._volumes = cluster.store(Volumes)
        self._capacities = cluster.store(Capacities)
        self._attributes = cluster.store(NodeAttributes)

    # --- VolumeZone --------------------------------------------------------------------------

    def zones(self, task_class: TaskClass) -> CrossNodeVerdict | None:
        """Return the predicate on the zones of bound volumes."""
        zoned = [volume for _, volume in self._bound(task_class) if volume is not None]
        zoned = [volume for volume in zoned if set(ZONE_LABELS) & volume.metadata.labels.keys()]
        if not zoned:
            return None
        refused = np.zeros(self._size, dtype=np.bool_)
        for volume in zoned:
            refused |= ~self._in_zone(volume)
        codes = refused.astype(np.uint8)
        return CrossNodeVerdict(lambda: codes, steady=True)

    def _in_zone(self, volume: PersistentVolume) -> BoolArray:
        needed = [(k, v) for k, v in volume.metadata.labels.items() if k in ZONE_LABELS]
        inside = np.ones(self._size, dtype=np.bool_)
        for key, values in needed:
            at = self._has(key, values.split(_SEPARATOR))
            inside &= at | self._has(_GA[key], values.split(_SEPARATOR)) if key in _GA else at
        zoneless = np.ones(self._size, dtype=np.bool_)
        for key in ZONE_LABELS:
            zoneless &= self._attributes.numbers(key) < 0
        return inside | zoneless

    def _has(self, key: str, values: list[str]) -> BoolArray:
        found = np.zeros(self._size, dtype=np.bool_)
        for value in values:
            found |= self._attributes.matching({key: value})
        return found

    # --- NodeVolumeLimits --------------------------------------------------------------------

    def limits(self, task_class: TaskClass) -> CrossNodeVerdict | None:
        """Return the predicate on how many volumes a node's drivers can attach."""
        needed = {
            a for key in task_class.claims if (a := self._volumes.attachment(key)) is not None
        }
        if not needed or not self._volumes.limits:
            return None
        return CrossNodeVerdict(
            # What others wait for is not free now either (A03).
            lambda: self._beyond(needed, later=False) | self._beyond(needed, later=True),
            one_by_one=True,
            later=lambda: self._beyond(needed, later=True),
        )

    def _beyond(self, needed: set[Attachment], *, later: bool) -> CodeArray:
        codes = np.zeros(self._size, dtype=np.uint8)
        drivers = {attachment.driver for attachment in needed}
        attached = self._volumes.attached(drivers, later=later)
        for node, limits in self._volumes.limits.items():
            column = self._nodes.column(node)
            for driver in drivers & limits.keys() if column >= 0 else ():
                there = attached.get((node, driver), set())
                more = {a.handle for a in needed if a.driver == driver} - there
                if more and len(there) + len(more) > limits[driver]:
                    codes[column] = 1
        return codes

    # --- VolumeRestrictions ------------------------------------------------------------------

    def restrictions(self, task_class: TaskClass) -> CrossNodeVerdict | None:
        """Return the predicate on claims that only one pod may use (ReadWriteOncePod)."""
        claims = self._volumes.claims
        alone = [
            key
            for key in task_class.claims
            if key in claims and _ONE_POD in claims[key].spec.access_modes
        ]
        if not alone:
            return None
        return CrossNodeVerdict(
            lambda: self._in_use(alone, later=False),
            one_by_one=True,
            later=lambda: self._in_use(alone, later=True),
        )

    def _in_use(self, claims: list[str], *, later: bool) -> CodeArray:
        """Refuse all nodes while a pod has one of these claims; its own may be cleared of it."""
        codes = np.zeros(self._size, dtype=np.uint8)
        users = self._volumes.users
        for key in claims:
            for node in users.staying(key) if later else users.nodes(key).values():
                codes[codes == 0] = _USED_ELSEWHERE
                if (column := self._nodes.column(node)) >= 0:
                    codes[column] = _USED_HERE
        return codes

    # --- VolumeBinding -----------------------------------------------------------------------

    def binding(self, task_class: TaskClass) -> CrossNodeVerdict | None:
        """Return the predicate on where volumes are, or could be provisioned."""
        if not task_class.claims:
            return None
        waits = any(
            key in self._volumes.claims and not self._volumes.claims[key].spec.volume_name
            for key in task_class.claims
        )
        return CrossNodeVerdict(
            lambda: self._binding(task_class),
            steady=not waits,
            one_by_one=waits,
            reasons=lambda: self._reasons(task_class),
        )

    def _reasons(self, task_class: TaskClass) -> tuple[Reason, ...]:
        """Return the reasons of the predicate; a claim that is not there is named."""
        for key in task_class.claims:
            claim = self._volumes.claims.get(key)
            if claim is None or claim.metadata.deletion_timestamp is not None:
                what = "not found" if claim is None else "is being deleted"
                text = f'persistentvolumeclaim "{key.partition("/")[2]}" {what}'
                return (Reason(text, resolvable=False), *BINDING_REASONS[1:])
        return BINDING_REASONS

    def _binding(self, task_class: TaskClass) -> CodeArray:
        codes = np.zeros(self._size, dtype=np.uint8)
        for code in self._codes_for_all_nodes(task_class):
            codes[:] = code
            return codes
        for _, volume in self._bound(task_class):
            if volume is not None:
                codes[~self._reaches(volume) & (codes == 0)] = _ELSEWHERE
        found = self._bindable(task_class)
        return np.where(codes == 0, found, codes)

    def _codes_for_all_nodes(self, task_class: TaskClass) -> Iterator[int]:
        """Yield what no node can help with."""
        for key in task_class.claims:
            claim = self._volumes.claims.get(key)
            if claim is None or claim.metadata.deletion_timestamp is not None:
                yield _UNKNOWN
            elif not claim.spec.volume_name and not _waits(self._volumes.class_of(claim)):
                yield _UNBOUND
        if any(volume is None for _, volume in self._bound(task_class)):
            yield _LOST

    def _bound(self, task_class: TaskClass) -> Iterator[tuple[str, PersistentVolume | None]]:
        for key in task_class.claims:
            claim = self._volumes.claims.get(key)
            if claim is not None and claim.spec.volume_name:
                yield key, self._volumes.volumes.get(claim.spec.volume_name)

    def _reaches(self, volume: PersistentVolume) -> BoolArray:
        affinity = volume.spec.node_affinity
        if affinity is None or affinity.required is None:
            return np.ones(self._size, dtype=np.bool_)
        return self._attributes.selected(affinity.required)

    def _bindable(self, task_class: TaskClass) -> CodeArray:
        """Check the nodes: whether each claim without volume finds one or gets one made.

        Volumes that claims of tasks placed before have found are theirs.
        """
        volumes = self._volumes
        open_claims = [key for key in task_class.claims if not volumes.claims[key].spec.volume_name]
        codes = np.zeros(self._size, dtype=np.uint8)
        if not open_claims:
            return codes
        taken = self._promised(set(open_claims))
        used: dict[str, BoolArray] = {}
        for key in sorted(open_claims, key=lambda k: [v.metadata.name for v in volumes.offers(k)]):
            not_bindable = np.ones(self._size, dtype=np.bool_)
            selected = volumes.selected_node(key)
            for volume in volumes.offers(key):
                name = volume.metadata.name
                if name not in taken:
                    before = used.setdefault(name, np.zeros(self._size, dtype=np.bool_))
                    on_node = not_bindable & self._reaches(volume) & ~before
                    used[name] = before | on_node
                    not_bindable &= ~on_node
            claim = volumes.claims[key]
            codes[not_bindable & (codes == 0) & ~self._roomy(claim)] = _NO_SPACE
            codes[not_bindable & ~self._provisionable(volumes.class_of(claim))] = _NONE_TO_BIND
            if selected is not None:
                elsewhere = np.ones(self._size, dtype=np.bool_)
                if (column := self._nodes.column(selected)) >= 0:
                    elsewhere[column] = False
                codes[elsewhere] = _NONE_TO_BIND
        return codes

    def _promised(self, own: set[str]) -> set[str]:
        """Return the volumes that claims of tasks on nodes will be bound to."""
        matches = self._matches(skip=own)
        return {volume.metadata.name for volume in matches.values() if volume is not None}

    def _matches(self, skip: set[str]) -> dict[str, PersistentVolume | None]:
        """Return the volume of each claim that tasks on nodes wait with; None: one is made."""
        volumes, promised = self._volumes, self._volumes.promised
        waiting = [key for key in volumes.waiting_claims() if key not in skip]
        matches: dict[str, PersistentVolume | None] = {}
        taken: set[str] = set()
        for key in sorted(waiting, key=lambda key: (key not in promised, key)):
            node = volumes.selected_node(key)
            column = self._nodes.column(node) if node else -1
            if column < 0:
                continue
            free = [
                volume
                for volume in volumes.offers(key)
                if volume.metadata.name not in taken and self._reaches(volume)[column]
            ]
            free.sort(key=lambda volume: volume.metadata.name != promised.get(key))
            matches[key] = free[0] if free else None
            taken.update(volume.metadata.name for volume in free[:1])
        return matches

    def settle_on(self, task: Task) -> tuple[ClaimUse, ...]:
        """Return what becomes of a placed task's claims; what is chosen stays theirs."""
        claims = self._volumes.claims
        found = []
        matches = self._matches(skip=set())
        for key in task.task_class.claims:
            if key not in matches:
                continue  # it has its volume
            volume = matches[key]
            use = ClaimUse(claim=key, uid=claims[key].metadata.uid)
            if volume is not None:
                meta = volume.metadata
                self._volumes.promise(key, meta.name)
                use = structs.replace(use, volume=meta.name, volume_uid=meta.uid)
            found.append(use)
        return tuple(found)

    def _provisionable(self, storage_class: StorageClass | None) -> BoolArray:
        if storage_class is None or storage_class.provisioner in _NO_PROVISIONER:
            return np.zeros(self._size, dtype=np.bool_)
        if not storage_class.allowed_topologies:
            return np.ones(self._size, dtype=np.bool_)
        result = np.zeros(self._size, dtype=np.bool_)
        for term in storage_class.allowed_topologies:
            within = np.ones(self._size, dtype=np.bool_)
            for need in term.match_label_expressions:
                within &= self._has(need.key, list(need.values))
            result |= within
        return result

    def _roomy(self, claim: PersistentVolumeClaim) -> BoolArray:
        """Return the nodes where the driver says that it has room for a claim, if it says so."""
        storage_class = self._volumes.class_of(claim)
        needed = size_of(claim.spec.resources.requests)
        if storage_class is None or not self._capacities.publishes(storage_class.provisioner):
            return np.ones(self._size, dtype=np.bool_)
        largest = self._capacities.largest(storage_class.metadata.name, self._attributes)
        roomy: BoolArray = largest >= needed
        return roomy

    @property
    def _size(self) -> int:
        return len(self._attributes.names)


def _waits(storage_class: StorageClass | None) -> bool:
    return storage_class is not None and storage_class.volume_binding_mode == "WaitForFirstConsumer"
