"""Create, update and patch: one path for all of them, as in the real server.

Decode, fill in metadata, drop unknown fields and set defaults, built-in admission, mutating
webhooks, checks (schema, CEL, kind), validating webhooks, write. A write that changes nothing
leaves the object and its version as they are.
"""

import copy
from collections.abc import Generator

from pumice.embedded.apiserver import admission, applying, kindrules, metadata, patching, tables
from pumice.embedded.apiserver.admission import AdmissionResponse, Attempt, Call
from pumice.embedded.apiserver.api_state import NAMESPACES, ApiState, decode, key, key_of
from pumice.embedded.apiserver.forms import strict
from pumice.embedded.apiserver.replies import (
    ApiReply,
    Object,
    RequestFailure,
    already_exists,
    bad_request,
    conflict,
    json_reply,
    not_found,
)
from pumice.embedded.apiserver.target import RequestTarget, of_object

CREATED = 201
USER = "pumice-admin"
APPLY = "application/apply-patch+yaml"
Answering = Generator[Call, AdmissionResponse, ApiReply]


def answered(
    api: ApiState, target: RequestTarget, obj: Object | bytes, status: int = 200
) -> ApiReply:
    """Return an object as the client wants it: plain or as a table."""
    if include := tables.wanted(target.request):
        whole = decode(obj) if isinstance(obj, bytes) else obj
        return json_reply(tables.table(api, target.resource, [whole], include=include), status)
    return json_reply(obj, status)


def create(api: ApiState, target: RequestTarget) -> Answering:
    """Create an object from a POST."""
    obj = of_object(target, target.body())
    obj = yield from create_object(api, target, obj)
    return answered(api, target, obj, CREATED)


def create_object(api: ApiState, target: RequestTarget, obj: Object) -> admission.Steps:
    """Create an object; returns it as written. Raises RequestFailure."""
    resource = target.resource
    warn(target, api.form(resource).tidy(obj))
    metadata.created(api, resource, target.namespace, obj)
    name = obj["metadata"].get("name", "")
    if api.store.get(resource.id, key_of(target.namespace, name)) is not None:
        raise already_exists(resource, name)
    _check_namespace(api, target, name)
    if resource.has_status and resource.plural not in kindrules.KEEPS_STATUS:
        obj.pop("status", None)
    kindrules.default(resource, obj)
    attempt = Attempt(
        resource=resource,
        operation="CREATE",
        namespace=target.namespace,
        name=name,
        user=USER,
        dry_run=target.dry_run,
    )
    obj = yield from _mutated(api, attempt, obj)
    kindrules.admit(api, resource, obj)
    metadata.check(resource, obj["metadata"], has_rules=api.form(resource).has_rules)
    _check(api, target, obj, None)
    yield from admission.validate(api, attempt, obj)
    metadata.tidy(obj["metadata"])
    if api.store.get(resource.id, key(obj)) is not None:
        raise already_exists(resource, name)
    if not target.dry_run:
        api.store.put(resource.id, key(obj), obj)
    return obj


def _mutated(api: ApiState, attempt: Attempt, obj: Object) -> admission.Steps:
    before = obj
    obj = yield from admission.mutate(api, attempt, obj)
    if obj is not before:
        api.form(attempt.resource).tidy(obj)
        kindrules.default(attempt.resource, obj)
    return obj


def _check_namespace(api: ApiState, target: RequestTarget, name: str) -> None:
    if not target.resource.namespaced:
        return
    if not target.namespace:
        raise bad_request("an empty namespace may not be set during creation")
    found = api.find(NAMESPACES, "", target.namespace)
    if found is None:
        raise not_found(api.kind(NAMESPACES), target.namespace)
    if "deletionTimestamp" in found["metadata"]:
        resource = target.resource
        why = (
            f"unable to create new content in namespace {target.namespace} because it is being "
            "terminated"
        )
        cause = {
            "reason": "NamespaceTerminating",
            "message": f"namespace {target.namespace} is being terminated",
            "field": "metadata.namespace",
        }
        details = {"name": name, "group": resource.group, "kind": resource.plural}
        raise RequestFailure(
            403,
            "Forbidden",
            f'{resource.qualified} "{name}" is forbidden: {why}',
            {k: v for k, v in details.items() if v} | {"causes": [cause]},
        )


def warn(target: RequestTarget, unknown: list[str]) -> None:
    """Refuse unknown fields when the client requested it. Raises RequestFailure (400)."""
    if unknown and target.request.query.get("fieldValidation") == "Strict":
        raise strict(unknown, target.resource)


def _check(api: ApiState, target: RequestTarget, obj: Object, old: Object | None) -> None:
    kindrules.check(target.resource, obj, old)
    api.form(target.resource).check(obj, old)


def update(api: ApiState, target: RequestTarget) -> Answering:
    """Replace an object from a PUT."""
    obj = of_object(target, target.body())
    old = api.load(target.resource, target.namespace, target.name)
    obj["metadata"].setdefault("name", target.name)
    written = yield from change(api, target, obj, old, is_patch=False)
    return answered(api, target, written)


def patch(api: ApiState, target: RequestTarget) -> Answering:
    """Change an object from a PATCH of any type."""
    content_type = target.request.headers.get("content-type", "").partition(";")[0].strip()
    body = target.body()
    if content_type == APPLY:
        return (yield from _apply(api, target, body))
    old = api.load(target.resource, target.namespace, target.name)
    changed = _patched(target, content_type, old, body)
    if not isinstance(changed, dict):
        raise bad_request("the patch leaves no object")
    if target.resource.custom and target.subresource:
        version = changed.get("metadata", {}).get("resourceVersion")
        changed["metadata"] = {"resourceVersion": version}
    obj = of_object(target, changed)
    written = yield from change(api, target, obj, old, is_patch=True)
    return answered(api, target, written)


def _patched(target: RequestTarget, content_type: str, old: Object, body: object) -> Object:
    base = copy.deepcopy(old)
    match content_type:
        case "application/merge-patch+json":
            if not isinstance(body, dict):
                raise bad_request("the body of a merge patch is an object")
            merged: Object = patching.merge(base, body)
            return merged
        case "application/json-patch+json":
            return patching.json_patch(base, body)
        case "application/strategic-merge-patch+json" if not target.resource.custom:
            strategic: Object = patching.strategic(base, body, target.resource.schema)
            return strategic
        case _:
            raise RequestFailure(
                415,
                "UnsupportedMediaType",
                f"the body of the request was in an unknown format - accepted media types "
                f"include: application/json-patch+json, application/merge-patch+json, {APPLY}",
            )


def _apply(api: ApiState, target: RequestTarget, body: object) -> Answering:
    obj = of_object(target, body)
    if not (manager := target.request.query.get("fieldManager", "")):
        words = "Required value: is required for apply patch"
        cause = {"reason": "FieldValueRequired", "message": words, "field": "fieldManager"}
        details = {"group": "meta.k8s.io", "kind": "PatchOptions", "causes": [cause]}
        message = f'PatchOptions.meta.k8s.io "" is invalid: fieldManager: {words}'
        raise RequestFailure(422, "Invalid", message, details)
    given = obj["metadata"].setdefault("name", target.name)
    if given != target.name:
        raise bad_request(
            f"the name of the object ({given}) does not match the name on the URL ({target.name})"
        )
    old = api.find(target.resource.id, target.namespace, target.name)
    schema = target.resource.schema
    stamp = api.timestamp()
    if old is None:
        applying.claim(obj, None, obj, manager=manager, at=stamp, subresource=target.subresource)
        owned = obj["metadata"]["managedFields"]
        written = yield from create_object(api, target, obj)
        written["metadata"]["managedFields"] = owned
        if not target.dry_run:
            api.store.put(target.resource.id, key(written), written)
        return answered(api, target, written, CREATED)
    merged = applying.merge(
        old, obj, schema, manager=manager, force=target.flag("force"), resource=target.resource
    )
    applying.claim(merged, old, obj, manager=manager, at=stamp, subresource=target.subresource)
    written = yield from change(api, target, of_object(target, merged), old, is_patch=True)
    return answered(api, target, written)


def change(
    api: ApiState, target: RequestTarget, obj: Object, old: Object, *, is_patch: bool
) -> Generator[Call, AdmissionResponse, Object]:
    """Write a changed object; returns it as it is then. Raises RequestFailure."""
    resource = target.resource
    warn(target, api.form(resource).tidy(obj))
    metadata.updated(resource, obj, old, is_patch=is_patch, subresource=target.subresource)
    obj = _parts(target, obj, old)
    kindrules.default(resource, obj)
    attempt = Attempt(
        resource=resource,
        operation="UPDATE",
        namespace=target.namespace,
        name=target.name,
        subresource=target.subresource,
        old=old,
        user=USER,
        dry_run=target.dry_run,
    )
    obj = yield from _mutated(api, attempt, obj)
    metadata.check(resource, obj["metadata"], has_rules=api.form(resource).has_rules)
    _check(api, target, obj, old)
    yield from admission.validate(api, attempt, obj)
    metadata.tidy(obj["metadata"])
    if _same(obj, old):
        return old
    if resource.has_generation and not target.subresource and _is_new_generation(target, obj, old):
        obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
    if target.dry_run:
        return obj
    now = api.find(resource.id, target.namespace, target.name)
    if now is None or now["metadata"]["resourceVersion"] != old["metadata"]["resourceVersion"]:
        raise conflict(resource, target.name, "it was changed while webhooks were asked; try again")
    if _is_done(resource.id, obj):
        api.remove(resource.id, obj)
    else:
        api.store.put(resource.id, key(obj), obj)
    return obj


def _is_done(resource_id: str, obj: Object) -> bool:
    """Return whether an object only waited for the finalizer that this write has removed."""
    meta = obj["metadata"]
    if "deletionTimestamp" not in meta or meta.get("finalizers"):
        return False
    if meta.get("deletionGracePeriodSeconds"):
        return False
    return resource_id != NAMESPACES or not (obj.get("spec") or {}).get("finalizers")


def _parts(target: RequestTarget, obj: Object, old: Object) -> Object:
    """Return the new object, with the fields that this request may not write as they were."""
    resource = target.resource
    if target.subresource == "status":
        body = {k: v for k, v in old.items() if k not in ("metadata", "status")}
        status = {"status": obj["status"]} if "status" in obj else {}
        return {**body, "metadata": obj["metadata"], **status}
    if target.subresource == "finalize":
        spec = {**old.get("spec", {}), "finalizers": (obj.get("spec") or {}).get("finalizers", [])}
        return {**old, "metadata": obj["metadata"], "spec": spec}
    if not resource.has_status:
        return obj
    rest = {k: v for k, v in obj.items() if k != "status"}
    return rest | ({"status": old["status"]} if "status" in old else {})


def _same(obj: Object, old: Object) -> bool:
    if obj == old:
        return True
    left, right = dict(obj["metadata"]), dict(old["metadata"])
    for side in (left, right):
        side.pop("managedFields", None)
    return left == right and {**obj, "metadata": 0} == {**old, "metadata": 0}


def _is_new_generation(target: RequestTarget, obj: Object, old: Object) -> bool:
    apart = {"metadata"}
    if not target.resource.custom or target.resource.has_status:
        apart.add("status")
    new = {k: v for k, v in obj.items() if k not in apart}
    return new != {k: v for k, v in old.items() if k not in apart}
