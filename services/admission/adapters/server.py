"""The webhooks on their HTTPS server.

If a review is impossible (the API server does not respond to our request), the response is 500, so
the failure policy decides: admit or reject.
"""

import asyncio
import base64
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from aiohttp import web

from services.admission.adapters.lookup import Lookup
from services.admission.metrics import AdmissionMetrics
from services.admission.rules.catalogue import Hook
from services.admission.rules.fields import Schemas
from services.admission.rules.review import AdmissionRequest, ReviewFacts, Terms, Verdict
from services.admission.rules.submissions import submission
from services.admission.rules.users import controller_of
from shared.api.base import describe_decode_error
from shared.api.batch import Job
from shared.api.kinds import JOB
from shared.api.lenient import lenient
from shared.api.nesting import cut, is_cut, is_too_deep
from shared.api.scheduling import podgroup_of
from shared.contracts.subjects import key_of
from shared.runtime.env import Env
from shared.runtime.errors import PumiceError, Rejected, Retryable
from shared.runtime.quarantine import describe
from shared.serving.server import BODY_MAX, HttpsServer

_JUDGED_MAX: Final = 64
"""Maximum number of concurrent reviews."""
_LARGER: Final = f"the review is larger than {BODY_MAX} bytes"
_BAD_REQUEST, _TOO_SLOW, _TOO_LARGE, _UNSUPPORTED, _FAILED = 400, 408, 413, 415, 500


class WebhookServer:
    """Serves the hooks on an HTTPS server that is made elsewhere."""

    def __init__(
        self,
        https: HttpsServer,
        hooks: Sequence[Hook],
        *,
        lookup: Lookup,
        terms: Callable[[], Terms],
        schemas: Callable[[], Schemas],
        env: Env,
        metrics: AdmissionMetrics,
    ) -> None:
        self._https = https
        self._lookup = lookup
        self._terms = terms
        self._schemas = schemas
        self._quarantine = env.quarantine
        self._clock = env.clock
        self._metrics = metrics
        self._spans = env.spans
        self._log = env.log
        self._judged = asyncio.Semaphore(_JUDGED_MAX)
        for hook in hooks:
            https.router.add_post(hook.path, self._handler(hook))

    def _handler(self, hook: Hook) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            begun_s = self._clock.monotonic()
            response, outcome = await self._respond(hook, request)
            self._metrics.answered(hook.path, outcome, self._clock.monotonic() - begun_s)
            return response

        return handle

    async def _respond(self, hook: Hook, request: web.Request) -> tuple[web.Response, str]:
        if request.content_type != "application/json":
            text = f"content type {request.content_type} is not application/json"
            return _malformed(_UNSUPPORTED, text), "malformed"
        try:
            async with self._https.body(request) as body, self._judged:
                return await self._answer(hook, body)
        except web.HTTPRequestEntityTooLarge:
            return _malformed(_TOO_LARGE, _LARGER), "malformed"
        except TimeoutError:
            return _malformed(_TOO_SLOW, "the review did not arrive in time"), "malformed"

    async def _answer(self, hook: Hook, body: bytes) -> tuple[web.Response, str]:
        try:
            uid, admission = read_review(body)
        except Rejected as error:
            return web.Response(status=_BAD_REQUEST, text=str(error)), "malformed"
        answered, resource = b"", admission.resource or hook.resource
        try:
            with self._quarantine.isolate(resource, _key(admission), stage="review") as isolated:
                begun = self._clock.now()
                verdict = await self.review(hook, admission)
                answered = answer(uid, verdict)
                if self._spans.is_on and (cause := _cause(resource, admission)):
                    path, allowed = hook.path, verdict.allowed
                    self._spans.add(cause, "review", begun=begun, hook=path, allowed=allowed)
        except PumiceError as error:
            self._log.warning("review_failed", hook=hook.path, reason=str(error))
            return web.Response(status=_FAILED, text=f"cannot review now: {error}"), "failed"
        if isolated.error is not None:
            text = f"cannot be reviewed: {describe(isolated.error)}"
            return web.Response(status=_FAILED, text=text), "failed"
        if not verdict.allowed:
            self._log.info(
                "object_refused",
                hook=hook.path,
                namespace=admission.namespace,
                name=admission.name,
                reason=verdict.message,
            )
        outcome = "allowed" if verdict.allowed else "refused"
        return web.Response(body=answered, content_type="application/json"), outcome

    async def review(self, hook: Hook, admission: AdmissionRequest) -> Verdict:
        """Return the verdict; a refusal is based on fresh facts. Raises Retryable."""
        facts = await self._facts(hook, admission, fresh=hook.fresh)
        verdict = hook.review(admission, facts, self._terms())
        if not verdict.allowed and hook.queues and not hook.fresh:
            facts = await self._facts(hook, admission, fresh=True)
            verdict = hook.review(admission, facts, self._terms())
        if verdict.allowed and self._counts_submitted(hook, admission):
            self._count_submitted(admission)
        return verdict

    def _counts_submitted(self, hook: Hook, admission: AdmissionRequest) -> bool:
        is_new = admission.operation == "CREATE"
        return hook.submitted and is_new and bool(self._terms().submit_limits)

    def _count_submitted(self, admission: AdmissionRequest) -> None:
        job = lenient(admission.object, Job)
        found = submission(job)
        if found is not None and job.metadata.uid:
            self._lookup.admitted(job.metadata.uid, found)

    async def _facts(self, hook: Hook, admission: AdmissionRequest, *, fresh: bool) -> ReviewFacts:
        if hook.namespace and admission.namespace:
            return ReviewFacts(
                namespace_annotations=await self._lookup.annotations(admission.namespace)
            )
        if hook.owner:
            return ReviewFacts(owner_annotations=await self._owner_annotations(admission))
        if hook.queues:
            try:
                queues = await self._lookup.queues(fresh=fresh)
            except Retryable:
                if not hook.mutates:  # the controller fills in what is missing
                    raise
                queues = {}
            counts = self._counts_submitted(hook, admission)
            submitted = await self._lookup.submitted(fresh=fresh) if counts else {}
            return ReviewFacts(queues=queues, schemas=self._schemas(), submitted=submitted)
        return ReviewFacts(schemas=self._schemas())

    async def _owner_annotations(self, admission: AdmissionRequest) -> Mapping[str, str]:
        """Return the annotations of an object's owner if the requester's rule reads one."""
        if admission.operation != "CREATE" or admission.requester not in self._terms().user_sources:
            return {}
        owner = controller_of(admission.object)
        if owner is None:
            return {}
        return await self._lookup.owner_annotations(owner, admission.namespace)


def _key(admission: AdmissionRequest) -> str:
    """Return the key of an object; with `generateName` it has only the prefix."""
    meta = admission.object.get("metadata")
    begins = meta.get("generateName") if isinstance(meta, dict) else ""
    return key_of(admission.namespace, admission.name or f"{begins or ''}*")


def _cause(resource: str, admission: AdmissionRequest) -> str:
    """Return the cause (PodGroup key) of a new Job, once the API server has given it a uid."""
    meta = admission.object.get("metadata")
    uid = meta.get("uid") if isinstance(meta, dict) else ""
    if resource != JOB.token or admission.operation != "CREATE" or not isinstance(uid, str):
        return ""
    return podgroup_of(key_of(admission.namespace, admission.name), uid) if uid else ""


def _malformed(code: int, text: str) -> web.Response:
    """Return the response to a request whose body was not read; it closes the connection."""
    response = web.Response(status=code, text=text)
    response.force_close()
    return response


API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"
_REFUSED: Final = 400
_WORDS_MAX: Final = 16_384
"""Maximum length of a message, because quoted values may be as large as an object."""
_HINTS_MAX: Final = 20


class _Resource(msgspec.Struct, frozen=True):
    resource: str = ""


class _UserInfo(msgspec.Struct, frozen=True):
    username: str = ""


class _Request(msgspec.Struct, frozen=True, rename="camel"):
    uid: str
    operation: str
    resource: _Resource = _Resource()
    name: str = ""
    namespace: str = ""
    user_info: _UserInfo = _UserInfo()
    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = None


class _Review(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    request: _Request | None = None


_decoder = msgspec.json.Decoder(_Review)


def read_review(body: bytes) -> tuple[str, AdmissionRequest]:
    """Return (uid, request) of an AdmissionReview. Raises Rejected, which names the field."""
    too_deep = is_too_deep(body)
    try:
        review = _decoder.decode(cut(body) if too_deep else body)
    except msgspec.DecodeError as error:
        raise Rejected(f"no AdmissionReview: {describe_decode_error(error)}") from error
    if (review.api_version, review.kind) != (API_VERSION, KIND):
        raise Rejected(
            f"{review.api_version} {review.kind} is not served: send {API_VERSION} {KIND}",
            field="apiVersion",
        )
    if review.request is None:
        raise Rejected("request: is missing", field="request")
    admission = review.request
    return admission.uid, AdmissionRequest(
        operation=admission.operation,
        resource=admission.resource.resource,
        name=admission.name,
        namespace=admission.namespace,
        requester=admission.user_info.username,
        object=admission.object or {},
        old=admission.old_object or {},
        too_deep=too_deep and is_cut(msgspec.json.encode(admission.object)),
    )


def answer(uid: str, verdict: Verdict) -> bytes:
    """Return the AdmissionReview that answers `uid`."""
    response: dict[str, Any] = {"uid": uid, "allowed": verdict.allowed}
    if not verdict.allowed:
        causes = [
            {
                "reason": "FieldValueInvalid",
                "field": _short(problem.path),
                "message": _short(problem.reason),
            }
            for problem in verdict.problems
        ]
        response["status"] = {
            "code": _REFUSED,
            "message": _short(verdict.message),
            "details": {"causes": causes},
        }
    elif verdict.patch:
        patch = msgspec.json.encode(list(verdict.patch))
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(patch).decode()
    if verdict.allowed and verdict.hints:
        response["warnings"] = [_short(hint) for hint in verdict.hints[:_HINTS_MAX]]
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": KIND, "response": response})


def _short(message: str) -> str:
    return message if len(message) <= _WORDS_MAX else f"{message[:_WORDS_MAX]}..."
