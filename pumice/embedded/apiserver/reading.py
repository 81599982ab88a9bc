"""The verbs that read: get, list with its pages and selectors, watch with its past and bookmarks.

A list and the watch that follows it speak of the same version: pages are cut from what was there
at the first one, and a watch begins with the changes behind the version that it names.
"""

import base64
from collections.abc import Callable, Iterable, Mapping

import msgspec

from pumice.embedded.apiserver import selecting, tables
from pumice.embedded.apiserver.api_state import ApiState, decode, key_of
from pumice.embedded.apiserver.catalogue import ApiResource
from pumice.embedded.apiserver.replies import (
    ApiReply,
    Object,
    RequestFailure,
    bad_request,
    expired,
    json_reply,
    not_found,
)
from pumice.embedded.apiserver.store import Collection, ObjectVersion
from pumice.embedded.apiserver.target import RequestTarget
from pumice.embedded.apiserver.watching import Accepts, Watch


class _Labels(msgspec.Struct):
    labels: dict[str, str] | None = None


class _Headed(msgspec.Struct):
    metadata: _Labels


class _Page(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a continue token."""

    version: int
    after: str


_labels = msgspec.json.Decoder(_Headed)
_pages = msgspec.json.Decoder(_Page)
Convert = Callable[[bytes], bytes]


def versioned(resource: ApiResource) -> Convert | None:
    """Return the conversion of a kept body to this version of the kind, None without one."""
    if not resource.custom:
        return None
    head = f'"apiVersion":"{resource.api_version}"'.encode()

    def convert(body: bytes) -> bytes:
        if head in body[:200]:
            return body
        obj = decode(body)
        obj["apiVersion"] = resource.api_version
        return msgspec.json.encode(obj)

    return convert


def get(api: ApiState, target: RequestTarget) -> ApiReply:
    """Return one object."""
    entry = api.store.get(target.resource.id, key_of(target.namespace, target.name))
    if entry is None:
        raise not_found(target.resource, target.name)
    convert = versioned(target.resource)
    body = convert(entry.body) if convert else entry.body
    if include := tables.wanted(target.request):
        return json_reply(tables.table(api, target.resource, [decode(body)], include=include))
    return json_reply(body)


def accepts(target: RequestTarget) -> Accepts | None:
    """Return the test that the selectors of a request mean. Raises RequestFailure (400)."""
    query = target.request.query
    by_label = selecting.labels(query.get("labelSelector", ""))
    by_field = selecting.fields(query.get("fieldSelector", ""), target.resource)
    only = f"/{target.name}" if target.name else ""
    if by_label is None and by_field is None and not only:
        return None

    def accept(key: str, body: bytes) -> bool:
        if only and not key.endswith(only):
            return False
        if by_label is not None and not by_label(_labels.decode(body).metadata.labels or {}):
            return False
        return by_field is None or by_field(decode(body))

    return accept


def listing(api: ApiState, target: RequestTarget) -> ApiReply:
    """Return a list, or a page of one."""
    query = target.request.query
    collection = api.store.collection(target.resource.id)
    version, after, entries = _snapshot(api, target, collection)
    accept = accepts(target)
    limit = target.number("limit") or 0
    bodies: list[bytes] = []
    remaining, last = 0, ""
    keys = collection.keys(target.prefix) if entries is None else _sorted(entries, target.prefix)
    found = collection.entries if entries is None else entries
    for key in keys:
        if after and key <= after:
            continue
        body = found[key].body
        if accept is not None and not accept(key, body):
            continue
        if limit and len(bodies) >= limit:
            remaining += 1
            continue
        bodies.append(body)
        last = key
    metadata: Object = {"resourceVersion": str(version)}
    if remaining:
        token = msgspec.json.encode(_Page(version=version, after=last))
        metadata["continue"] = base64.urlsafe_b64encode(token).decode().rstrip("=")
        if not (query.get("labelSelector") or query.get("fieldSelector")):
            metadata["remainingItemCount"] = remaining
    convert = versioned(target.resource)
    if convert is not None:
        bodies = [convert(body) for body in bodies]
    if include := tables.wanted(target.request):
        table = tables.table(api, target.resource, [decode(b) for b in bodies], include=include)
        return json_reply(table | {"metadata": metadata})
    return json_reply(_encoded(target.resource, metadata, bodies))


def _encoded(resource: ApiResource, metadata: Object, bodies: list[bytes]) -> bytes:
    head = msgspec.json.encode(
        {
            "kind": f"{resource.kind}List",
            "apiVersion": resource.api_version,
            "metadata": metadata,
        }
    )
    return head[:-1] + b',"items":[' + b",".join(bodies) + b"]}"


def _sorted(entries: Iterable[str], prefix: str) -> list[str]:
    return sorted(key for key in entries if key.startswith(prefix))


def _snapshot(
    api: ApiState, target: RequestTarget, collection: Collection
) -> tuple[int, str, dict[str, ObjectVersion] | None]:
    """Return the version of a list, the key that it goes on after, and past state if it is past."""
    query = target.request.query
    if token := query.get("continue", ""):
        try:
            page = _pages.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        except (ValueError, msgspec.DecodeError) as exc:
            raise bad_request(f"continue key is not valid: {exc}") from exc
        try:
            return page.version, page.after, collection.at(page.version)
        except RequestFailure as exc:
            raise expired(
                "The provided continue parameter is too old to display a consistent list result. "
                "You can start a new list without the continue parameter."
            ) from exc
    version = target.number("resourceVersion") or 0
    match = query.get("resourceVersionMatch", "")
    if match and not query.get("resourceVersion"):
        words = (
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless "
            "resourceVersion is provided"
        )
        raise RequestFailure(422, "Invalid", f'ListOptions.meta.k8s.io "" is invalid: {words}')
    if version > api.store.version:
        message = f"Too large resource version: {version}, current: {api.store.version}"
        cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
        details = {"causes": [cause], "retryAfterSeconds": 1}
        raise RequestFailure(504, "Timeout", f"Timeout: {message}", details)
    if version and (match == "Exact" or (not match and target.number("limit"))):
        return version, "", collection.at(version)
    return api.store.version, "", None


def watch(api: ApiState, target: RequestTarget) -> Watch:
    """Open a watch. Raises RequestFailure (400, 422)."""
    query = target.request.query
    collection = api.store.collection(target.resource.id)
    initial = query.get("sendInitialEvents")
    _check_initial(query, initial)
    ends = target.number("timeoutSeconds")
    opened = Watch(
        target.resource,
        accepts=accepts(target),
        prefix=target.prefix,
        convert=versioned(target.resource),
        bookmarks=target.flag("allowWatchBookmarks"),
        now=api.now(),
        ends_at=None if ends is None else api.now() + ends,
        table=_as_table(api, target),
    )
    version = target.number("resourceVersion") or 0
    wants_state = initial == "true" or (initial is None and not version)
    if wants_state:
        for key in collection.keys(target.prefix):
            opened.initial(key, collection.entries[key])
        if initial == "true" and opened.bookmarks:
            opened.bookmark(api.store.version, initial_end=True)
        return opened
    try:
        for change in collection.since(version):
            opened.feed(change, {})
    except RequestFailure as failure:
        opened.fail(failure)
    return opened


def _as_table(api: ApiState, target: RequestTarget) -> Callable[[Object, bool], Object] | None:
    include = tables.wanted(target.request)
    if not include:
        return None
    return lambda obj, first: tables.table(
        api, target.resource, [obj], include=include, headed=first
    )


def _check_initial(query: Mapping[str, str], initial: str | None) -> None:
    match = query.get("resourceVersionMatch", "")
    faults = []
    if initial is not None and match != "NotOlderThan":
        faults.append(
            "resourceVersionMatch: Forbidden: sendInitialEvents requires setting "
            "resourceVersionMatch to NotOlderThan"
        )
    elif initial is None and match:
        faults.append(
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless "
            "sendInitialEvents is provided"
        )
    if faults:
        message = f'ListOptions.meta.k8s.io "" is invalid: {faults[0]}'
        cause = {
            "reason": "FieldValueForbidden",
            "message": faults[0].partition(": ")[2],
            "field": "resourceVersionMatch",
        }
        details = {"group": "meta.k8s.io", "kind": "ListOptions", "causes": [cause]}
        raise RequestFailure(422, "Invalid", message, details)
