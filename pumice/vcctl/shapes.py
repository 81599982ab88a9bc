"""The types of JobFlows, JobTemplates and pods, as far as their documents show them. Pure.

Of each type: its fields in the order of Kubernetes' API, and which of them hold a type of their
own. A field that is in no type here comes after the others, by name, as it is.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from shared.model.quantity import BadQuantity, canonical

Object = Mapping[str, Any]

_META: Final = (
    "name generateName namespace selfLink uid resourceVersion generation creationTimestamp "
    "deletionTimestamp deletionGracePeriodSeconds labels annotations ownerReferences finalizers "
    "managedFields"
)
_ORDERS: Final = {
    "flow": "kind apiVersion metadata:meta spec:flowspec status:flowstatus",
    "template": "kind apiVersion metadata:meta spec:jobspec status",
    "meta": _META.replace("ownerReferences", "ownerReferences:owner"),
    "owner": "apiVersion kind name uid controller blockOwnerDeletion",
    "flowspec": "flows:flow1 jobRetainPolicy",
    "flow1": "name dependsOn:depends patch",
    "depends": "targets probe:probes",
    "probes": "httpGetList:httpcheck tcpSocketList:tcpcheck taskStatusList:taskcheck",
    "httpcheck": "taskName path port httpHeader",
    "tcpcheck": "taskName port",
    "taskcheck": "taskName phase",
    "job": "kind apiVersion metadata:meta spec:jobspec status",
    "flowstatus": "pendingJobs runningJobs failedJobs completedJobs terminatedJobs unKnowJobs "
    "jobStatusList:jobstatus conditions state",
    "jobstatus": "name state startTimestamp endTimestamp restartCount runningHistories:history",
    "history": "startTimestamp endTimestamp state",
    "jobspec": "schedulerName minAvailable volumes:jobvolume tasks:task policies:policy plugins "
    "runningEstimate queue maxRetry ttlSecondsAfterFinished priorityClassName minSuccess "
    "networkTopology:network",
    "network": "mode highestTierAllowed highestTierName",
    "jobvolume": "mountPath volumeClaimName volumeClaim:claimspec",
    "claimspec": "accessModes selector resources:resources volumeName storageClassName volumeMode "
    "dataSource dataSourceRef volumeAttributesClassName",
    "task": "name replicas minAvailable template:podtemplate policies:policy topologyPolicy "
    "maxRetry dependsOn:after partitionPolicy",
    "after": "name iteration",
    "policy": "action event events exitCode timeout",
    "podtemplate": "metadata:meta spec:podspec",
    "podspec": "volumes:volume initContainers:container containers:container ephemeralContainers "
    "restartPolicy terminationGracePeriodSeconds activeDeadlineSeconds dnsPolicy nodeSelector "
    "serviceAccountName serviceAccount automountServiceAccountToken nodeName hostNetwork hostPID "
    "hostIPC shareProcessNamespace securityContext:podsecurity imagePullSecrets hostname subdomain "
    "affinity schedulerName tolerations:toleration hostAliases priorityClassName priority "
    "dnsConfig readinessGates runtimeClassName enableServiceLinks preemptionPolicy overhead "
    "topologySpreadConstraints setHostnameAsFQDN os hostUsers schedulingGates resourceClaims "
    "resources:resources",
    "container": "name image command args workingDir ports:port envFrom:envfrom env:env "
    "resources:resources resizePolicy restartPolicy volumeMounts:mount volumeDevices "
    "livenessProbe:probe readinessProbe:probe startupProbe:probe lifecycle terminationMessagePath "
    "terminationMessagePolicy imagePullPolicy securityContext:security stdin stdinOnce tty",
    "port": "name hostPort containerPort protocol hostIP",
    "envfrom": "prefix configMapRef secretRef",
    "env": "name value valueFrom:envsource",
    "envsource": "fieldRef:fieldref resourceFieldRef configMapKeyRef:keyref secretKeyRef:keyref",
    "fieldref": "apiVersion fieldPath",
    "keyref": "name key optional",
    "resources": "limits:amounts requests:amounts claims",
    "mount": "name readOnly recursiveReadOnly mountPath subPath mountPropagation subPathExpr",
    "probe": "exec httpGet:httpget tcpSocket grpc initialDelaySeconds timeoutSeconds "
    "periodSeconds successThreshold failureThreshold terminationGracePeriodSeconds",
    "httpget": "path port host scheme httpHeaders",
    "security": "capabilities privileged seLinuxOptions windowsOptions runAsUser runAsGroup "
    "runAsNonRoot readOnlyRootFilesystem allowPrivilegeEscalation procMount seccompProfile",
    "podsecurity": "seLinuxOptions windowsOptions runAsUser runAsGroup runAsNonRoot "
    "supplementalGroups fsGroup sysctls fsGroupChangePolicy seccompProfile",
    "toleration": "key operator value effect tolerationSeconds",
    "volume": "name hostPath:hostpath emptyDir:emptydir secret:secret "
    "persistentVolumeClaim:claim configMap:configmap",
    "hostpath": "path type",
    "emptydir": "medium sizeLimit",
    "secret": "secretName items:item defaultMode optional",
    "claim": "claimName readOnly",
    "configmap": "name items:item defaultMode optional",
    "item": "key path mode",
}
_FIELDS: Final = {
    name: [tuple(word.partition(":")[::2]) for word in order.split()]
    for name, order in _ORDERS.items()
}
_KEPT_WHEN_ZERO: Final = frozenset(
    {
        "activeDeadlineSeconds",
        "allowPrivilegeEscalation",
        "automountServiceAccountToken",
        "blockOwnerDeletion",
        "containerPort",
        "controller",
        "defaultMode",
        "deletionGracePeriodSeconds",
        "emptyDir",
        "enableServiceLinks",
        "exitCode",
        "fieldPath",
        "fsGroup",
        "highestTierAllowed",
        "hostUsers",
        "key",
        "metadata",
        "minSuccess",
        "mode",
        "mountPath",
        "name",
        "optional",
        "path",
        "port",
        "priority",
        "privileged",
        "readOnlyRootFilesystem",
        "resources",
        "runAsGroup",
        "runAsNonRoot",
        "runAsUser",
        "shareProcessNamespace",
        "state",
        "storageClassName",
        "terminationGracePeriodSeconds",
        "tolerationSeconds",
        "ttlSecondsAfterFinished",
        "type",
    }
)
"""Fields of known types that are pointers or required: they stay when they are 0, "" or empty."""
_ALWAYS: Final[Mapping[str, Callable[[], Any]]] = {
    "container.resources": dict,
    "podtemplate.metadata": dict,
    "task.template": lambda: {"metadata": {}, "spec": {"containers": None}},
    "flowstatus.state": dict,
    "flow.status": lambda: {"state": {}},
    "template.status": dict,
    "volume.name": str,
}
_KINDS: Final = {"Job": "job", "JobFlow": "flow", "JobTemplate": "template"}
_AMOUNTS: Final = "amounts"


def shaped(item: Object, kind: str) -> dict[str, Any]:
    """Return an object as the type of its kind holds it, with the fields in their order."""
    done: dict[str, Any] = _shape(item, _KINDS[kind])
    return done


def _shape(value: Any, name: str) -> Any:  # noqa: ANN401 - a value of JSON
    if isinstance(value, list):
        return [_shape(inner, name) for inner in value]
    if not isinstance(value, Mapping):
        return value
    if not name:
        return {field: _shape(inner, "") for field, inner in sorted(value.items())}
    if name == _AMOUNTS:
        return {resource: _amount(amount) for resource, amount in sorted(value.items())}
    known = [field for field, _ in _FIELDS[name]]
    rest = sorted(field for field in value if field not in known)
    found = {}
    for field, inner in [*_FIELDS[name], *((field, "") for field in rest)]:
        always = _ALWAYS.get(f"{name}.{field}")
        current = value.get(field)
        if current is None and always is not None:
            current = always()
        if current is not None and (always is not None or _stays(name, field, current)):
            found[field] = _shape(current, inner)
    return found


def _stays(name: str, field: str, current: object) -> bool:
    zero = current in ("", 0, [], {}) and not isinstance(current, float)
    return not zero or field in _KEPT_WHEN_ZERO or (name, field) == ("task", "minAvailable")


def _amount(amount: str | float) -> str:
    try:
        return canonical(amount)
    except BadQuantity:
        return str(amount)
