"""Checks with SubjectAccessReviews what a user may do, and caches each reply for some seconds.

The replies are those of the cluster's own authorizers, so that its roles decide who sees what. A
reply is cached as long as other extension servers of Kubernetes cache theirs.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

import msgspec

from services.visibility.api.rights import AccessRight, forbidden, review, to_see
from services.visibility.api.statuses import unavailable
from services.visibility.api.users import MASTERS, User
from services.visibility.metrics import VisibilityMetrics
from shared.api.kinds import ACCESS_REVIEW
from shared.kube.client import Kube
from shared.runtime.clock import Clock
from shared.runtime.errors import PumiceError
from shared.runtime.tasks import TaskGroup

_CACHE_S: Final = 10.0
_CACHE_MAX: Final = 4096
_NAMESPACES_MAX: Final = 256
"""Namespaces that are checked for one result."""


class _ReviewReply(msgspec.Struct, frozen=True):
    allowed: bool = False
    reason: str = ""


class _Review(msgspec.Struct, frozen=True):
    status: _ReviewReply


class Authorization:
    """Checks what users may do."""

    def __init__(self, kube: Kube, *, clock: Clock, metrics: VisibilityMetrics) -> None:
        self._kube = kube
        self._clock = clock
        self._metrics = metrics
        self._cache: OrderedDict[tuple[User, AccessRight], tuple[float, _ReviewReply]] = (
            OrderedDict()
        )
        """With the time until which it is kept; the oldest first."""

    async def check(self, user: User, right: AccessRight) -> None:
        """Return when the user has the right. Raises ApiFailure (403, 503)."""
        reply = await self._allowed(user, right)
        if not reply.allowed:
            raise forbidden(user, right, reply.reason)

    async def check_any(self, user: User, *choices: AccessRight) -> None:
        """Return when the user has one of the rights, or none is needed.

        Raises ApiFailure (503), or 403 that names the last right.
        """
        refusals = []
        for right in choices:
            reply = await self._allowed(user, right)
            if reply.allowed:
                return
            refusals.append(forbidden(user, right, reply.reason))
        if refusals:
            raise refusals[-1]

    async def visible_namespaces(self, user: User, namespaces: Iterable[str]) -> set[str]:
        """Return those of the namespaces whose jobs the user may see. Raises ApiFailure (503).

        Beyond a bound no more are checked: the rest counts as not visible.
        """
        candidates = sorted(set(namespaces))
        if not candidates or (await self._allowed(user, to_see(""))).allowed:
            return set(candidates)
        try:
            async with TaskGroup() as tasks:
                reviews = {
                    namespace: tasks.create_task(
                        self._allowed(user, to_see(namespace)), name=f"may-see-{namespace}"
                    )
                    for namespace in candidates[:_NAMESPACES_MAX]
                }
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        return {namespace for namespace, task in reviews.items() if task.result().allowed}

    async def _allowed(self, user: User, right: AccessRight) -> _ReviewReply:
        if MASTERS in user.groups:
            return _ReviewReply(allowed=True)
        now = self._clock.monotonic()
        until, reply = self._cache.get((user, right), (now, None))
        if reply is None or until <= now:
            reply = await self._reviewed(user, right)
            self._store((user, right), reply)
        return reply

    async def _reviewed(self, user: User, right: AccessRight) -> _ReviewReply:
        self._metrics.reviewed()
        try:
            raw = await self._kube.create(ACCESS_REVIEW, "", review(user, right))
            return msgspec.json.decode(raw, type=_Review).status
        except (PumiceError, msgspec.DecodeError) as error:
            raise unavailable(f"cannot ask what {user.name} may do: {error}") from error

    def _store(self, key: tuple[User, AccessRight], reply: _ReviewReply) -> None:
        self._cache.pop(key, None)
        self._cache[key] = (self._clock.monotonic() + _CACHE_S, reply)
        if len(self._cache) > _CACHE_MAX:
            self._cache.popitem(last=False)
