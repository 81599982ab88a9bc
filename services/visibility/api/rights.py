"""Questions to the cluster's authorizer: the body of a SubjectAccessReview, and refusals."""

from typing import Final

import msgspec

from services.visibility.api.requests import ServedTarget
from services.visibility.api.resources import CLUSTER
from services.visibility.api.statuses import FORBIDDEN, ApiFailure
from services.visibility.api.users import User
from shared.api.base import Json
from shared.api.usage_reports import UsageReportSpec
from shared.api.visibility import GROUP, VERSION

_REPORTS: Final = "usagereports"


class AccessRight(msgspec.Struct, frozen=True, kw_only=True):
    """A verb on a resource of ours, or on a path that is none."""

    verb: str
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


def of_target(target: ServedTarget) -> AccessRight:
    """Return the right that a request needs."""
    return AccessRight(
        verb=target.verb,
        resource=target.resource.name,
        subresource=target.resource.subresource,
        namespace=target.namespace,
        name=target.name,
    )


def of_path(path: str) -> AccessRight:
    """Return the right to read a path of discovery."""
    return AccessRight(verb="get", path=path)


def to_see(namespace: str) -> AccessRight:
    """Return the right that makes the jobs of a namespace visible in results about others."""
    return AccessRight(verb="get", resource="pendingjobs", namespace=namespace)


def of_report(user: User, spec: UsageReportSpec) -> tuple[AccessRight, ...]:
    """Return the rights of which one is needed for a report; none for one's own usage."""
    if spec.user == user.name:
        return ()
    everything = AccessRight(verb="get", resource=_REPORTS)
    rights = [everything]
    if spec.queue:
        of_queue = AccessRight(verb="get", resource="queues", subresource=_REPORTS, name=spec.queue)
        rights.append(of_queue)
    if spec.namespace:
        rights.append(msgspec.structs.replace(everything, namespace=spec.namespace))
    return tuple(rights)


IMAGINE_CLUSTER: Final = AccessRight(verb="create", resource="whatifs", subresource=CLUSTER)
"""The right to run what-ifs with other queues and nodes."""


def review(user: User, right: AccessRight) -> Json:
    """Return the SubjectAccessReview for a user and a right."""
    spec: Json = {"user": user.name, "groups": list(user.groups)}
    if user.uid:
        spec["uid"] = user.uid
    if user.extra:
        spec["extra"] = {key: list(values) for key, values in user.extra}
    if right.path:
        spec["nonResourceAttributes"] = {"path": right.path, "verb": right.verb}
    else:
        attributes = {
            "group": GROUP,
            "version": VERSION,
            "verb": right.verb,
            "resource": right.resource,
            "subresource": right.subresource,
            "namespace": right.namespace,
            "name": right.name,
        }
        spec["resourceAttributes"] = {key: value for key, value in attributes.items() if value}
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": spec,
    }


def forbidden(user: User, right: AccessRight, reason: str) -> ApiFailure:
    """Return a 403 with the message that kube-apiserver has for it."""
    why = f": {reason}" if reason else ""
    if right.path:
        message = f'forbidden: User "{user.name}" cannot {right.verb} path "{right.path}"{why}'
        return ApiFailure(FORBIDDEN, message)
    resource = "/".join(filter(None, (right.resource, right.subresource)))
    scope = f'in the namespace "{right.namespace}"' if right.namespace else "at the cluster scope"
    subject = (
        f'{right.resource}.{GROUP} "{right.name}"' if right.name else (f"{right.resource}.{GROUP}")
    )
    message = (
        f'{subject} is forbidden: User "{user.name}" cannot {right.verb} resource "{resource}" '
        f'in API group "{GROUP}" {scope}{why}'
    )
    details = {"name": right.name, "group": GROUP, "kind": right.resource}
    return ApiFailure(FORBIDDEN, message, details={k: v for k, v in details.items() if v})
