"""Claims, volumes, storage classes and drivers of nodes, for the volume checks.

Facts fold into them; a session adds on which nodes it placed tasks with claims. Few pods have
claims, so plain dictionaries serve; what is derived from them is rebuilt when one changes.
"""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, NamedTuple

from msgspec import convert
from typing_extensions import override

from pumice.plugins import Fold, PolicyState, Task
from services.scheduler.engine.tasks.classes import volume_claims
from services.scheduler.engine.tasks.pod_selectors import selector_of
from services.scheduler.policy.states.claim_users import ClaimUsers
from shared.api import keys, kinds
from shared.api.core import Pod
from shared.api.storage import (
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
    VolumeAttachmentSpec,
)
from shared.model.quantity import BadQuantity, units

_SELECTED_NODE = "volume.kubernetes.io/selected-node"
_ZONE = (keys.ZONE, "failure-domain.beta.kubernetes.io/zone")
_REGION = (keys.REGION, "failure-domain.beta.kubernetes.io/region")
ZONE_LABELS = (*_ZONE, *_REGION)


class Attachment(NamedTuple):
    """One volume as a driver sees it: the same one twice on a node counts once."""

    driver: str
    handle: str


Attached = dict[tuple[str, str], set[str]]
"""(node, driver) → handles of volumes."""


class Volumes(PolicyState):
    """The storage of a cluster."""

    name: ClassVar[str] = "promised"

    def __init__(self) -> None:
        self.claims: dict[str, PersistentVolumeClaim] = {}
        self.volumes: dict[str, PersistentVolume] = {}
        self.classes: dict[str, StorageClass] = {}
        self.limits: dict[str, Mapping[str, int]] = {}
        """Node → driver → volumes that it can attach."""
        self._attachments: dict[str, VolumeAttachmentSpec] = {}
        """Name of an attachment → volume, node and driver."""
        self.users = ClaimUsers()
        self.promised: dict[str, str] = {}
        """Claim → volume that a plan binds it to, until the claim says so."""

    # --- facts -------------------------------------------------------------------------------

    @override
    def folds(self) -> Mapping[str, Fold]:
        """Read claims, volumes, storage classes and the drivers of nodes."""
        return {
            kinds.PVC.token: Fold(self.put_claim, self.remove_claim),
            kinds.PV.token: Fold(self.put_volume, self.remove_volume),
            kinds.STORAGECLASS.token: Fold(self.put_class, self.remove_class),
            kinds.CSINODE.token: Fold(self.put_drivers, self.remove_drivers),
            kinds.VOLUMEATTACHMENT.token: Fold(self.put_attachment, self.remove_attachment),
        }

    def put_claim(self, key: str, claim: PersistentVolumeClaim) -> None:
        """Store a claim."""
        self.claims[key] = claim
        if claim.spec.volume_name:
            self.promised.pop(key, None)

    def remove_claim(self, key: str) -> None:
        """Forget a claim."""
        self.claims.pop(key, None)
        self.promised.pop(key, None)

    def put_volume(self, name: str, volume: PersistentVolume) -> None:
        """Store a volume."""
        self.volumes[name] = volume

    def remove_volume(self, name: str) -> None:
        """Forget a volume."""
        self.volumes.pop(name, None)

    def put_class(self, name: str, storage_class: StorageClass) -> None:
        """Store a storage class."""
        self.classes[name] = storage_class

    def remove_class(self, name: str) -> None:
        """Forget a storage class."""
        self.classes.pop(name, None)

    def put_drivers(self, node: str, drivers: CSINode) -> None:
        """Store how many volumes of each driver a node can attach."""
        limits = {
            driver.name: driver.allocatable.count
            for driver in drivers.spec.drivers
            if driver.allocatable is not None and driver.allocatable.count is not None
        }
        # No entry rather than an empty one: a node reads the same as one that never had any.
        if limits:
            self.limits[node] = limits
        else:
            self.limits.pop(node, None)

    def remove_drivers(self, node: str) -> None:
        """Forget a node's drivers."""
        self.limits.pop(node, None)

    def put_attachment(self, name: str, attachment: VolumeAttachment) -> None:
        """Store that a volume is at a node, or on its way there or back."""
        self._attachments[name] = attachment.spec

    def remove_attachment(self, name: str) -> None:
        """Forget an attachment."""
        self._attachments.pop(name, None)

    # --- tasks on nodes ----------------------------------------------------------------------

    @override
    def demand(self, pod: Pod) -> tuple[str, ...]:
        """Return the keys of the claims that a pod mounts."""
        return volume_claims(pod)

    @override
    def count(self, task: Task, sign: int) -> None:
        """Add a task on its node (-1: remove it); one that is evicted uses its claims still."""
        self.users.count(task, task.task_class.claims, sign)

    def promise(self, claim: str, volume: str) -> None:
        """Bind a claim to a volume with the plan of this session."""
        self.journal.write(self.promised, claim, volume)

    @override
    def dump(self) -> dict[str, str]:
        """Return the volumes that claims are to be bound to."""
        return dict(self.promised)

    @override
    def restore(self, dumped: Any) -> None:
        """Store what claims are to be bound to."""
        self.promised = convert(dumped, dict[str, str])

    # --- queries -----------------------------------------------------------------------------

    def class_of(self, claim: PersistentVolumeClaim) -> StorageClass | None:
        """Return a claim's storage class."""
        return self.classes.get(claim.spec.storage_class_name or "")

    def selected_node(self, key: str) -> str | None:
        """Return the node that a claim without volume is to be provisioned for."""
        annotation = self.claims[key].metadata.annotations.get(_SELECTED_NODE)
        return annotation or next(iter(self.users.nodes(key).values()), None)

    def attachment(self, key: str) -> Attachment | None:
        """Return the attachment of a claim; None if no CSI driver attaches it."""
        claim = self.claims.get(key)
        if claim is None:
            return None
        volume = self.volumes.get(claim.spec.volume_name)
        if volume is not None:
            csi = volume.spec.csi
            return Attachment(csi.driver, csi.volume_handle) if csi else None
        storage_class = self.class_of(claim)
        return Attachment(storage_class.provisioner, key) if storage_class else None

    def attached(self, drivers: Iterable[str], *, later: bool) -> Attached:
        """Return the volumes at nodes; `later`: once all that terminates has gone.

        Otherwise volumes of running and terminating tasks count, and none of waiting ones. A volume
        also counts until it is detached, even if all its pods are gone.
        """
        desired = set(drivers)
        found: Attached = {}
        for key in self.users.claims():
            attachment = self.attachment(key)
            if attachment is not None and attachment.driver in desired:
                for node in self.users.staying(key) if later else self.users.present(key):
                    found.setdefault((node, attachment.driver), set()).add(attachment.handle)
        for spec in self._attachments.values() if not later else ():
            volume = self.volumes.get(spec.source.persistent_volume_name or "")
            if spec.attacher in desired and volume is not None and volume.spec.csi is not None:
                handle = volume.spec.csi.volume_handle
                found.setdefault((spec.node_name, spec.attacher), set()).add(handle)
        return found

    def offers(self, key: str) -> list[PersistentVolume]:
        """Return the free volumes that satisfy a claim, smallest first, on any node."""
        claim = self.claims[key]
        desired = size_of(claim.spec.resources.requests)
        fitting = [
            volume
            for volume in self.volumes.values()
            if self._is_free(volume, key)
            and volume.spec.storage_class_name == (claim.spec.storage_class_name or "")
            and (volume.spec.volume_mode or "Filesystem")
            == (claim.spec.volume_mode or "Filesystem")
            and set(claim.spec.access_modes) <= set(volume.spec.access_modes)
            and _selects(claim, volume)
            and size_of(volume.spec.capacity) >= desired
        ]
        return sorted(fitting, key=lambda v: (size_of(v.spec.capacity), v.metadata.name))

    def _is_free(self, volume: PersistentVolume, key: str) -> bool:
        reference = volume.spec.claim_ref
        if reference is not None:
            return f"{reference.namespace}/{reference.name}" == key
        return (
            volume.status.phase in {"", "Available"} and volume.metadata.deletion_timestamp is None
        )

    def waiting_claims(self) -> list[str]:
        """Return claims without volume that tasks on nodes use, in a fixed order."""
        return sorted(
            key
            for key in self.users.claims()
            if key in self.claims and not self.claims[key].spec.volume_name
        )


def _selects(claim: PersistentVolumeClaim, volume: PersistentVolume) -> bool:
    selector = selector_of(claim.spec.selector, {})
    return selector is None or selector.matches(volume.metadata.labels)


def size_of(amounts: Mapping[str, str | int | float]) -> int:
    """Return the requested or existing bytes of storage; 0 if unreadable."""
    try:
        return units(amounts.get("storage", 0))
    except BadQuantity:
        return 0
