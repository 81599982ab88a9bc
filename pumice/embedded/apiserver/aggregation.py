"""Aggregation: groups that another server serves, by their APIServices.

The core decides which requests belong to an extension API server (`ProxiedRequest`) and answers
discovery for its groups; `front_proxy` forwards the requests and checks each server's availability.
A Service resolves to its external name: there is no pod network here.
"""

import base64
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from pumice.embedded.apiserver.api_state import ApiState
from pumice.embedded.apiserver.replies import ApiReply, ApiRequest, Object

APISERVICES: Final = "apiservices.apiregistration.k8s.io"
SERVICES: Final = "services."
CONFIGMAPS: Final = "configmaps."
AUTHENTICATION: Final = "extension-apiserver-authentication"
_OF_GROUP: Final = 4
"""Parts of a path that names a group's version: "", apis, group, version."""


class ExtensionServer(msgspec.Struct, frozen=True, kw_only=True):
    """The extension API server of one group version, and how its certificate is checked."""

    name: str
    """Name of the APIService."""
    group: str
    version: str
    url: str
    """Empty when the APIService leads to no address; `error` says why."""
    server_name: str
    authorities: bytes
    error: str = ""

    @property
    def root(self) -> str:
        """Return the path of the group's version."""
        return f"/apis/{self.group}/{self.version}"


class ProxiedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request that an extension API server serves."""

    server: ExtensionServer
    request: ApiRequest


class Aggregation:
    """The APIServices, and the availability of their servers."""

    def __init__(self, api: ApiState) -> None:
        self._api = api
        self._resources: dict[str, Object] = {}
        """By APIService: the APIResourceList of the server behind it."""

    def extension_servers(self) -> Iterator[ExtensionServer]:
        """Yield the servers of all APIServices that name one."""
        for obj in self._api.objects(APISERVICES):
            if obj["spec"].get("service"):
                yield self._server(obj)

    def route(self, request: ApiRequest) -> ProxiedRequest | ApiReply | None:
        """Return the proxied request, 503 if its server is unavailable, None to serve it here."""
        server = self._server_of(request.path)
        if server is None:
            return None
        if not self._is_available(server):
            text = {"Content-Type": "text/plain; charset=utf-8"}
            return ApiReply(status=503, headers=text, body=b"service unavailable\n")
        return ProxiedRequest(server=server, request=request)

    def groups(self) -> dict[str, list[str]]:
        """Return the versions of each group that is served elsewhere."""
        found: dict[str, list[str]] = {}
        for server in self.extension_servers():
            found.setdefault(server.group, []).append(server.version)
        return found

    def discovered(self, group: str, version: str) -> Object | None:
        """Return the resources that an extension server listed, None before its first reply."""
        return self._resources.get(f"{version}.{group}")

    def openapi(self) -> Iterator[str]:
        """Yield the paths of OpenAPI documents that extension servers have."""
        for server in self.extension_servers():
            if self._is_available(server):
                yield server.root.removeprefix("/")

    def note(self, server: ExtensionServer, *, error: str, resources: Object | None = None) -> None:
        """Take the result of an availability check into the condition of the APIService."""
        if resources is not None:
            self._resources[server.name] = resources
        obj = self._api.find(APISERVICES, "", server.name)
        if obj is None:
            self._resources.pop(server.name, None)
            return
        conditions: list[Object] = (obj.get("status") or {}).get("conditions") or []
        before = conditions[0] if conditions else {}
        state = {
            "type": "Available",
            "status": "False" if error else "True",
            "reason": "FailedDiscoveryCheck" if error else "Passed",
            "message": error or "all checks passed",
        }
        if all(before.get(key) == value for key, value in state.items()):
            return
        changed = before.get("status") != state["status"]
        stamp = self._api.timestamp() if changed else before["lastTransitionTime"]
        status = {"conditions": [{"lastTransitionTime": stamp, **state}]}
        self._api.write(APISERVICES, {**obj, "status": status})

    def trust(self, data: Mapping[str, str]) -> None:
        """Write the ConfigMap by which extension servers authenticate this one."""
        namespace, name = "kube-system", AUTHENTICATION
        found = self._api.find(CONFIGMAPS, namespace, name)
        if found is None:
            self._api.add(CONFIGMAPS, namespace, name, data=dict(data))
        elif found.get("data") != dict(data):
            self._api.write(CONFIGMAPS, {**found, "data": dict(data)})

    def _is_available(self, server: ExtensionServer) -> bool:
        obj = self._api.find(APISERVICES, "", server.name) or {}
        conditions = (obj.get("status") or {}).get("conditions") or ()
        return any(c["type"] == "Available" and c["status"] == "True" for c in conditions)

    def _server_of(self, path: str) -> ExtensionServer | None:
        """Return the server of a path of objects or of an OpenAPI document."""
        path = path.removeprefix("/openapi/v3")
        parts = path.split("/")
        if len(parts) < _OF_GROUP or parts[1] != "apis":
            return None
        obj = self._api.find(APISERVICES, "", f"{parts[3]}.{parts[2]}")
        if obj is None or not obj["spec"].get("service"):
            return None
        return self._server(obj)

    def _server(self, obj: Object) -> ExtensionServer:
        spec = obj["spec"]
        named: Mapping[str, Any] = spec["service"]
        namespace, name = named.get("namespace", ""), named.get("name", "")
        host, error = self._host(namespace, name)
        return ExtensionServer(
            name=obj["metadata"]["name"],
            group=spec["group"],
            version=spec["version"],
            url=f"https://{host}:{named.get('port') or 443}" if host else "",
            server_name=f"{name}.{namespace}.svc",
            authorities=base64.b64decode(spec.get("caBundle") or ""),
            error=error,
        )

    def _host(self, namespace: str, name: str) -> tuple[str, str]:
        """Return the host that a Service leads to, or why there is none."""
        service = self._api.find(SERVICES, namespace, name)
        if service is None:
            return "", f"service/{name} in {namespace!r} is not present"
        spec = service["spec"]
        if spec.get("type") != "ExternalName":
            return "", f"service/{name} in {namespace!r} has no external name: there is no network"
        return str(spec["externalName"]), ""
