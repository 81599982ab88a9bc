"""Cluster Autoscaler's ProvisioningRequest for tests: its definition, and its conditions."""

from typing import Any

from shared.api import kinds

_OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_STRING = {"type": "string"}


def definition() -> dict[str, Any]:
    """Return a CustomResourceDefinition with the fields of the published API."""
    pod_set = {
        "type": "object",
        "required": ["count", "podTemplateRef"],
        "properties": {
            "count": {"type": "integer", "format": "int32", "minimum": 1},
            "podTemplateRef": {"type": "object", "properties": {"name": _STRING}},
        },
    }
    immutable = [{"rule": "self == oldSelf", "message": "Value is immutable"}]
    spec = {
        "type": "object",
        "required": ["podSets", "provisioningClassName"],
        "properties": {
            "podSets": {
                "type": "array",
                "minItems": 1,
                "maxItems": 32,
                "items": pod_set,
                "x-kubernetes-validations": immutable,
            },
            "provisioningClassName": {
                **_STRING,
                "maxLength": 253,
                "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
            },
            "parameters": {"type": "object", "additionalProperties": _STRING},
        },
    }
    schema = {"type": "object", "properties": {"spec": spec, "status": _OPEN}, "required": ["spec"]}
    kind = kinds.PROVISIONINGREQUEST
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{kind.plural}.{kind.group}",
            "annotations": {
                "api-approved.kubernetes.io": "https://github.com/kubernetes/autoscaler/pull/5848"
            },
        },
        "spec": {
            "group": kind.group,
            "scope": "Namespaced",
            "names": {
                "kind": kind.kind,
                "listKind": f"{kind.kind}List",
                "plural": kind.plural,
                "singular": "provisioningrequest",
                "shortNames": ["provreq", "provreqs"],
            },
            "versions": [
                {
                    "name": kind.version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def condition(
    kind: str, reason: str = "", message: str = "", at: str = "2025-03-11T10:00:30Z"
) -> dict[str, str]:
    """Return a true condition of a request."""
    return {
        "type": kind,
        "status": "True",
        "reason": reason or kind,
        "message": message,
        "lastTransitionTime": at,
    }
