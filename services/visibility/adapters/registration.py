"""Our place in the cluster's API: the APIService, and outside of the cluster a Service as well.

In a cluster the manifests bring the APIService, so that it goes with them: an APIService without
a server behind it would stop the deletion of namespaces. Here it only gets our authority. Outside
of the cluster both objects are ours: made when we start, deleted when we end.
"""

import base64
from typing import Final

import msgspec

from shared.api.base import Json
from shared.api.kinds import APISERVICE, NAMESPACE, SERVICE, Kind
from shared.api.visibility import GROUP, VERSION
from shared.kube.client import Kube
from shared.runtime.clock import Clock
from shared.runtime.errors import Conflict, Gone, Retryable
from shared.runtime.logs import Logger

NAME: Final = f"{VERSION}.{GROUP}"
_LABELS: Final = {"app.kubernetes.io/part-of": "pumice"}
_REACHED_S: Final = 30.0
"""Time within which the API server must reach us outside of its cluster, at first and again."""
_RETRY_S: Final = 60.0
"""Time for which the objects are away after the API server, that had reached us, did so no more."""


class VisibilityAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where the API server finds us."""

    namespace: str
    service: str
    port: int
    external_name: str = ""

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return the names that our certificate must be for."""
        name = f"{self.service}.{self.namespace}.svc"
        return (name, f"{name}.cluster.local", f"{self.service}.{self.namespace}")


class _Meta(msgspec.Struct, frozen=True):
    uid: str = ""


class _Condition(msgspec.Struct, frozen=True):
    type: str
    status: str
    message: str = ""


class _Status(msgspec.Struct, frozen=True):
    conditions: tuple[_Condition, ...] = ()


class _Found(msgspec.Struct, frozen=True):
    metadata: _Meta
    spec: Json = {}
    status: _Status = _Status()

    @property
    def place(self) -> Json:
        """Return the Service that an APIService leads to."""
        place: Json = self.spec.get("service") or {}
        return place


class VisibilityRegistration:
    """Keeps the objects."""

    def __init__(
        self, kube: Kube, address: VisibilityAddress, *, clock: Clock, log: Logger
    ) -> None:
        self._kube = kube
        self._address = address
        self._clock = clock
        self._log = log
        self._away_since_s: float | None = None
        """Time of the first of the consecutive checks in which the API server did not reach us."""
        self._was_reached = False
        self._withdrawn_s: float | None = None
        self._has_left = False

    async def ensure(self, bundle: str) -> None:
        """Bring the objects to what they shall be. Raises the errors of `Kube`.

        Outside of the cluster it returns once the API server reaches us. If it cannot, the objects
        are removed again, because they would block other requests. They come again only
        if it had reached us before: after a machine has slept, or its network was cut.
        """
        if self._is_withdrawn():
            return
        found = await self._find(APISERVICE, "", NAME)
        if not self._address.external_name:
            await self._keep_api_service(found, bundle)
        elif found is not None and self._is_anothers(found):
            self._leave(found)
        else:
            await self._keep_service()
            await self._wait_until_reached(await self._keep_api_service(found, bundle))

    async def remove(self) -> None:
        """Delete the objects that we made, if they are there and lead to us."""
        if not self._address.external_name:
            return  # the manifests brought them
        found = await self._find(APISERVICE, "", NAME)
        if found is not None and found.place == self._place:
            await self._delete(APISERVICE, "", NAME, found)
        service = await self._find(SERVICE, self._address.namespace, self._address.service)
        if service is not None and _has(service.spec, self._service_spec):
            await self._delete(SERVICE, self._address.namespace, self._address.service, service)

    def _is_anothers(self, found: _Found) -> bool:
        """Return whether an APIService leads to an installation in the cluster."""
        return found.place.get("namespace") != self._address.namespace

    def _leave(self, found: _Found) -> None:
        """Say once that another installation serves the API."""
        if not self._has_left:
            self._has_left = True
            self._log.warning("api_served_by_another", service=found.place)

    async def _keep_api_service(self, found: _Found | None, bundle: str) -> _Found:
        desired = self._spec(bundle)
        if found is None:
            if not self._address.external_name:
                raise Retryable(f"there is no APIService {NAME}: apply the manifests of k8s/base")
            body = self._body(APISERVICE, {"name": NAME}, desired)
            found = _read(await self._kube.create(APISERVICE, "", body))
        elif any(found.spec.get(key) != value for key, value in desired.items()):
            patch = {"spec": desired}
            raw = await self._kube.patch(APISERVICE, "", NAME, patch, uid=found.metadata.uid)
            found = _read(raw)
        else:
            return found
        self._log.info("api_registered", name=NAME)
        return found

    @property
    def _place(self) -> Json:
        address = self._address
        return {"namespace": address.namespace, "name": address.service, "port": address.port}

    def _spec(self, bundle: str) -> Json:
        address = self._address
        trusted = {"service": self._place, "caBundle": base64.b64encode(bundle.encode()).decode()}
        if not address.external_name:
            return trusted
        order = {"groupPriorityMinimum": 1000, "versionPriority": 15}
        return {"group": GROUP, "version": VERSION, **order, **trusted}

    @property
    def _service_spec(self) -> Json:
        return {
            "type": "ExternalName",
            "externalName": self._address.external_name,
            "ports": [{"name": "https", "port": self._address.port, "protocol": "TCP"}],
        }

    async def _keep_service(self) -> None:
        address, desired = self._address, self._service_spec
        found = await self._find(SERVICE, address.namespace, address.service)
        if found is None:
            await self._make_namespace()
            metadata = {"name": address.service, "namespace": address.namespace}
            body = self._body(SERVICE, metadata, desired)
            await self._kube.create(SERVICE, address.namespace, body)
        elif found.spec.get("type") != "ExternalName":
            raise Retryable(
                f"Service {address.namespace}/{address.service} is another's: Pumice runs in this "
                "cluster; give --service-name another one or --register=false"
            )
        elif not _has(found.spec, desired):
            patch = {"spec": desired}
            uid = found.metadata.uid
            await self._kube.patch(SERVICE, address.namespace, address.service, patch, uid=uid)

    async def _make_namespace(self) -> None:
        name = self._address.namespace
        if await self._find(NAMESPACE, "", name) is None:
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            try:
                await self._kube.create(NAMESPACE, "", body)
            except Conflict:
                return  # another was first

    async def _wait_until_reached(self, found: _Found) -> None:
        """Return once the API server reaches us; give up after a while."""
        now_s = self._clock.monotonic()
        state = next((c for c in found.status.conditions if c.type == "Available"), None)
        if state is not None and state.status == "True":
            self._away_since_s, self._was_reached = None, True
            return
        why = state.message if state is not None else "it has not tried yet"
        if self._away_since_s is None:  # counted from now: this process may have been suspended
            self._away_since_s = now_s
        if now_s - self._away_since_s < _REACHED_S:
            raise Retryable(f"the API server does not reach us: {why}")
        self._away_since_s, self._withdrawn_s = None, now_s
        self._log.warning("api_withdrawn", reason=why, address=self._address.external_name)
        await self.remove()

    def _is_withdrawn(self) -> bool:
        """Return whether the objects are to stay away for now."""
        return self._withdrawn_s is not None and (
            not self._was_reached or self._clock.monotonic() - self._withdrawn_s < _RETRY_S
        )

    async def _find(self, kind: Kind, namespace: str, name: str) -> _Found | None:
        try:
            return _read(await self._kube.get(kind, namespace, name))
        except Gone:
            return None

    async def _delete(self, kind: Kind, namespace: str, name: str, found: _Found) -> None:
        try:
            await self._kube.delete(kind, namespace, name, uid=found.metadata.uid)
        except Gone:
            return
        self._log.info("api_unregistered", kind=kind.kind, name=name)

    def _body(self, kind: Kind, metadata: Json, spec: Json) -> Json:
        return {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {**metadata, "labels": _LABELS},
            "spec": spec,
        }


def _read(raw: bytes) -> _Found:
    return msgspec.json.decode(raw, type=_Found)


def _has(spec: Json, desired: Json) -> bool:
    """Return whether a Service has the desired fields, apart from defaults of the API server."""
    ports = [port.get("port") for port in spec.get("ports") or ()]
    return spec.get("externalName") == desired["externalName"] and ports == [
        port["port"] for port in desired["ports"]
    ]
