"""Users: the annotation `pumice.dev/user` says who created an object, whatever its author wrote.

A trusted requester, such as the controller, may state another user than itself. For a requester
with a source (`users` in `--admission-conf`), such as an operator, the user is an annotation of the
object's owner.
"""

import msgspec

from services.admission.rules.review import (
    ALLOWED,
    AdmissionRequest,
    ReviewFacts,
    Terms,
    Verdict,
    annotated_with,
    annotation_path,
    mutated,
    unexpected,
)
from shared.api import keys
from shared.api.base import Json
from shared.api.lenient import lenient
from shared.api.meta import OwnerReference


def mutate(request: AdmissionRequest, facts: ReviewFacts, terms: Terms) -> Verdict:
    """Write the user of a new object, and keep that of an existing one."""
    if wrong := unexpected(request, "CREATE", "UPDATE"):
        return wrong
    if not _is_for_us(request, terms):
        return ALLOWED
    stated = _user(request.object)
    if stated and request.requester in terms.trusted_requesters:
        return ALLOWED
    if request.operation == "UPDATE":
        user = _user(request.old)
    else:
        source = terms.user_sources.get(request.requester, "")
        user = facts.owner_annotations.get(source) or request.requester
    if user == stated:
        return ALLOWED
    if not user:
        return mutated([{"op": "remove", "path": annotation_path(keys.USER)}])
    return mutated([annotated_with(request.object, keys.USER, user)])


def controller_of(obj: Json) -> OwnerReference | None:
    """Return the owner that manages an object, None if there is none or it cannot be read."""
    metadata = obj.get("metadata")
    references = metadata.get("ownerReferences") if isinstance(metadata, dict) else None
    for stated in references if isinstance(references, list) else ():
        if isinstance(stated, dict) and stated.get("controller") is True:
            try:
                return lenient(stated, OwnerReference)
            except msgspec.ValidationError:
                return None
    return None


def _is_for_us(request: AdmissionRequest, terms: Terms) -> bool:
    """Return whether an object is one of ours: of pods only those of our schedulers are."""
    if request.resource != "pods":
        return True
    spec = request.object.get("spec")
    return isinstance(spec, dict) and spec.get("schedulerName") in terms.scheduler_names


def _user(obj: Json) -> str:
    found = _annotations(obj.get("metadata")).get(keys.USER)
    return found if isinstance(found, str) else ""


def _annotations(metadata: object) -> Json:
    found = metadata.get("annotations") if isinstance(metadata, dict) else None
    return found if isinstance(found, dict) else {}
