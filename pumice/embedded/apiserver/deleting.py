"""Delete: preconditions, grace periods of pods, finalizers, propagation."""

from collections.abc import Generator
from typing import Any

from pumice.embedded.apiserver import admission, kindrules, metadata
from pumice.embedded.apiserver.admission import AdmissionResponse, Attempt, Call
from pumice.embedded.apiserver.api_state import NAMESPACES, PODS, ApiState, decode
from pumice.embedded.apiserver.catalogue import ApiResource
from pumice.embedded.apiserver.reading import accepts
from pumice.embedded.apiserver.replies import Object, bad_request, json_reply, success
from pumice.embedded.apiserver.target import RequestTarget
from pumice.embedded.apiserver.writing import USER, Answering

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
_FINALIZER = {"Foreground": FOREGROUND, "Orphan": ORPHAN}


def delete(api: ApiState, target: RequestTarget) -> Answering:
    """Delete one object."""
    obj = api.load(target.resource, target.namespace, target.name)
    return json_reply((yield from delete_object(api, target, obj, options(target))))


def options(target: RequestTarget) -> Object:
    """Return the DeleteOptions of body and query. Raises RequestFailure (400)."""
    options_body: Any = target.body() if target.request.body.strip() else {}
    if not isinstance(options_body, dict):
        raise bad_request("the body of a delete is a DeleteOptions object")
    query = target.request.query
    if (grace := target.number("gracePeriodSeconds")) is not None:
        options_body.setdefault("gracePeriodSeconds", grace)
    if "propagationPolicy" in query:
        options_body.setdefault("propagationPolicy", query["propagationPolicy"])
    return options_body


def delete_object(
    api: ApiState, target: RequestTarget, obj: Object, options_body: Object
) -> Generator[Call, AdmissionResponse, Object]:
    """Delete an object as far as finalizers and grace period allow; return the reply."""
    resource, meta = target.resource, obj["metadata"]
    name: str = meta["name"]
    metadata.check_preconditions(resource, name, meta, options_body.get("preconditions"))
    attempt = Attempt(
        resource=resource,
        operation="DELETE",
        namespace=meta.get("namespace", ""),
        name=name,
        old=obj,
        user=USER,
        dry_run=target.dry_run,
    )
    yield from admission.validate(api, attempt, None)
    done = success(resource, name, meta["uid"])
    if target.dry_run or "dryRun" in options_body:
        return obj if resource.plural in kindrules.RETURNS_DELETED else done
    if _begin(api, resource, obj, options_body):
        return obj
    if resource.id == PODS:
        meta["deletionTimestamp"], meta["deletionGracePeriodSeconds"] = api.timestamp(), 0
        meta["generation"] = meta.get("generation", 0) + 1
    api.remove(resource.id, obj)
    whole = not resource.custom and resource.plural in kindrules.RETURNS_DELETED
    return obj if whole else done


def _begin(api: ApiState, resource: ApiResource, obj: Object, options_body: Object) -> bool:
    """Mark an object as being deleted; False when nothing holds it and it can go at once."""
    meta = obj["metadata"]
    before = dict(meta)
    grace = _grace(obj, options_body) if resource.id == PODS else 0
    finalizers = [f for f in meta.get("finalizers") or () if f not in _FINALIZER.values()]
    remaining = [f for f in meta.get("finalizers") or () if f in _FINALIZER.values()]
    policy = options_body.get("propagationPolicy")
    if options_body.get("orphanDependents"):
        policy = "Orphan"
    own = [_FINALIZER[policy]] if policy in _FINALIZER else ([] if policy else remaining)
    finalizers += own
    if resource.id == NAMESPACES:
        obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
    elif not finalizers and not grace:
        return False
    if finalizers:
        meta["finalizers"] = finalizers
    else:
        meta.pop("finalizers", None)
    shorter = grace < meta.get("deletionGracePeriodSeconds", grace + 1)
    if "deletionTimestamp" not in meta or (resource.id == PODS and shorter):
        meta["deletionTimestamp"] = api.timestamp(grace)
        meta["deletionGracePeriodSeconds"] = grace
        if "generation" in meta and "deletionTimestamp" not in before:
            meta["generation"] += 1
    if resource.id == NAMESPACES:
        meta.pop("deletionGracePeriodSeconds", None)
    if meta != before:
        api.write(resource.id, obj)
    return True


def _grace(pod: Object, options_body: Object) -> int:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    requested = options_body.get("gracePeriodSeconds")
    grace = spec.get("terminationGracePeriodSeconds", 30) if requested is None else requested
    if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
        return 0
    return max(int(grace), 1) if grace < 0 else int(grace)


def delete_collection(api: ApiState, target: RequestTarget) -> Answering:
    """Delete all selected objects of a collection."""
    options_body = options(target)
    accept = accepts(target)
    collection = api.store.collection(target.resource.id)
    deleted = []
    for key in list(collection.keys(target.prefix)):
        entry = collection.entries.get(key)
        if entry is None or (accept is not None and not accept(key, entry.body)):
            continue
        obj = decode(entry.body)
        yield from delete_object(api, target, obj, dict(options_body))
        deleted.append(obj)
    resource = target.resource
    return json_reply(
        {
            "kind": f"{resource.kind}List",
            "apiVersion": resource.api_version,
            "metadata": {"resourceVersion": str(api.store.version)},
            "items": deleted,
        }
    )
