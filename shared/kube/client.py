"""`Kube`: the verbs that the services use on Kubernetes objects, bytes in and bytes out.

Each write of an object carries the uid of the object that it was decided on, so that it never
changes a later object of the same name (ADR 1); a uid that no longer matches raises `Gone`. Retries
belong to the caller, who knows whether the request still makes sense. `Retryable` carries the delay
of the response's Retry-After.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final, Literal, Self
from urllib.parse import quote

import msgspec

from shared.api.kinds import POD, Kind
from shared.kube.decode import KindDecoder, Listed, Malformed, Page, partial_object
from shared.kube.errors import Expired, WriteConflict
from shared.kube.wire import (
    JSON,
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    Query,
    Request,
    Stream,
    Transport,
)
from shared.runtime.errors import Gone, Rejected

Body = bytes | msgspec.Struct | Mapping[str, Any]
Propagation = Literal["Background", "Foreground", "Orphan"]
PatchType = Literal["merge", "strategic"]

PAGE_LIMIT: Final = 500
_RESTARTS: Final = 3
_PATCHES: Final = {"merge": MERGE_PATCH, "strategic": STRATEGIC_PATCH}


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which objects of a kind: selectors in the API server's notation, empty for all."""

    namespace: str = ""
    field_selector: str = ""
    label_selector: str = ""

    def query(self) -> list[tuple[str, str]]:
        """Return the query parameters."""
        pairs = [("fieldSelector", self.field_selector), ("labelSelector", self.label_selector)]
        return [(name, value) for name, value in pairs if value]


ALL: Final = Selection()


class Kube:
    """One API server, from `shared.kube.config.connect`: a part of a service, or `async with`."""

    name: Final = "kube"

    def __init__(
        self, *, transport: Transport, checks: tuple[Callable[[], None], ...] = ()
    ) -> None:
        """Call `checks` before each write; what they raise goes to the writer."""
        self._transport = transport
        self._checks = checks
        self._decoders: dict[str, KindDecoder] = {}

    def guarded(self, check: Callable[[], None]) -> "Kube":
        """Return a client on the same transport that calls `check` before each write."""
        return Kube(transport=self._transport, checks=(check, *self._checks))

    @property
    def host(self) -> str:
        """Return the API server's address, for messages."""
        return self._transport.host

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def run(self) -> None:
        """Keep the connections until cancelled, then close them (a part of a service)."""
        try:
            await asyncio.Event().wait()
        finally:
            await self.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Query = (),
        body: Body | None = None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> bytes:
        """Send any request, also for what has no verb here (`/version`, reviews, scale)."""
        if method != "GET":
            for check in self._checks:
                check()
        if body is not None and not isinstance(body, bytes):
            body = msgspec.json.encode(body)
        return await self._transport.exchange(
            Request(
                method=method,
                path=path,
                query=query,
                body=body,
                content_type=content_type,
                accept=accept,
            )
        )

    def decoder(self, kind: Kind) -> KindDecoder:
        """Return the decoder of a kind, built once."""
        if kind.token not in self._decoders:
            self._decoders[kind.token] = KindDecoder(kind)
        return self._decoders[kind.token]

    async def get(self, kind: Kind, namespace: str, name: str, subresource: str = "") -> bytes:
        """Return an object. Raises Gone when there is none of that name."""
        return await self.request("GET", address(kind, namespace, name, subresource))

    async def list(self, kind: Kind, selection: Selection = ALL) -> Listed:
        """Return the views of all selected objects, in pages of `PAGE_LIMIT`.

        Starts again when the list's version expires between two pages (410), and asks for one
        whole answer when that happens again and again.
        """
        for _ in range(_RESTARTS):
            try:
                return await self._collect(kind, selection, PAGE_LIMIT)
            except Expired:
                continue
        return await self._collect(kind, selection, 0)

    async def version(self, kind: Kind) -> str:
        """Return the resourceVersion of this moment, as a list of the kind has it.

        The API server asks etcd for it; of the objects one is sent at most.
        """
        async for page in self.pages(kind, ALL, 1):
            return page.resource_version
        return ""

    async def pages(self, kind: Kind, selection: Selection, limit: int) -> AsyncIterator[Page]:
        """Yield the pages of one consistent list. Raises Expired (410) when it got too old."""
        token = ""
        while True:
            query = [*selection.query(), ("limit", str(limit))]
            if token:
                query.append(("continue", token))
            path = collection(kind, selection.namespace)
            page = self.decoder(kind).page(await self.request("GET", path, query=query))
            yield page
            token = page.continue_token
            if not token:
                return

    async def watch(self, kind: Kind, selection: Selection, query: Query) -> Stream:
        """Open a watch; `query` says from where. The caller reads and closes the stream."""
        return await self._transport.open(
            Request(
                method="GET",
                path=collection(kind, selection.namespace),
                query=[("watch", "true"), *selection.query(), *query],
            )
        )

    async def create(self, kind: Kind, namespace: str, body: Body, subresource: str = "") -> bytes:
        """Create an object and return it. Raises AlreadyExists (a Conflict) for a taken name."""
        path = collection(kind, namespace, subresource)
        return await self.request("POST", path, body=body)

    async def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        body: Mapping[str, Any],
        *,
        uid: str,
        resource_version: str = "",
        subresource: str = "",
        patch_type: PatchType = "merge",
    ) -> bytes:
        """Change the fields in `body` of the object with `uid` and return the object.

        Raises Gone when the name is free or another's, and Conflict when `resource_version` is
        given and not the newest. `strategic` merges lists by key (pod conditions) and exists for
        built-in kinds only.

        ⚠ The uid travels in the patch's metadata, which the API server throws away before it looks
        when a subresource of a custom kind is patched (a Queue's or Job's status). There the
        version is checked instead of the uid: the one given, or the one of a GET made for it.
        """
        guarded = subresource and not is_built_in(kind)
        if guarded and not resource_version:
            return await self._patch_after_get(
                kind, namespace, name, body, uid=uid, subresource=subresource
            )
        metadata = {**body.get("metadata", {}), "uid": uid}
        if resource_version:
            metadata["resourceVersion"] = resource_version
        return await self.request(
            "PATCH",
            address(kind, namespace, name, subresource),
            body={**body, "metadata": metadata},
            content_type=_PATCHES[patch_type],
        )

    async def operate(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        operations: Sequence[Mapping[str, Any]],
        *,
        subresource: str = "",
    ) -> bytes:
        """Apply a JSON patch (RFC 6902) and return the object.

        An operation `test` asks for the present value of any field, whose write the others are.
        Raises Rejected (422) when one does not hold, and then nothing is written.
        """
        path = address(kind, namespace, name, subresource)
        body = msgspec.json.encode(operations)
        return await self.request("PATCH", path, body=body, content_type=JSON_PATCH)

    async def delete(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        *,
        uid: str,
        resource_version: str = "",
        grace_s: int | None = None,
        propagation: Propagation | None = None,
    ) -> bytes:
        """Delete the object with `uid`. Raises Gone when the name is free or another's.

        With `resource_version` only if that is the newest: Conflict says that it is not.
        Without `grace_s` the object's own grace period holds.
        """
        options: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid},
        }
        if resource_version:
            options["preconditions"]["resourceVersion"] = resource_version
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        if propagation is not None:
            options["propagationPolicy"] = propagation
        return await self.request("DELETE", address(kind, namespace, name), body=options)

    async def bind(
        self,
        namespace: str,
        name: str,
        *,
        uid: str,
        node: str,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """Bind the pod with `uid` to `node` and merge `annotations` into it (CA06).

        Raises Gone when that pod no longer exists, and Conflict (409) when it is already bound, to
        this node or another, or is being deleted. Read the pod to find out which.
        """
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": uid,
                "annotations": annotations or {},
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self.request("POST", address(POD, namespace, name, "binding"), body=binding)

    async def _patch_after_get(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        body: Mapping[str, Any],
        *,
        uid: str,
        subresource: str,
    ) -> bytes:
        """Patch the version that a GET shows to be of `uid`; again if it changes in between."""
        attempts = _RESTARTS
        while True:
            found = partial_object(await self.get(kind, namespace, name)).metadata
            if found.uid != uid:
                raise Gone(f"{kind.kind} {namespace}/{name} is another by now: {found.uid}")
            attempts -= 1
            try:
                return await self.patch(
                    kind,
                    namespace,
                    name,
                    body,
                    uid=uid,
                    resource_version=found.resource_version,
                    subresource=subresource,
                )
            except WriteConflict:
                if not attempts:
                    raise

    async def _collect(self, kind: Kind, selection: Selection, limit: int) -> Listed:
        items: list[Any] = []
        malformed: list[Malformed] = []
        version = ""
        async for page in self.pages(kind, selection, limit):
            items += page.items
            malformed += page.malformed
            version = page.resource_version
        return Listed(items=items, malformed=malformed, resource_version=version)


def address(kind: Kind, namespace: str, name: str, subresource: str = "") -> str:
    """Return the path of one object; names are quoted, so none leads out of its collection.

    Raises Rejected without a name, or without the namespace that the kind needs: names may come
    from objects that any user may write.
    """
    if not name or (kind.namespaced and not namespace):
        raise Rejected(f"no address for {kind.kind} {namespace!r}/{name!r}")
    return kind.path(_segment(namespace), _segment(name), subresource)


def collection(kind: Kind, namespace: str, subresource: str = "") -> str:
    """Return the path of the objects in a namespace, or everywhere (""); it is quoted, too."""
    return kind.path(_segment(namespace), "", subresource)


def is_built_in(kind: Kind) -> bool:
    """Tell whether Kubernetes itself serves the kind, by the form of its group's name."""
    return "." not in kind.group or kind.group.endswith(".k8s.io")


def _segment(name: str) -> str:
    if name in (".", ".."):
        raise Rejected(f"{name!r} is no name of an object")
    return quote(name, safe="")
