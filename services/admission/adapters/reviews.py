"""AdmissionReview v1 on the wire: what the API server sends and what it gets (W01)."""

import base64
from typing import Any, Final

import msgspec

from services.admission.rules.review import AdmissionRequest, Verdict
from shared.api.base import describe
from shared.api.nesting import cut, is_cut, is_too_deep
from shared.runtime.errors import Rejected

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"
_REFUSED: Final = 400
_WORDS_MAX: Final = 16_384
"""Letters of a message: a value that is quoted may be as long as an object can be."""
_HINTS_MAX: Final = 20


class _Resource(msgspec.Struct, frozen=True):
    resource: str = ""


class _Request(msgspec.Struct, frozen=True, rename="camel"):
    uid: str
    operation: str
    resource: _Resource = _Resource()
    name: str = ""
    namespace: str = ""
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
        raise Rejected(f"no AdmissionReview: {describe(error)}") from error
    if (review.api_version, review.kind) != (API_VERSION, KIND):
        raise Rejected(
            f"{review.api_version} {review.kind} is not served: send {API_VERSION} {KIND}",
            field="apiVersion",
        )
    if review.request is None:
        raise Rejected("request: is missing", field="request")
    asked = review.request
    return asked.uid, AdmissionRequest(
        operation=asked.operation,
        resource=asked.resource.resource,
        name=asked.name,
        namespace=asked.namespace,
        object=asked.object or {},
        old=asked.old_object or {},
        too_deep=too_deep and is_cut(msgspec.json.encode(asked.object)),
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


def _short(words: str) -> str:
    return words if len(words) <= _WORDS_MAX else f"{words[:_WORDS_MAX]}..."
