"""Asks the API server what a user may do, and keeps each answer for some seconds.

The answers are those of the cluster's own authorizers, so that its roles rule who sees what. An
answer is kept as long as other extension servers of Kubernetes keep theirs.
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

_KEPT_S: Final = 10.0
_KEPT_MAX: Final = 4096
_SEEN_MAX: Final = 256
"""Namespaces that are asked for about one answer."""


class _ReviewReply(msgspec.Struct, frozen=True):
    allowed: bool = False
    reason: str = ""


class _Review(msgspec.Struct, frozen=True):
    status: _ReviewReply


class Authorization:
    """Says what users may do."""

    def __init__(self, kube: Kube, *, clock: Clock, metrics: VisibilityMetrics) -> None:
        self._kube = kube
        self._clock = clock
        self._metrics = metrics
        self._kept: OrderedDict[tuple[User, AccessRight], tuple[float, _ReviewReply]] = (
            OrderedDict()
        )
        """With the time until which it is kept; the oldest first."""

    async def check(self, user: User, right: AccessRight) -> None:
        """Return when the user has the right. Raises ApiFailure (403, 503)."""
        reply = await self._ask(user, right)
        if not reply.allowed:
            raise forbidden(user, right, reply.reason)

    async def seen(self, user: User, namespaces: Iterable[str]) -> set[str]:
        """Return those of the namespaces whose jobs the user may see. Raises ApiFailure (503).

        Beyond a bound no more are asked for: the rest counts as not seen.
        """
        candidates = sorted(set(namespaces))
        if not candidates or (await self._ask(user, to_see(""))).allowed:
            return set(candidates)
        try:
            async with TaskGroup() as tasks:
                answers = {
                    namespace: tasks.create_task(
                        self._ask(user, to_see(namespace)), name=f"may-see-{namespace}"
                    )
                    for namespace in candidates[:_SEEN_MAX]
                }
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        return {namespace for namespace, task in answers.items() if task.result().allowed}

    async def _ask(self, user: User, right: AccessRight) -> _ReviewReply:
        if MASTERS in user.groups:
            return _ReviewReply(allowed=True)
        now = self._clock.monotonic()
        until, reply = self._kept.get((user, right), (now, None))
        if reply is None or until <= now:
            reply = await self._reviewed(user, right)
            self._keep((user, right), reply)
        return reply

    async def _reviewed(self, user: User, right: AccessRight) -> _ReviewReply:
        self._metrics.reviewed()
        try:
            raw = await self._kube.create(ACCESS_REVIEW, "", review(user, right))
            return msgspec.json.decode(raw, type=_Review).status
        except (PumiceError, msgspec.DecodeError) as error:
            raise unavailable(f"cannot ask what {user.name} may do: {error}") from error

    def _keep(self, key: tuple[User, AccessRight], reply: _ReviewReply) -> None:
        self._kept.pop(key, None)
        self._kept[key] = (self._clock.monotonic() + _KEPT_S, reply)
        if len(self._kept) > _KEPT_MAX:
            self._kept.popitem(last=False)
