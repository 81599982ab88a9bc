"""The objects of each resource: results of queries without what the user may not see."""

from collections.abc import Sequence
from typing import Final

import msgspec

from services.visibility.adapters.authorization import Authorization
from services.visibility.adapters.shares import QueryTurns
from services.visibility.api import hiding, what_if_request
from services.visibility.api.requests import ServedTarget
from services.visibility.api.rights import IMAGINE_CLUSTER, of_report
from services.visibility.api.statuses import (
    BAD_REQUEST,
    ApiFailure,
    invalid,
    not_found,
    wrong_method,
)
from services.visibility.api.users import User
from services.visibility.interface import LiveQueries, Queries
from shared.api.base import Json, View
from shared.api.meta import ObjectMeta
from shared.api.time import format_seconds
from shared.api.usage_reports import UsageReport
from shared.api.visibility import (
    Explanation,
    NodeUse,
    PendingJob,
    QueueTree,
    RunningJob,
    Timeline,
    UsageHistory,
    WhatIfStatus,
)
from shared.api.whatifs import WhatIf
from shared.runtime.clock import Clock

Objects = Sequence[View]
Listed = (
    Sequence[PendingJob]
    | Sequence[QueueTree]
    | Sequence[RunningJob]
    | Sequence[NodeUse]
    | Sequence[UsageHistory]
)
"""Lists of objects that have a name."""


QUESTIONS_MAX: Final = 8
"""Explanations, timelines and what-ifs that run or wait, of all users."""


class CreatedObject(msgspec.Struct, frozen=True, kw_only=True):
    """A query that was created, with its result, and warnings for its author."""

    object: WhatIf | UsageReport
    spec: Json
    """The query as it was sent."""
    warnings: tuple[str, ...] = ()


class Sources:
    """Reads objects and runs what-ifs for an authorized user."""

    def __init__(
        self, queries: Queries, live: LiveQueries, authorization: Authorization, *, clock: Clock
    ) -> None:
        self._queries = queries
        self._live = live
        self._authorization = authorization
        self._clock = clock
        self._turns = QueryTurns(QUESTIONS_MAX)

    async def listing(self, target: ServedTarget) -> Objects:
        """Return the objects of a collection. Raises ApiFailure (405), Retryable."""
        match target.resource.plural:
            case "queues/pendingjobs":
                _named(await self._queries.queue_trees(), target.name, plural="queues")
                return await self._queries.pending_jobs(queue=target.name)
            case _:
                objects = await self._collection(target)
                return [obj for obj in objects if target.selects(obj.metadata)]

    async def one(self, user: User, target: ServedTarget) -> View:
        """Return one object. Raises ApiFailure (404, 405), Retryable."""
        match target.resource.plural:
            case "explanations":
                return await self._explanation(user, target)
            case "timelines":
                return await self._timeline(user, target)
            case plural:
                return _named(await self._collection(target), target.name, plural=plural)

    async def create(self, user: User, target: ServedTarget, body: bytes) -> CreatedObject:
        """Return a query with its result. Raises ApiFailure, Retryable, Rejected."""
        if target.resource.plural == "usagereports":
            return await self._usage_report(user, target, body)
        return await self._what_if(user, target, body)

    async def _usage_report(self, user: User, target: ServedTarget, body: bytes) -> CreatedObject:
        raw, query = what_if_request.read_object(body, UsageReport)
        spec = query.spec
        if spec.mine:
            if spec.user not in ("", user.name):
                raise invalid("UsageReport", "spec.user", "it is not the requester; leave out mine")
            spec = msgspec.structs.replace(spec, user=user.name)
        warnings = what_if_request.unknown_fields(raw, target)
        await self._authorization.check_any(user, *of_report(user, spec))
        async with self._turns.turn(user):
            status = await self._queries.usage_report(spec)
        made = format_seconds(self._clock.now())
        metadata = msgspec.structs.replace(query.metadata, creation_timestamp=made)
        return CreatedObject(
            object=UsageReport(metadata=metadata, spec=spec, status=status),
            spec=raw["spec"],
            warnings=warnings,
        )

    async def _what_if(self, user: User, target: ServedTarget, body: bytes) -> CreatedObject:
        raw, query = what_if_request.read(body)
        namespace, spec = target.namespace, query.spec
        if not namespace:
            raise wrong_method()
        _check_namespace(query.metadata, namespace, field="metadata.namespace")
        if spec.job is not None:
            _check_namespace(spec.job.metadata, namespace, field="spec.job.metadata.namespace")
        elif not spec.changes_cluster:
            raise invalid("WhatIf", "spec", "imagine at least a job, a queue or nodes")
        if spec.changes_cluster:
            await self._authorization.check(user, IMAGINE_CLUSTER)
        warnings = what_if_request.unknown_fields(raw, target)
        async with self._turns.turn(user):
            status = await self._queries.what_if(namespace, spec)
        visible_namespaces = await self._visible(user, namespace, status)
        metadata = msgspec.structs.replace(
            query.metadata,
            namespace=namespace,
            creation_timestamp=format_seconds(self._clock.now()),
        )
        answered = WhatIf(
            metadata=metadata, spec=spec, status=hiding.hide(status, visible_namespaces)
        )
        return CreatedObject(object=answered, spec=raw["spec"], warnings=warnings)

    async def _collection(self, target: ServedTarget) -> Listed:
        """Return all objects of a resource, or those of a namespace. Raises ApiFailure (405)."""
        match target.resource.plural:
            case "pendingjobs":
                return await self._queries.pending_jobs(target.namespace)
            case "queuetrees":
                return await self._queries.queue_trees()
            case "runningjobs":
                return await self._live.running_jobs(target.namespace)
            case "nodeuses":
                return await self._live.node_uses()
            case "usagehistories":
                return [await self._queries.usage_history()]
            case _:
                raise wrong_method()

    async def _explanation(self, user: User, target: ServedTarget) -> Explanation:
        async with self._turns.turn(user):
            found = await self._queries.explanation(target.namespace, target.name)
        if found is None:
            raise not_found("explanations", target.name)
        return hiding.hide(found, await self._visible(user, target.namespace, found))

    async def _timeline(self, user: User, target: ServedTarget) -> Timeline:
        async with self._turns.turn(user):
            found = await self._queries.timeline(target.namespace, target.name)
        if found is None:
            raise not_found("timelines", target.name)
        return found

    async def _visible(
        self, user: User, namespace: str, result: Explanation | WhatIfStatus
    ) -> set[str]:
        """Return the namespaces that the result may name, including that of the query."""
        others = hiding.namespaces(result) - {namespace}
        return {namespace} | await self._authorization.visible_namespaces(user, others)


def _named(objects: Listed, name: str, *, plural: str) -> View:
    """Return the object of that name. Raises ApiFailure (404)."""
    for obj in objects:
        if obj.metadata.name == name:
            return obj
    raise not_found(plural, name)


def _check_namespace(metadata: ObjectMeta, namespace: str, *, field: str) -> None:
    if metadata.namespace not in ("", namespace):
        raise ApiFailure(
            BAD_REQUEST,
            f"{field}: {metadata.namespace!r} is not the namespace of the request, {namespace!r}",
        )
