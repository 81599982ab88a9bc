"""The catalogue of kinds: their paths on the API server, and the types to decode them.

`KINDS` maps the token that bus subjects and facts use to the kind; a token is the plural, or an
alias where two kinds that the services know have the same. Adding a kind is one constant; a kind
that is read has a view as its `type`.
"""

from functools import cache
from typing import Any, Final

import msgspec

from shared.api import (
    autoscaling,
    batch,
    colocation,
    core,
    cron,
    flow,
    native_groups,
    nodeinfo,
    resource,
    scheduling,
    storage,
    topology,
    workloads,
)
from shared.api.base import View, without_nulls
from shared.api.meta import ObjectMeta, OwnerReference

ViewType = type[View]


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of object."""

    kind: str
    group: str = ""
    version: str = "v1"
    plural: str
    namespaced: bool = True
    alias: str = ""
    """Token of a kind whose plural another one has."""
    type: ViewType | None = None
    """View that its objects are read with; None for kinds that are only written."""

    @property
    def token(self) -> str:
        """Return the name of the kind in subjects, facts and `KINDS`."""
        return self.alias or self.plural

    @property
    def api_version(self) -> str:
        """Return `group/version`, or the version alone for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the path of the collection, one object or one of its subresources.

        An empty namespace of a namespaced kind means all namespaces. The arguments are names that
        the API server gave out or checks; they are put in as they are.
        """
        root = f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"
        parts = [root]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/".join(parts)

    def controller_reference(
        self, owner: ObjectMeta, *, blocks_deletion: bool = True
    ) -> OwnerReference:
        """Return the reference to an object of this kind for what its controller makes for it.

        Where OwnerReferencesPermissionEnforcement is on, `blocks_deletion` takes the right to
        update `finalizers` of this kind.
        """
        return OwnerReference(
            api_version=self.api_version,
            kind=self.kind,
            name=owner.name,
            uid=owner.uid,
            controller=True,
            block_owner_deletion=True if blocks_deletion else None,
        )


POD: Final = Kind(kind="Pod", plural="pods", type=core.Pod)
NODE: Final = Kind(kind="Node", plural="nodes", namespaced=False, type=core.Node)
NAMESPACE: Final = Kind(
    kind="Namespace", plural="namespaces", namespaced=False, type=core.Namespace
)
RESOURCEQUOTA: Final = Kind(kind="ResourceQuota", plural="resourcequotas", type=core.ResourceQuota)
PVC: Final = Kind(
    kind="PersistentVolumeClaim",
    plural="persistentvolumeclaims",
    type=storage.PersistentVolumeClaim,
)
PV: Final = Kind(
    kind="PersistentVolume",
    plural="persistentvolumes",
    namespaced=False,
    type=storage.PersistentVolume,
)
STORAGECLASS: Final = Kind(
    kind="StorageClass",
    group="storage.k8s.io",
    plural="storageclasses",
    namespaced=False,
    type=storage.StorageClass,
)
CSINODE: Final = Kind(
    kind="CSINode",
    group="storage.k8s.io",
    plural="csinodes",
    namespaced=False,
    type=storage.CSINode,
)
VOLUMEATTACHMENT: Final = Kind(
    kind="VolumeAttachment",
    group="storage.k8s.io",
    plural="volumeattachments",
    namespaced=False,
    type=storage.VolumeAttachment,
)
CSIDRIVER: Final = Kind(
    kind="CSIDriver",
    group="storage.k8s.io",
    plural="csidrivers",
    namespaced=False,
    type=storage.CSIDriver,
)
CSISTORAGECAPACITY: Final = Kind(
    kind="CSIStorageCapacity",
    group="storage.k8s.io",
    plural="csistoragecapacities",
    type=storage.CSIStorageCapacity,
)
RESOURCECLAIM: Final = Kind(
    kind="ResourceClaim",
    group="resource.k8s.io",
    plural="resourceclaims",
    type=resource.ResourceClaim,
)
DEVICECLASS: Final = Kind(
    kind="DeviceClass",
    group="resource.k8s.io",
    plural="deviceclasses",
    namespaced=False,
    type=resource.DeviceClass,
)
RESOURCESLICE: Final = Kind(
    kind="ResourceSlice",
    group="resource.k8s.io",
    plural="resourceslices",
    namespaced=False,
    type=resource.ResourceSlice,
)
DEVICETAINTRULE: Final = Kind(
    kind="DeviceTaintRule",
    group="resource.k8s.io",
    plural="devicetaintrules",
    namespaced=False,
    type=resource.DeviceTaintRule,
)
"""Taints of devices beside those in slices; API servers before 1.37 do not serve `v1` of it."""
PDB: Final = Kind(
    kind="PodDisruptionBudget",
    group="policy",
    plural="poddisruptionbudgets",
    type=workloads.PodDisruptionBudget,
)
PRIORITYCLASS: Final = Kind(
    kind="PriorityClass",
    group="scheduling.k8s.io",
    plural="priorityclasses",
    namespaced=False,
    type=scheduling.PriorityClass,
)
JOB: Final = Kind(
    kind="Job", group="batch.volcano.sh", version="v1alpha1", plural="jobs", type=batch.Job
)
COMMAND: Final = Kind(
    kind="Command",
    group="bus.volcano.sh",
    version="v1alpha1",
    plural="commands",
    type=batch.Command,
)
PODGROUP: Final = Kind(
    kind="PodGroup",
    group="scheduling.volcano.sh",
    version="v1beta1",
    plural="podgroups",
    type=scheduling.PodGroup,
)
QUEUE: Final = Kind(
    kind="Queue",
    group="scheduling.volcano.sh",
    version="v1beta1",
    plural="queues",
    namespaced=False,
    type=scheduling.Queue,
)
NATIVEPODGROUP: Final = Kind(
    kind="PodGroup",
    group="scheduling.k8s.io",
    version="v1beta1",
    plural="podgroups",
    alias="nativepodgroups",
    type=native_groups.NativePodGroup,
)
"""Kubernetes' own PodGroups, which API servers before 1.37 do not serve."""
HYPERNODE: Final = Kind(
    kind="HyperNode",
    group="topology.volcano.sh",
    version="v1alpha1",
    plural="hypernodes",
    namespaced=False,
    type=topology.HyperNode,
)
NODESHARD: Final = Kind(
    kind="NodeShard",
    group="shard.volcano.sh",
    version="v1alpha1",
    plural="nodeshards",
    namespaced=False,
    type=scheduling.NodeShard,
)
CRONJOB: Final = Kind(
    kind="CronJob",
    group="batch.volcano.sh",
    version="v1alpha1",
    plural="cronjobs",
    type=cron.CronJob,
)
JOBFLOW: Final = Kind(
    kind="JobFlow",
    group="flow.volcano.sh",
    version="v1alpha1",
    plural="jobflows",
    type=flow.JobFlow,
)
JOBTEMPLATE: Final = Kind(
    kind="JobTemplate",
    group="flow.volcano.sh",
    version="v1alpha1",
    plural="jobtemplates",
    type=flow.JobTemplate,
)
NUMATOPOLOGY: Final = Kind(
    kind="Numatopology",
    group="nodeinfo.volcano.sh",
    version="v1alpha1",
    plural="numatopologies",
    namespaced=False,
    type=nodeinfo.Numatopology,
)
COLOCATIONCONFIGURATION: Final = Kind(
    kind="ColocationConfiguration",
    group="config.volcano.sh",
    version="v1alpha1",
    plural="colocationconfigurations",
    type=colocation.ColocationConfiguration,
)
PROVISIONINGREQUEST: Final = Kind(
    kind="ProvisioningRequest",
    group="autoscaling.x-k8s.io",
    plural="provisioningrequests",
    type=autoscaling.ProvisioningRequest,
)
NPUINFO: Final = Kind(kind="ConfigMap", plural="configmaps", alias="npuinfos", type=core.ConfigMap)
"""ConfigMaps of MindCluster, which tell of nodes' NPUs (DV3)."""
REPLICASET: Final = Kind(
    kind="ReplicaSet", group="apps", plural="replicasets", type=workloads.Workload
)
STATEFULSET: Final = Kind(
    kind="StatefulSet", group="apps", plural="statefulsets", type=workloads.Workload
)
DAEMONSET: Final = Kind(
    kind="DaemonSet", group="apps", plural="daemonsets", type=workloads.Workload
)
BATCHJOB: Final = Kind(
    kind="Job", group="batch", plural="jobs", alias="batchjobs", type=workloads.Workload
)
WORKLOADS: Final = (REPLICASET, STATEFULSET, DAEMONSET, BATCHJOB)
"""Owners of pods that Kubernetes' own controllers make."""

KINDS: Final[dict[str, Kind]] = {
    kind.token: kind
    for kind in (
        POD,
        NODE,
        NAMESPACE,
        RESOURCEQUOTA,
        PVC,
        PV,
        STORAGECLASS,
        CSINODE,
        VOLUMEATTACHMENT,
        CSIDRIVER,
        CSISTORAGECAPACITY,
        RESOURCECLAIM,
        DEVICECLASS,
        RESOURCESLICE,
        DEVICETAINTRULE,
        PDB,
        PRIORITYCLASS,
        JOB,
        COMMAND,
        PODGROUP,
        NATIVEPODGROUP,
        QUEUE,
        HYPERNODE,
        NUMATOPOLOGY,
        NPUINFO,
        NODESHARD,
        CRONJOB,
        JOBFLOW,
        JOBTEMPLATE,
        PROVISIONINGREQUEST,
        *WORKLOADS,
    )
}
"""Kinds that the cache publishes and others read, by token."""

PODTEMPLATE: Final = Kind(kind="PodTemplate", plural="podtemplates")
SERVICE: Final = Kind(kind="Service", plural="services")
CONFIGMAP: Final = Kind(kind="ConfigMap", plural="configmaps")
SECRET: Final = Kind(kind="Secret", plural="secrets")
SERVICEACCOUNT: Final = Kind(kind="ServiceAccount", plural="serviceaccounts")
EVENT: Final = Kind(kind="Event", plural="events")
NETWORKPOLICY: Final = Kind(
    kind="NetworkPolicy", group="networking.k8s.io", plural="networkpolicies"
)
_ADMISSION: Final = "admissionregistration.k8s.io"
MUTATING_WEBHOOKS: Final = Kind(
    kind="MutatingWebhookConfiguration",
    group=_ADMISSION,
    plural="mutatingwebhookconfigurations",
    namespaced=False,
)
VALIDATING_WEBHOOKS: Final = Kind(
    kind="ValidatingWebhookConfiguration",
    group=_ADMISSION,
    plural="validatingwebhookconfigurations",
    namespaced=False,
)
ADMISSION_POLICY: Final = Kind(
    kind="ValidatingAdmissionPolicy",
    group=_ADMISSION,
    plural="validatingadmissionpolicies",
    namespaced=False,
)
ADMISSION_POLICY_BINDING: Final = Kind(
    kind="ValidatingAdmissionPolicyBinding",
    group=_ADMISSION,
    plural="validatingadmissionpolicybindings",
    namespaced=False,
)
APISERVICE: Final = Kind(
    kind="APIService", group="apiregistration.k8s.io", plural="apiservices", namespaced=False
)
ACCESS_REVIEW: Final = Kind(
    kind="SubjectAccessReview",
    group="authorization.k8s.io",
    plural="subjectaccessreviews",
    namespaced=False,
)
LEASE: Final = Kind(kind="Lease", group="coordination.k8s.io", plural="leases")
CRD: Final = Kind(
    kind="CustomResourceDefinition",
    group="apiextensions.k8s.io",
    plural="customresourcedefinitions",
    namespaced=False,
)


@cache
def _decoder(view: ViewType) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(view)


def decode(kind: Kind, data: bytes | msgspec.Raw) -> Any:  # noqa: ANN401 - the view of `kind`
    """Return the object in `data` as `kind.type`.

    Go writes an empty list or map as `null` here and there (a CSINode without drivers, times of
    other controllers); such members count as absent. They are looked for only when plain decoding
    fails, so they cost the others nothing.

    Raises `msgspec.ValidationError`, which `shared.api.base.describe_decode_error` puts into words,
    and `msgspec.DecodeError` for what is no JSON at all.
    """
    assert kind.type is not None, f"{kind.kind} is only written"
    decoder = _decoder(kind.type)
    try:
        return decoder.decode(data)
    except msgspec.ValidationError:
        untyped = msgspec.json.decode(data)
        without = without_nulls(untyped)
        if without == untyped:
            raise
        return decoder.decode(msgspec.json.encode(without))


def encode(kind: Kind, obj: View) -> bytes:
    """Return `obj` as JSON with `apiVersion` and `kind`, as a create wants it."""
    head = msgspec.json.encode({"apiVersion": kind.api_version, "kind": kind.kind})
    body = msgspec.json.encode(obj)
    return head if body == b"{}" else head[:-1] + b"," + body[1:]
