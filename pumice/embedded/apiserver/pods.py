"""The subresources of pods: binding and eviction."""

import msgspec

from pumice.embedded.apiserver import selecting
from pumice.embedded.apiserver.api_state import BUDGETS, ApiState
from pumice.embedded.apiserver.catalogue import ApiResource
from pumice.embedded.apiserver.deleting import delete_object
from pumice.embedded.apiserver.replies import (
    ApiReply,
    Object,
    RequestFailure,
    bad_request,
    conflict,
    json_reply,
)
from pumice.embedded.apiserver.target import RequestTarget, read_body
from pumice.embedded.apiserver.writing import CREATED, Answering


def bind(api: ApiState, target: RequestTarget) -> ApiReply:
    """Put a pod on a node (POST pods/NAME/binding). Raises RequestFailure."""
    binding = read_body(target.request)
    if not isinstance(binding, dict):
        raise bad_request("the body is no Binding")
    aim = binding.get("target") or {}
    node = aim.get("name")
    given = (binding.get("metadata") or {}).get("name", target.name)
    if given != target.name:
        raise bad_request(
            f"the name of the object ({given}) does not match the name on the URL ({target.name})"
        )
    if aim.get("kind", "Node") not in ("", "Node"):
        raise RequestFailure(
            500, "", 'invalid value for binding: target.kind: must be empty or "Node"'
        )
    if not node:
        raise RequestFailure(500, "", "invalid value for binding: target.name: Required value")
    pod = api.load(target.resource, target.namespace, target.name)
    preconditions = binding.get("metadata") or {}
    resource = msgspec.structs.replace(target.resource, plural="pods/binding")
    _check_identity(target.resource, target.name, pod, preconditions)
    _check_free(resource, target.name, pod)
    if target.dry_run:
        return json_reply(_done(), CREATED)
    pod["spec"]["nodeName"] = node
    meta = pod["metadata"]
    for field in ("annotations", "labels"):
        if preconditions.get(field):
            meta[field] = {**(meta.get(field) or {}), **preconditions[field]}
    conditions = [c for c in _conditions(pod) if c.get("type") != "PodScheduled"]
    conditions.append(
        {
            "type": "PodScheduled",
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": api.timestamp(),
        }
    )
    pod["status"]["conditions"] = conditions
    api.write(target.resource.id, pod)
    return json_reply(_done(), CREATED)


def _done() -> Object:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "code": CREATED,
    }


def _conditions(pod: Object) -> list[Object]:
    return list(pod.setdefault("status", {}).get("conditions") or ())


def _check_identity(resource: ApiResource, name: str, pod: Object, preconditions: Object) -> None:
    for field, word in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        value, own = preconditions.get(field), pod["metadata"][field]
        if value and value != own:
            raise conflict(
                resource,
                name,
                f"StorageError: invalid object, Code: 4, Key: /registry/pods/"
                f"{pod['metadata']['namespace']}/{name}, ResourceVersion: 0, AdditionalErrorMsg: "
                f"Precondition failed: {word} in precondition: {value}, {word} in object meta: "
                f"{own}",
            )


def _check_free(resource: ApiResource, name: str, pod: Object) -> None:
    if "deletionTimestamp" in pod["metadata"]:
        raise conflict(resource, name, f"pod {name} is being deleted, cannot be assigned to a host")
    if node := pod["spec"].get("nodeName"):
        raise conflict(resource, name, f'pod {name} is already assigned to node "{node}"')
    if pod["spec"].get("schedulingGates"):
        raise conflict(resource, name, f"pod {name} has non-empty .spec.schedulingGates")


def evict(api: ApiState, target: RequestTarget) -> Answering:
    """Delete a pod if the disruption budgets over it allow (POST pods/NAME/eviction)."""
    body = read_body(target.request)
    eviction = body if isinstance(body, dict) else {}
    pod = api.load(target.resource, target.namespace, target.name)
    status = pod.get("status") or {}
    terminal = status.get("phase") in ("Succeeded", "Failed", "Pending")
    if not terminal and "deletionTimestamp" not in pod["metadata"]:
        _spend(api, target, pod)
    options = eviction.get("deleteOptions") or {}
    yield from delete_object(api, target, pod, dict(options))
    return json_reply(_done(), CREATED)


def _spend(api: ApiState, target: RequestTarget, pod: Object) -> None:
    labels = pod["metadata"].get("labels") or {}
    budgets = [
        budget
        for budget in api.objects(BUDGETS, target.namespace)
        if selecting.of_spec((budget.get("spec") or {}).get("selector"))(labels)
    ]
    if len(budgets) > 1:
        raise RequestFailure(
            500,
            "InternalError",
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does "
            "not support.",
        )
    for budget in budgets:
        name, own = budget["metadata"]["name"], budget.get("status") or {}
        allowed = own.get("disruptionsAllowed", 0)
        if allowed > 0:
            own["disruptionsAllowed"] = allowed - 1
            api.write(BUDGETS, {**budget, "status": own})
            continue
        cause = {
            "reason": "DisruptionBudget",
            "message": f"The disruption budget {name} needs {own.get('desiredHealthy', 0)} healthy "
            f"pods and has {own.get('currentHealthy', 0)} currently",
        }
        raise RequestFailure(
            429,
            "TooManyRequests",
            "Cannot evict pod as it would violate the pod's disruption budget.",
            {"causes": [cause]},
        )
