"""Creates our webhook configurations from the table of hooks, and keeps them up to date.

Two objects, one for the hooks that change and one for those that only validate; their webhooks have
Volcano's names, which users see in refusals.
"""

import base64
from collections.abc import Callable, Iterable, Sequence
from typing import Final
from urllib.parse import urlsplit

import msgspec

from services.admission.rules.catalogue import Hook, conditions
from services.admission.rules.review import Terms
from shared.api.base import Json
from shared.api.kinds import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, Kind
from shared.kube.client import Kube
from shared.runtime.errors import Conflict, Gone
from shared.runtime.logs import Logger

_NEVER: Final = "kube-system"
_NAME_LABEL: Final = "kubernetes.io/metadata.name"


class WebhookAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Address of the webhooks for the API server: a URL, or a Service."""

    url: str = ""
    namespace: str = ""
    service: str = ""
    port: int = 443

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return the host names for our certificate."""
        if self.url:
            return (urlsplit(self.url).hostname or "",)
        name = f"{self.service}.{self.namespace}.svc"
        return (name, f"{name}.cluster.local", f"{self.service}.{self.namespace}")

    def client(self, path: str, bundle: str) -> Json:
        """Return the `clientConfig` of a webhook."""
        trusted = {"caBundle": base64.b64encode(bundle.encode()).decode()}
        if self.url:
            return {**trusted, "url": f"{self.url.rstrip('/')}{path}"}
        place = {"namespace": self.namespace, "name": self.service, "port": self.port}
        return {**trusted, "service": {**place, "path": path}}

    def is_called_by(self, webhook: Json) -> bool:
        """Return whether a registered webhook leads here."""
        found = webhook.get("clientConfig") or {}
        if self.url:
            return str(found.get("url", "")).startswith(f"{self.url.rstrip('/')}/")
        service = found.get("service") or {}
        return (service.get("namespace"), service.get("name")) == (self.namespace, self.service)


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    uid: str = ""
    resource_version: str = ""


class _Found(msgspec.Struct, frozen=True):
    metadata: _Meta
    webhooks: list[Json] = msgspec.field(default_factory=list)


class WebhookRegistration:
    """Keeps the two objects."""

    def __init__(
        self,
        kube: Kube,
        *,
        name: str,
        address: WebhookAddress,
        hooks: Sequence[Hook],
        terms: Callable[[], Terms],
        failure_policy: str,
        timeout_s: int,
        log: Logger,
    ) -> None:
        self._kube = kube
        self._name = name
        self._address = address
        self._hooks = hooks
        self._terms = terms
        self._failure_policy = failure_policy
        self._timeout_s = timeout_s
        self._log = log
        self._has_warned = False

    async def ensure(self, bundle: str) -> None:
        """Create or update both objects. Raises the errors of `Kube`."""
        for kind in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
            hooks = [hook for hook in self._hooks if hook.mutates == (kind is MUTATING_WEBHOOKS)]
            await self._keep(kind, list(self._webhooks(hooks, bundle)))

    async def remove(self) -> None:
        """Delete both objects, if they are there and lead to us."""
        for kind in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
            try:
                found = await self._find(kind)
                if found is None or not all(map(self._address.is_called_by, found.webhooks)):
                    continue
                meta = found.metadata
                await self._kube.delete(
                    kind, "", self._name, uid=meta.uid, resource_version=meta.resource_version
                )
            except (Gone, Conflict):  # it was deleted, or another replica has just written it
                continue
            self._log.info("webhooks_unregistered", kind=kind.kind, name=self._name)

    async def _find(self, kind: Kind) -> _Found | None:
        try:
            return msgspec.json.decode(await self._kube.get(kind, "", self._name), type=_Found)
        except Gone:
            return None

    async def _keep(self, kind: Kind, webhooks: list[Json]) -> None:
        found = await self._find(kind)
        if found is not None and found.webhooks == webhooks:
            return
        if found is not None:
            await self._kube.patch(
                kind, "", self._name, {"webhooks": webhooks}, uid=found.metadata.uid
            )
        else:
            metadata = {"name": self._name, "labels": {"app.kubernetes.io/part-of": "pumice"}}
            body = {
                "apiVersion": kind.api_version,
                "kind": kind.kind,
                "metadata": metadata,
                "webhooks": webhooks,
            }
            try:
                await self._kube.create(kind, "", body)
            except Gone:
                self._log_unsupported()
                return
            except Conflict:
                return  # another replica was first, with the same content
        self._log.info("webhooks_registered", kind=kind.kind, webhooks=len(webhooks))

    def _log_unsupported(self) -> None:
        """Log once that this API server calls no webhooks (an embedded one, say)."""
        if not self._has_warned:
            self._has_warned = True
            self._log.warning("webhooks_unsupported", group=MUTATING_WEBHOOKS.group)

    def _webhooks(self, hooks: Iterable[Hook], bundle: str) -> Iterable[Json]:
        """Yield the webhooks with all fields that the API server would default.

        So the existing object can be compared with the desired one.
        """
        terms = self._terms()
        for hook in hooks:
            match_conditions = conditions(hook, terms)
            if match_conditions is None:
                continue
            rules = [
                {
                    "apiGroups": [group],
                    "apiVersions": [version],
                    "operations": list(hook.operations),
                    "resources": [plural],
                    "scope": "*",
                }
                for group, version, plural in hook.resources
            ]
            webhook: Json = {
                "name": f"{hook.name}.volcano.sh",
                "clientConfig": self._address.client(hook.path, bundle),
                "rules": rules,
                "failurePolicy": self._failure_policy,
                "matchPolicy": "Equivalent",
                "namespaceSelector": {"matchExpressions": [self._excluded_namespaces()]},
                "objectSelector": {},
                "sideEffects": "None",
                "timeoutSeconds": self._timeout_s,
                "admissionReviewVersions": ["v1"],
            }
            if hook.mutates:
                webhook["reinvocationPolicy"] = "Never"
            if match_conditions:
                webhook["matchConditions"] = [
                    {"name": name, "expression": expression}
                    for name, expression in match_conditions
                ]
            yield webhook

    def _excluded_namespaces(self) -> Json:
        """Return the selector that excludes namespaces which must work without admission."""
        names = [_NEVER, *([self._address.namespace] if self._address.namespace else [])]
        return {"key": _NAME_LABEL, "operator": "NotIn", "values": names}
