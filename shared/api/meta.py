"""Object metadata: the part that every Kubernetes object has."""

from collections.abc import Mapping
from typing import Annotated, Final

from msgspec import field

from shared.api.base import NAME_MAX, View, doc

_JOB_GROUP: Final = "batch.volcano.sh/"


class OwnerReference(View, frozen=True, kw_only=True):
    """Reference to an owner; the garbage collector deletes the object with its owner."""

    api_version: Annotated[str, doc("API version of the referent.")]
    kind: Annotated[str, doc("Kind of the referent.")]
    name: Annotated[str, doc("Name of the referent.")]
    uid: Annotated[str, doc("UID of the referent.")]
    controller: Annotated[
        bool | None, doc("True when the referent is the managing controller.")
    ] = None
    block_owner_deletion: Annotated[
        bool | None,
        doc("True when foreground deletion of the referent waits for this object."),
    ] = None


class ObjectMeta(View, frozen=True, kw_only=True):
    """Identity, labels and life span of an object."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    """Empty for a cluster-scoped object."""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    """Set once deletion was requested; the object exists until its grace and finalizers end."""
    deletion_grace_period_seconds: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Return `namespace/name`, or `name` for a cluster-scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def controller(self) -> OwnerReference | None:
        """Return the owner that manages this object, if there is one."""
        for ref in self.owner_references:  # evaluated for each fact: a generator would cost more
            if ref.controller:
                return ref
        return None

    def is_controlled_by(self, uid: str) -> bool:
        """Return whether the object with this uid manages this one."""
        owner = self.controller
        return owner is not None and owner.uid == uid

    @property
    def owner_job(self) -> str:
        """Return the key of the Job (batch.volcano.sh) that manages this object, or "".

        The API server stores any name of an owner; one that no object can have is left out, since
        it would not fit into a message.
        """
        owner = self.controller
        if owner is None or owner.kind != "Job" or not owner.api_version.startswith(_JOB_GROUP):
            return ""
        if len(owner.name) > NAME_MAX:
            return ""
        return f"{self.namespace}/{owner.name}"
