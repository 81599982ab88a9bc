"""Admission webhooks: selects those for a write, makes their requests and applies their replies.

The core has no sockets: a write is a generator that yields each `Call` and is sent its
`AdmissionResponse`. Its driver makes the call: `http` over HTTPS, the simulation by calling a
function.
"""

import base64
import binascii
from collections.abc import Generator, Iterator, Mapping
from typing import Any, Final

import cel
import msgspec

from pumice.embedded.apiserver import selecting
from pumice.embedded.apiserver.api_state import NAMESPACES, ApiState
from pumice.embedded.apiserver.catalogue import ApiResource
from pumice.embedded.apiserver.expressions import ExpressionError, compiled
from pumice.embedded.apiserver.patching import json_patch
from pumice.embedded.apiserver.replies import Object, RequestFailure, forbidden

MUTATING: Final = "mutatingwebhookconfigurations.admissionregistration.k8s.io"
VALIDATING: Final = "validatingwebhookconfigurations.admissionregistration.k8s.io"
_EXEMPT: Final = "admissionregistration.k8s.io"


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One webhook to call; `url` is empty for one that is named by a Service."""

    webhook: str
    url: str
    service: str
    ca: bytes
    """PEM of the authority that the webhook's certificate is checked against; empty: the system's.
    """
    timeout_s: float
    body: bytes


class AdmissionResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The reply of a webhook: the AdmissionReview, or the error in its place."""

    body: bytes = b""
    error: str = ""


Steps = Generator[Call, AdmissionResponse, Object]


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One write that is being admitted."""

    resource: ApiResource
    operation: str
    namespace: str
    name: str
    subresource: str = ""
    old: Object | None = None
    user: str = ""
    dry_run: bool = False


def mutate(api: ApiState, attempt: Attempt, obj: Object) -> Steps:
    """Call the mutating webhooks; returns the object with their patches. Raises RequestFailure."""
    conditions = _MatchConditions(attempt)
    for hook in _webhooks(api, MUTATING, attempt):
        if not (_matches(api, hook, attempt, obj) and conditions.hold(hook, obj)):
            continue
        response = yield from _review_with(api, hook, attempt, obj)
        patch = response.get("patch") if response else None
        if patch:
            try:
                operations = msgspec.json.decode(base64.b64decode(patch))
            except (msgspec.DecodeError, binascii.Error) as exc:
                raise _broken(hook, f"its patch cannot be read: {exc}") from exc
            obj = json_patch(obj, operations)
    return obj


def validate(api: ApiState, attempt: Attempt, obj: Object | None) -> Steps:
    """Call the validating webhooks. Raises RequestFailure when one denies the write."""
    conditions = _MatchConditions(attempt)
    for hook in _webhooks(api, VALIDATING, attempt):
        if _matches(api, hook, attempt, obj) and conditions.hold(hook, obj):
            yield from _review_with(api, hook, attempt, obj)
    return obj or {}


def _webhooks(api: ApiState, configurations: str, attempt: Attempt) -> Iterator[Object]:
    if attempt.resource.group == _EXEMPT:
        return
    for configuration in api.objects(configurations):
        yield from configuration.get("webhooks") or ()


def _matches(api: ApiState, hook: Mapping[str, Any], attempt: Attempt, obj: Object | None) -> bool:
    if not any(_covers(rule, attempt) for rule in hook.get("rules") or ()):
        return False
    objects = [o for o in (obj, attempt.old) if o is not None]
    chosen = selecting.of_spec(hook.get("objectSelector") or {})
    if not any(chosen(o["metadata"].get("labels") or {}) for o in objects):
        return False
    if attempt.namespace:
        namespace = api.find(NAMESPACES, "", attempt.namespace) or {"metadata": {}}
        labels = namespace["metadata"].get("labels") or {}
        return selecting.of_spec(hook.get("namespaceSelector") or {})(labels)
    if attempt.resource.id == NAMESPACES:
        labels = objects[0]["metadata"].get("labels") or {}
        return selecting.of_spec(hook.get("namespaceSelector") or {})(labels)
    return True


class _MatchConditions:
    """Evaluates the match conditions of webhooks for one write, whose objects it converts once."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._obj: Object | None = None
        self._variables: cel.Context | None = None

    def hold(self, hook: Object, obj: Object | None) -> bool:
        """Return whether a webhook is to be called.

        One false condition suffices for no. Else an error counts by the webhook's failure policy:
        as false, or, for `Fail`, as a RequestFailure.
        """
        conditions = hook.get("matchConditions") or ()
        if not conditions:
            return True
        errors = []
        variables = self._of(obj)
        for condition in conditions:
            try:
                value = compiled(condition["expression"]).value(variables)
            except (ValueError, ExpressionError) as error:
                errors.append(str(error))
                continue
            if value is False:
                return False
            if value is not True:
                errors.append(f"match condition {condition['name']!r} is no bool")
        if errors and hook.get("failurePolicy") != "Ignore":
            resource, name = self._attempt.resource, self._attempt.name
            raise forbidden(resource, name, "; ".join(errors))
        return not errors

    def _of(self, obj: Object | None) -> cel.Context:
        if self._variables is None or obj is not self._obj:
            self._obj = obj
            request = _request("", self._attempt)
            known = {"object": obj, "oldObject": self._attempt.old, "request": request}
            self._variables = cel.Context(known)
        return self._variables


def _covers(rule: Mapping[str, Any], attempt: Attempt) -> bool:
    resource = attempt.resource
    own = f"{resource.plural}/{attempt.subresource}" if attempt.subresource else resource.plural
    wide = {"*/*", own}
    wide |= {f"{resource.plural}/*", f"*/{attempt.subresource}"} if attempt.subresource else {"*"}
    wide |= {f"{resource.plural}/*"}
    scope = rule.get("scope", "*")
    return (
        not {"*", attempt.operation}.isdisjoint(rule.get("operations") or ())
        and not {"*", resource.group}.isdisjoint(rule.get("apiGroups") or ())
        and not {"*", resource.version}.isdisjoint(rule.get("apiVersions") or ())
        and not wide.isdisjoint(rule.get("resources") or ())
        and scope in ("*", "Namespaced" if resource.namespaced else "Cluster")
    )


def _review_with(
    api: ApiState, hook: Object, attempt: Attempt, obj: Object | None
) -> Generator[Call, AdmissionResponse, Object]:
    uid = api.uid()
    reply = yield _call(hook, _review(uid, attempt, obj))
    response: Object = {}
    error = reply.error
    if not error:
        try:
            response = msgspec.json.decode(reply.body)["response"]
            if response.get("uid") != uid:
                error = f'expected response.uid="{uid}", got "{response.get("uid", "")}"'
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError) as exc:
            error = f"its answer cannot be read: {exc}"
    if error:
        if hook.get("failurePolicy") == "Ignore":
            return {}
        raise _broken(hook, error)
    if response.get("allowed"):
        return response
    status = response.get("status") or {}
    detail = status.get("message") or status.get("reason") or ""
    why = f": {detail}" if detail else " without explanation"
    code = status.get("code") or 400
    message = f'admission webhook "{hook["name"]}" denied the request{why}'
    reason = status.get("reason") or ("Forbidden" if code == 403 else "")  # noqa: PLR2004 - HTTP
    raise RequestFailure(code, reason, message, status.get("details"))


def _broken(hook: Object, error: str) -> RequestFailure:
    return RequestFailure(
        500,
        "InternalError",
        f'Internal error occurred: failed calling webhook "{hook["name"]}": failed to call '
        f"webhook: {error}",
        {"causes": [{"message": f'failed calling webhook "{hook["name"]}": {error}'}]},
    )


def _call(hook: Object, review: Object) -> Call:
    client = hook["clientConfig"]
    service = client.get("service") or {}
    return Call(
        webhook=hook["name"],
        url=client.get("url") or "",
        service=f"{service['namespace']}/{service['name']}" if service else "",
        ca=base64.b64decode(client.get("caBundle") or ""),
        timeout_s=float(hook.get("timeoutSeconds") or 10),
        body=msgspec.json.encode(review),
    )


def _review(uid: str, attempt: Attempt, obj: Object | None) -> Object:
    request = {**_request(uid, attempt), "object": obj, "oldObject": attempt.old}
    return {
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": request,
    }


def _request(uid: str, attempt: Attempt) -> Object:
    """Return the request of a review without its objects."""
    resource = attempt.resource
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    place = {"group": resource.group, "version": resource.version, "resource": resource.plural}
    sub = {"subResource": attempt.subresource, "requestSubResource": attempt.subresource}
    return {
        "uid": uid,
        "kind": kind,
        "resource": place,
        "requestKind": kind,
        "requestResource": place,
        **(sub if attempt.subresource else {}),
        "name": attempt.name,
        **({"namespace": attempt.namespace} if attempt.namespace else {}),
        "operation": attempt.operation,
        "userInfo": {
            "username": attempt.user,
            "groups": ["system:masters", "system:authenticated"],
        },
        "dryRun": attempt.dry_run,
        "options": None,
    }
