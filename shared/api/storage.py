"""Views of volumes: claims, volumes, storage classes and what a node's CSI drivers can attach.

The scheduler's volume predicates read them; the job controller reads claims (J30).
"""

from msgspec import field

from shared.api.base import Quantity, ResourceList, View
from shared.api.core import ResourceRequirements
from shared.api.meta import ObjectMeta
from shared.api.selectors import LabelSelector, NodeSelector


class PersistentVolumeClaimSpec(View, frozen=True, kw_only=True):
    """Spec of a claim."""

    access_modes: tuple[str, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    storage_class_name: str | None = None
    """Absent means the default class, the empty string means none."""
    volume_name: str = ""
    volume_mode: str | None = None
    selector: LabelSelector | None = None


class PersistentVolumeClaimStatus(View, frozen=True, kw_only=True):
    """Whether a claim is bound: `Pending`, `Bound` or `Lost`."""

    phase: str = ""
    capacity: ResourceList = field(default_factory=dict)


class PersistentVolumeClaim(View, frozen=True, kw_only=True):
    """A claim for a volume."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()


class ClaimReference(View, frozen=True, kw_only=True):
    """The claim that a volume is bound to."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class VolumeNodeAffinity(View, frozen=True, kw_only=True):
    """Nodes that can reach a volume."""

    required: NodeSelector | None = None


class CSIVolumeSource(View, frozen=True, kw_only=True):
    """The driver that serves a volume."""

    driver: str
    volume_handle: str = ""


class PersistentVolumeSpec(View, frozen=True, kw_only=True):
    """Spec of a volume."""

    capacity: ResourceList = field(default_factory=dict)
    access_modes: tuple[str, ...] = ()
    claim_ref: ClaimReference | None = None
    storage_class_name: str = ""
    volume_mode: str | None = None
    node_affinity: VolumeNodeAffinity | None = None
    csi: CSIVolumeSource | None = None


class PersistentVolumeStatus(View, frozen=True, kw_only=True):
    """Whether a volume is free: `Available`, `Bound`, `Released`, `Failed` or `Pending`."""

    phase: str = ""


class PersistentVolume(View, frozen=True, kw_only=True):
    """A volume."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()


class TopologyLabelRequirement(View, frozen=True, kw_only=True):
    """One label of an allowed topology."""

    key: str
    values: tuple[str, ...] = ()


class TopologySelectorTerm(View, frozen=True, kw_only=True):
    """Labels of nodes for which a class makes volumes."""

    match_label_expressions: tuple[TopologyLabelRequirement, ...] = ()


class StorageClass(View, frozen=True, kw_only=True):
    """How volumes of a class are made, and when (`volume_binding_mode`)."""

    metadata: ObjectMeta = ObjectMeta()
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: tuple[TopologySelectorTerm, ...] = ()


class VolumeNodeResources(View, frozen=True, kw_only=True):
    """How many volumes of a driver a node can attach; absent means no limit."""

    count: int | None = None


class CSINodeDriver(View, frozen=True, kw_only=True):
    """A CSI driver on a node."""

    name: str
    node_id: str = field(default="", name="nodeID")
    topology_keys: tuple[str, ...] = ()
    allocatable: VolumeNodeResources | None = None


class CSINodeSpec(View, frozen=True, kw_only=True):
    """The CSI drivers of a node."""

    drivers: tuple[CSINodeDriver, ...] = ()


class CSINode(View, frozen=True, kw_only=True):
    """CSI drivers of a node and their limits; named like the node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CSINodeSpec = CSINodeSpec()


class VolumeAttachmentSource(View, frozen=True, kw_only=True):
    """The volume that is attached."""

    persistent_volume_name: str | None = None
    """Absent: a volume that a pod describes itself."""


class VolumeAttachmentSpec(View, frozen=True, kw_only=True):
    """Spec of an attachment."""

    attacher: str = ""
    """The CSI driver."""
    node_name: str = ""
    source: VolumeAttachmentSource = VolumeAttachmentSource()


class VolumeAttachment(View, frozen=True, kw_only=True):
    """A volume at a node, from before it is attached until it is detached."""

    metadata: ObjectMeta = ObjectMeta()
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()


class CSIDriverSpec(View, frozen=True, kw_only=True):
    """Spec of a CSI driver."""

    storage_capacity: bool | None = None
    """Whether pods that wait for a volume of its making have to heed its published capacity."""


class CSIDriver(View, frozen=True, kw_only=True):
    """A CSI driver; named as classes name their provisioner."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CSIDriverSpec = CSIDriverSpec()


class CSIStorageCapacity(View, frozen=True, kw_only=True):
    """Room for volumes of one class on the nodes of one topology segment."""

    metadata: ObjectMeta = ObjectMeta()
    node_topology: LabelSelector | None = None
    """Nodes that can reach the segment; absent: none of the cluster."""
    storage_class_name: str = ""
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None
    """The largest single volume; where it is given it says more than the capacity."""
