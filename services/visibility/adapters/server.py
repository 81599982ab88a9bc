"""The aggregated API over HTTPS: authenticates, authorizes, and encodes the result.

The API server is the one caller: it has checked the user and sends his name in headers. What
fails about one request stays with it.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final

import msgspec
from aiohttp import ClientConnectionError, web

from services.visibility.adapters.authentication import Authentication
from services.visibility.adapters.authorization import Authorization
from services.visibility.adapters.shares import Displaced, FairShares
from services.visibility.adapters.sources import Objects, Sources
from services.visibility.adapters.watching import Watching, versioned
from services.visibility.api import discovery, requests, rights, tables
from services.visibility.api.requests import ReplyForm, ServedTarget, form_of
from services.visibility.api.resources import CHANGES
from services.visibility.api.statuses import (
    BAD_REQUEST,
    INTERNAL,
    TOO_LARGE,
    TOO_SLOW,
    UNSUPPORTED,
    ApiFailure,
    invalid,
    no_such_path,
    unavailable,
    wrong_method,
)
from services.visibility.api.users import User
from services.visibility.interface import LiveQueries
from services.visibility.metrics import VisibilityMetrics
from shared.api.base import Json
from shared.api.visibility import Change
from shared.runtime.env import Env
from shared.runtime.errors import PumiceError, Rejected, Retryable
from shared.runtime.quarantine import describe
from shared.serving.server import BODY_MAX, HttpsServer

_ANSWER_S: Final = 50.0
"""The API server itself gives up after a minute."""
_ANY_PATH: Final = r"/{path:[\s\S]*}"
"""A dot would leave paths with a line end to aiohttp, whose refusals are no Status."""
_JSON: Final = "application/json"
_BODIES: Final = (_JSON, "application/octet-stream", "")
_OK, _CREATED = 200, 201
_MAX: Final = 100
"""Streams of changes that may be open: with as many watches, ordinary requests have connections."""
_LONGEST_S: Final = 600.0
"""Longest connection in seconds: a new one is authorized again."""
_WRITE_S: Final = 30.0
_STREAM_START: Final = b"retry: 2000\n: follows\n\n"
"""A browser comes again two seconds after the end of a stream."""
_KEEPALIVE: Final = b": lives\n\n"


class Changes:
    """The stream `changes`: server-sent events that say what to request again, and what happened.

    It is a resource of the group as others are, read with the verb watch: so the API server asks
    its authorizer, does not cut it off after a minute, and passes each event on at once.
    """

    def __init__(self, live: LiveQueries) -> None:
        self._live = live
        self._slots = FairShares(_MAX, "streams of changes")

    async def stream(
        self, request: web.Request, user: User, target: ServedTarget
    ) -> web.StreamResponse:
        """Send what changes until the reader goes or the time is over. Raises ApiFailure."""
        headers = {"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
        response = web.StreamResponse(headers=headers)
        try:
            async with self._slots.slot(user):
                with contextlib.suppress(ConnectionError, ClientConnectionError, TimeoutError):
                    await response.prepare(request)
                    async with contextlib.aclosing(self._live.changes(target.namespace)) as changes:
                        await self._send(response, changes)
        except Displaced:
            if not response.prepared:
                raise
        return response

    async def _send(
        self, response: web.StreamResponse, changes: AsyncGenerator[Change, None]
    ) -> None:
        await response.write(_STREAM_START)
        async with asyncio.timeout(_LONGEST_S):
            async for change in changes:
                async with asyncio.timeout(_WRITE_S):
                    await response.write(_event(change))


def _event(change: Change) -> bytes:
    """Return a change as a server-sent event, an empty one as a comment."""
    if change.entry is None and not change.resources:
        return _KEEPALIVE
    name = "happened" if change.entry else "changed"
    return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(change))


class VisibilityServer:
    """Serves requests on an HTTPS server that is made elsewhere."""

    def __init__(
        self,
        https: HttpsServer,
        *,
        authentication: Authentication,
        authorization: Authorization,
        sources: Sources,
        watching: Watching,
        changes: Changes,
        env: Env,
        metrics: VisibilityMetrics,
    ) -> None:
        self._https = https
        self._authentication = authentication
        self._authorization = authorization
        self._sources = sources
        self._watching = watching
        self._changes = changes
        self._quarantine = env.quarantine
        self._clock = env.clock
        self._metrics = metrics
        https.router.add_route("*", _ANY_PATH, self._handle)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        begun_s = self._clock.monotonic()
        label = ("discovery", request.method.lower())
        try:
            user = self._authentication.user(request)
            if request.path.startswith(requests.ROOT):
                target = requests.read(request.method, request.path, request.query)
                label = (target.resource.plural, target.verb)
                response = await self._isolated(request, user, target)
            else:
                response = await self._document(request, user)
        except ApiFailure as failure:
            response = _refusal(failure)
        took_s = self._clock.monotonic() - begun_s
        self._metrics.answered(*label, response.status, 0.0 if label[1] == "watch" else took_s)
        return response

    async def _document(self, request: web.Request, user: User) -> web.Response:
        await self._authorization.check(user, rights.of_path(request.path))
        if request.method not in ("GET", "HEAD"):
            raise wrong_method()
        document = discovery.find(request.path, request.headers.get("Accept", ""))
        if document is None:
            raise no_such_path()
        headers = {"Content-Type": document.content_type, "ETag": document.etag}
        if request.headers.get("If-None-Match") == document.etag:
            return web.Response(status=304, headers=headers)
        return web.Response(body=document.body, headers=headers)

    async def _isolated(
        self, request: web.Request, user: User, target: ServedTarget
    ) -> web.StreamResponse:
        """Serve a request about objects; an internal error refuses this request alone."""
        key = f"{target.namespace}/{target.name}"
        outcome: web.StreamResponse | ApiFailure | None = None
        with self._quarantine.isolate(target.resource.plural, key, stage="answer") as isolated:
            try:
                outcome = await self._objects(request, user, target)
            except ApiFailure as failure:
                outcome = failure
        if isolated.error is not None:
            raise ApiFailure(INTERNAL, f"cannot be answered: {describe(isolated.error)}")
        assert outcome is not None, "answered, refused or isolated"
        if isinstance(outcome, ApiFailure):
            raise outcome
        return outcome

    async def _objects(
        self, request: web.Request, user: User, target: ServedTarget
    ) -> web.StreamResponse:
        await self._authorization.check(user, rights.of_target(target))
        if target.verb not in target.resource.verbs:
            raise wrong_method()
        if target.resource.plural == CHANGES:
            return await self._changes.stream(request, user, target)
        form = form_of(request.headers.get("Accept", ""))
        try:
            if target.verb == "watch":
                is_table = form is ReplyForm.TABLE
                return await self._watching.stream(request, user, target, is_table=is_table)
            async with asyncio.timeout(_ANSWER_S):
                return await self._respond(request, user, target, form)
        except TimeoutError as error:
            raise ApiFailure(TOO_SLOW, "the answer took too long") from error
        except Retryable as error:
            raise unavailable(str(error)) from error
        except Rejected as error:
            raise invalid(target.resource.kind, error.field, str(error)) from error
        except PumiceError as error:
            raise ApiFailure(INTERNAL, str(error)) from error

    async def _respond(
        self, request: web.Request, user: User, target: ServedTarget, form: ReplyForm
    ) -> web.Response:
        if target.verb == "create":
            return await self._create(request, user, target, form)
        if target.verb == "list" or target.resource.is_list:
            objects = await self._sources.listing(target)
            version = self._watching.remember(target, objects)
            if form is ReplyForm.TABLE:
                return _response(self._table(target, objects, version))
            return _response(_list(target, objects, version))
        found = await self._sources.one(user, target)
        if form is ReplyForm.TABLE:
            return _response(self._table(target, [found]))
        return _response(tables.whole(target.resource, found))

    async def _create(
        self, request: web.Request, user: User, target: ServedTarget, form: ReplyForm
    ) -> web.Response:
        if request.content_type not in _BODIES:
            text = f"the body of the request was in an unknown format: send {_JSON}"
            raise ApiFailure(UNSUPPORTED, text)
        body = await self._body(request)
        created = await self._sources.create(user, target, body)
        headers = [("Warning", _warning(text)) for text in created.warnings]
        if form is ReplyForm.TABLE:
            return _response(self._table(target, [created.object]), _CREATED, headers)
        whole = tables.whole(target.resource, created.object)
        return _response({**whole, "spec": created.spec}, _CREATED, headers)

    async def _body(self, request: web.Request) -> bytes:
        try:
            async with self._https.body(request) as body:
                return body
        except web.HTTPRequestEntityTooLarge as error:
            text = f"the body is larger than {BODY_MAX} bytes"
            raise ApiFailure(TOO_LARGE, text) from error
        except TimeoutError as error:
            raise ApiFailure(BAD_REQUEST, "the body did not arrive in time") from error

    def _table(self, target: ServedTarget, objects: Objects, version: str = "") -> Json:
        return tables.table(
            target.resource,
            objects,
            now=self._clock.now(),
            version=version,
            include=target.query.get("includeObject") or "Metadata",
        )


def _list(target: ServedTarget, objects: Objects, version: str) -> Json:
    resource = target.resource
    return {
        "kind": f"{resource.kind}List",
        "apiVersion": resource.api_version,
        "metadata": {"resourceVersion": version},
        "items": [tables.whole(resource, versioned(obj, version)) for obj in objects],
    }


def _warning(text: str) -> str:
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{quoted}"'


def _response(
    value: Mapping[str, Any], status: int = _OK, headers: list[tuple[str, str]] | None = None
) -> web.Response:
    response = web.Response(status=status, body=msgspec.json.encode(value), content_type=_JSON)
    for name, text in headers or ():
        response.headers.add(name, text)
    return response


def _refusal(failure: ApiFailure) -> web.Response:
    """Return the response; if a body was not read, the connection is closed."""
    headers = [("Retry-After", str(failure.retry_after_s))] if failure.retry_after_s else None
    response = _response(failure.status(), failure.code, headers)
    response.force_close()
    return response
