"""Writes `pumice/embedded/apiserver/builtin.json`: the built-in kinds of the embedded API server.

`python -m tools.write_api_schemas KUBECONFIG` asks a real API server (of the pinned version) for
its discovery and OpenAPI documents and keeps of them what the embedded one serves: names, scopes,
subresources, and the form of each kind without its prose. Run it when the pinned version changes.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

from tests.support.api import Api, connect

TARGET: Final = Path(__file__).parents[1] / "pumice/embedded/apiserver/builtin.json"
SERVED: Final = {
    "": (
        "pods nodes namespaces resourcequotas persistentvolumeclaims persistentvolumes services "
        "configmaps secrets serviceaccounts events limitranges podtemplates"
    ),
    "apps": "replicasets statefulsets daemonsets",
    "batch": "jobs",
    "policy": "poddisruptionbudgets",
    "storage.k8s.io": "storageclasses csinodes",
    "scheduling.k8s.io": "priorityclasses",
    "networking.k8s.io": "networkpolicies",
    "coordination.k8s.io": "leases",
    "rbac.authorization.k8s.io": "roles rolebindings clusterroles clusterrolebindings",
    "apiextensions.k8s.io": "customresourcedefinitions",
    "apiregistration.k8s.io": "apiservices",
    "admissionregistration.k8s.io": "mutatingwebhookconfigurations validatingwebhookconfigurations",
}
"""Group → plurals, all of version v1."""
ALSO: Final = {"": ("io.k8s.api.core.v1.Binding", "io.k8s.api.policy.v1.Eviction")}
PROSE: Final = {"description", "x-kubernetes-unions"}


async def main(kubeconfig: str) -> None:
    """Ask the server and write the file."""
    schemas: dict[str, Any] = {}
    resources = []
    async with connect(kubeconfig) as api:
        version = await api.request("GET", "/version")
        for group, plurals in SERVED.items():
            root = f"apis/{group}/v1" if group else "api/v1"
            listed = (await api.request("GET", f"/{root}"))["resources"]
            document = await api.request("GET", f"/openapi/v3/{root}")
            known = document["components"]["schemas"]
            for plural in plurals.split():
                resource = described(group, plural, listed, known)
                resources.append(resource)
                keep(resource["schema"], known, schemas)
            for name in ALSO.get(group, ()):
                keep(name, known, schemas)
        elsewhere = [entry async for entry in unserved(api)]
    written = {
        "version": version,
        "resources": resources,
        "elsewhere": elsewhere,
        "schemas": schemas,
    }
    TARGET.write_text(json.dumps(written, separators=(",", ":"), sort_keys=True) + "\n", "utf-8")


async def unserved(api: Api) -> AsyncIterator[dict[str, Any]]:
    """Yield the kinds that the embedded server names and does not serve."""
    groups = (await api.request("GET", "/apis"))["groups"]
    places = [("", "v1", "/api/v1")] + [
        (group["name"], version, f"/apis/{group['name']}/{version}")
        for group in groups
        if (version := group["preferredVersion"]["version"]) in ("v1", "v2")
    ]
    for group, version, place in places:
        for entry in (await api.request("GET", place))["resources"]:
            if "/" in entry["name"] or entry["name"] in SERVED.get(group, "").split():
                continue
            yield {
                "group": group,
                "version": version,
                "kind": entry["kind"],
                "plural": entry["name"],
                "singular": entry["singularName"],
                "short": entry.get("shortNames", []),
                "namespaced": entry["namespaced"],
            }


def described(
    group: str, plural: str, listed: list[dict[str, Any]], known: dict[str, Any]
) -> dict[str, Any]:
    """Return what is kept of one resource."""
    own = next(entry for entry in listed if entry["name"] == plural)
    head = {"group": group, "version": "v1", "kind": own["kind"]}
    schema = next(
        name for name, s in known.items() if head in s.get("x-kubernetes-group-version-kind", ())
    )
    subresources = [entry["name"] for entry in listed if entry["name"].startswith(f"{plural}/")]
    return {
        **head,
        "plural": plural,
        "singular": own["singularName"],
        "short": own.get("shortNames", []),
        "categories": own.get("categories", []),
        "namespaced": own["namespaced"],
        "subresources": [name.partition("/")[2] for name in subresources],
        "schema": schema,
    }


def keep(name: str, known: dict[str, Any], kept: dict[str, Any]) -> None:
    """Copy a schema and all that it refers to."""
    if name in kept:
        return
    kept[name] = plain(known[name])
    for reference in references(known[name]):
        keep(reference, known, kept)


def plain(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return a schema without its prose; a property may be called like a part of it."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    rest = {key: item for key, item in value.items() if key not in PROSE}
    properties = rest.pop("properties", None)
    kept = {key: plain(item) for key, item in rest.items()}
    if properties is not None:
        kept["properties"] = {key: plain(item) for key, item in properties.items()}
    alone = kept.get("allOf")
    if isinstance(alone, list) and len(alone) == 1 and "$ref" in alone[0]:
        kept.pop("allOf")
        kept["$ref"] = alone[0]["$ref"]
    return kept


def references(value: Any) -> list[str]:  # noqa: ANN401 - any JSON
    """Return the names of the schemas that one refers to."""
    if isinstance(value, list):
        return [name for item in value for name in references(item)]
    if not isinstance(value, dict):
        return []
    own = value.get("$ref")
    found = [own.rpartition("/")[2]] if isinstance(own, str) else []
    return found + [name for item in value.values() for name in references(item)]


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
