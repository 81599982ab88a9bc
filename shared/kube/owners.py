"""Reads owners of any kind, as ownerReferences name them: the kinds are not known in advance."""

import re
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import quote

import msgspec

from shared.api.base import View
from shared.runtime.clock import Clock, SystemClock

_GROUP_VERSION: Final = re.compile(r"(?:[a-z0-9][a-z0-9.-]*/)?v[a-z0-9]+")
_KEPT_S: Final = 60.0
_KEPT_MAX: Final = 1_000


class DiscoveredResource(View, frozen=True, kw_only=True):
    """A resource of a group, as discovery lists it."""

    name: str
    """The plural."""
    kind: str
    namespaced: bool = False
    short_names: tuple[str, ...] = ()


class _ResourceList(View, frozen=True, kw_only=True):
    resources: tuple[DiscoveredResource, ...] = ()


class OwnerReader:
    """Reads owners; which kinds a group has counts for a minute."""

    def __init__(
        self, get: Callable[[str, str], Awaitable[bytes]], clock: Clock | None = None
    ) -> None:
        """`get` returns what is at a path, in an accepted form. It raises PumiceError."""
        self._get = get
        self._clock = clock or SystemClock()
        self._groups: dict[str, tuple[float, dict[str, DiscoveredResource]]] = {}

    async def resource(self, api_version: str, kind: str) -> DiscoveredResource | None:
        """Return the resource of a namespaced kind, None if there is none. Raises PumiceError."""
        now = self._clock.monotonic()
        until, found = self._groups.get(api_version, (now, {}))
        if kind not in found and until <= now:
            if not _GROUP_VERSION.fullmatch(api_version):
                return None
            listed = msgspec.json.decode(
                await self._get(_root(api_version), "application/json"), type=_ResourceList
            )
            found = {r.kind: r for r in listed.resources if r.namespaced and "/" not in r.name}
            if len(self._groups) >= _KEPT_MAX:
                self._groups.clear()
            self._groups[api_version] = (now + _KEPT_S, found)
        return found.get(kind)

    async def read(
        self, api_version: str, kind: str, namespace: str, name: str, *, accept: str
    ) -> bytes | None:
        """Return an owner in an accepted form, None if no object can have such a reference.

        Raises PumiceError: Gone if it is not there, Denied if it may not be read.
        """
        if not name.strip("."):
            return None
        resource = await self.resource(api_version, kind)
        if resource is None:
            return None
        at = f"{_root(api_version)}/namespaces/{quote(namespace, safe='')}"
        return await self._get(f"{at}/{resource.name}/{quote(name, safe='')}", accept)


def _root(api_version: str) -> str:
    return f"/{'apis' if '/' in api_version else 'api'}/{api_version}"
