"""The rules of `metadata`: names, fields of clients, changes on each write, preconditions."""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from pumice.embedded.apiserver.api_state import EVENTS, SUFFIX, ApiState
from pumice.embedded.apiserver.catalogue import ApiResource
from pumice.embedded.apiserver.replies import (
    FieldFault,
    Object,
    RequestFailure,
    bad_request,
    conflict,
    invalid,
    rules_left_out,
)
from pumice.embedded.apiserver.replies import stale as stale_version

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(rf"{_LABEL.pattern}(\.{_LABEL.pattern})*")
_QUALIFIED: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_LONGEST_LABEL: Final = 63
_LONGEST_NAME: Final = 253
_MOST_ANNOTATIONS: Final = 256 * 1024
_SUBDOMAIN_WORDS: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_WORDS: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_VALUE_WORDS: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  "
    "or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_KEY_WORDS: Final = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_SERVERS: Final = (
    "selfLink",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "managedFields",
)
_STANDARD_FINALIZERS: Final = ("foregroundDeletion", "kubernetes", "orphan")
_KEPT: Final = (
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "generateName",
    "selfLink",
)


def created(api: ApiState, resource: ApiResource, namespace: str, obj: Object) -> None:
    """Fill in the metadata of a new object, in place. Raises RequestFailure."""
    metadata = obj.setdefault("metadata", {})
    if not isinstance(metadata, dict):
        raise bad_request("metadata is no object")
    _check_texts(resource, metadata)
    own = metadata.get("namespace") or ""
    if own and own != namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if metadata.pop("resourceVersion", ""):
        raise RequestFailure(500, "", "resourceVersion should not be set on objects to be created")
    for field in _SERVERS:
        metadata.pop(field, None)
    if not metadata.get("name") and metadata.get("generateName"):
        longest = _LONGEST_LABEL - SUFFIX
        metadata["name"] = str(metadata["generateName"])[:longest] + api.suffix()
    if namespace:
        metadata["namespace"] = namespace
    else:
        metadata.pop("namespace", None)
    metadata["uid"] = api.uid()
    metadata["creationTimestamp"] = api.timestamp()
    if resource.has_generation:
        metadata["generation"] = 1


def _check_texts(resource: ApiResource, metadata: Mapping[str, Any]) -> None:
    """Raise RequestFailure (400) for labels and annotations that are no map of texts."""
    for field in ("labels", "annotations"):
        entries = metadata.get(field) or {}
        if not isinstance(entries, dict) or not all(isinstance(v, str) for v in entries.values()):
            raise bad_request(
                f"{resource.kind} in version {resource.api_version!r} cannot be handled as a "
                f"{resource.kind}: metadata.{field} is no map of strings"
            )


def check(resource: ApiResource, metadata: Object, *, has_rules: bool = False) -> None:
    """Raise RequestFailure (422) for names, labels and annotations that break the rules.

    `has_rules`: the kind has CEL rules; the error adds that they were not checked.
    """
    faults = [*_name_faults(resource, metadata), *_label_faults(metadata)]
    annotations = metadata.get("annotations") or {}
    bad = [key for key in annotations if not _is_key(key.lower())]
    faults += [_fault("metadata.annotations", key, _KEY_WORDS) for key in bad]
    if sum(len(k) + len(v) for k, v in annotations.items()) > _MOST_ANNOTATIONS:
        words = f"Too long: may not be more than {_MOST_ANNOTATIONS} bytes"
        faults.append(
            FieldFault(field="metadata.annotations", message=words, reason="FieldValueTooLong")
        )
    for owner in metadata.get("ownerReferences") or ():
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                path = f"metadata.ownerReferences.{field}"
                words = f'Invalid value: "": {field if field != "apiVersion" else "version"} must '
                faults.append(FieldFault(field=path, message=words + "not be empty"))
    if sum(bool(o.get("controller")) for o in metadata.get("ownerReferences") or ()) > 1:
        words = "Invalid value: only one reference can have controller set to true"
        faults.append(FieldFault(field="metadata.ownerReferences", message=words))
    faults += [] if resource.custom else _finalizer_faults(metadata)
    faults += rules_left_out(faults) if has_rules else []
    if faults:
        raise invalid(resource, metadata.get("name", ""), faults)


def _finalizer_faults(metadata: Mapping[str, Any]) -> list[FieldFault]:
    words = "name is neither a standard finalizer name nor is it fully qualified"
    return [
        _fault(f"metadata.finalizers[{index}]", name, words)
        for index, name in enumerate(metadata.get("finalizers") or ())
        if "/" not in name and name not in _STANDARD_FINALIZERS
    ]


def _name_faults(resource: ApiResource, metadata: Object) -> list[FieldFault]:
    name = metadata.get("name") or ""
    if name and resource.id == EVENTS:
        return []
    if not name:
        words = "Required value: name or generateName is required"
        return [FieldFault(field="metadata.name", message=words, reason="FieldValueRequired")]
    if resource.plural in ("namespaces", "services") and not resource.group:
        if not _LABEL.fullmatch(name) or len(name) > _LONGEST_LABEL:
            return [_fault("metadata.name", name, _LABEL_WORDS)]
    elif not _SUBDOMAIN.fullmatch(name):
        return [_fault("metadata.name", name, _SUBDOMAIN_WORDS)]
    elif len(name) > _LONGEST_NAME:
        return [_fault("metadata.name", name, f"must be no more than {_LONGEST_NAME} characters")]
    return []


def _label_faults(metadata: Object) -> list[FieldFault]:
    faults = []
    for key, value in (metadata.get("labels") or {}).items():
        if not _is_key(key):
            faults.append(_fault("metadata.labels", key, _KEY_WORDS))
        if len(value) > _LONGEST_LABEL:
            words = f"must be no more than {_LONGEST_LABEL} bytes"
            faults.append(_fault("metadata.labels", value, words))
        elif value and not _QUALIFIED.fullmatch(value):
            faults.append(_fault("metadata.labels", value, _VALUE_WORDS))
    return faults


def _is_key(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    if slash and not _SUBDOMAIN.fullmatch(prefix):
        return False
    return len(name) <= _LONGEST_LABEL and _QUALIFIED.fullmatch(name) is not None


def _fault(field: str, value: str, words: str) -> FieldFault:
    return FieldFault(field=field, message=f'Invalid value: "{value}": {words}')


def check_preconditions(
    resource: ApiResource,
    name: str,
    found: Mapping[str, Any],
    preconditions: Mapping[str, Any] | None,
) -> None:
    """Raise RequestFailure (409) when an object is not the one that a delete was meant for."""
    for field, words in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        value = (preconditions or {}).get(field)
        if value and value != found[field]:
            raise conflict(
                as_kind(resource),
                name,
                f"the {words} in the precondition ({value}) does not match the {words} in record "
                f"({found[field]}). The object might have been deleted and then recreated",
            )


def as_kind(resource: ApiResource) -> ApiResource:
    """Return the resource under the name that some refusals use: its kind instead of its plural."""
    return msgspec.structs.replace(resource, plural=resource.kind)


def updated(
    resource: ApiResource, obj: Object, old: Object, *, is_patch: bool, subresource: str = ""
) -> None:
    """Check and fill in the metadata of a changed object, in place. Raises RequestFailure."""
    metadata, before = obj.setdefault("metadata", {}), old["metadata"]
    name = before["name"]
    _check_texts(resource, metadata)
    if metadata.get("name", name) != name:
        raise bad_request(
            f"the name of the object ({metadata['name']}) does not match the name on the URL "
            f"({name})"
        )
    if metadata.get("namespace", "") not in ("", before.get("namespace", "")):
        raise bad_request("the namespace of the provided object does not match the request")
    if resource.custom and subresource:
        version = metadata.get("resourceVersion", "")
        metadata.clear()
        metadata.update(before, **({"resourceVersion": version} if version else {}))
    _check_uid(resource, metadata, before, is_patch=is_patch)
    version = metadata.get("resourceVersion") or ""
    if not version and resource.custom and not is_patch:
        words = "Invalid value: 0: must be specified for an update"
        fault = FieldFault(field="metadata.resourceVersion", message=words)
        raise invalid(msgspec.structs.replace(resource, kind=resource.plural), name, [fault])
    if version and version != before["resourceVersion"]:
        raise stale_version(resource, name)
    for field in _KEPT:
        if field in before:
            metadata[field] = before[field]
        else:
            metadata.pop(field, None)
    metadata["resourceVersion"] = before["resourceVersion"]
    if metadata.get("managedFields") is None and "managedFields" in before:
        metadata["managedFields"] = before["managedFields"]
    _check_finalizers(resource, metadata, before)


def _check_uid(resource: ApiResource, metadata: Object, before: Object, *, is_patch: bool) -> None:
    uid, name = metadata.get("uid") or "", before["name"]
    if not uid or uid == before["uid"]:
        return
    if is_patch:
        words = f'Invalid value: "{uid}": field is immutable'
        # The real server checks it twice and reports it twice.
        times = 1 if resource.id == EVENTS else 2
        raise invalid(resource, name, [FieldFault(field="metadata.uid", message=words)] * times)
    raise conflict(
        resource,
        name,
        f"Precondition failed: UID in precondition: {uid}, UID in object meta: {before['uid']}",
    )


def _check_finalizers(resource: ApiResource, metadata: Object, before: Object) -> None:
    if "deletionTimestamp" not in before:
        return
    had = set(before.get("finalizers") or ())
    added = [entry for entry in metadata.get("finalizers") or () if entry not in had]
    if added:
        words = (
            "Forbidden: no new finalizers can be added if the object is being deleted, found new "
            f"finalizers []string{{{', '.join(chr(34) + a + chr(34) for a in added)}}}"
        )
        fault = FieldFault(field="metadata.finalizers", message=words, reason="FieldValueForbidden")
        raise invalid(resource, before["name"], [fault] * 2)


def tidy(metadata: Object) -> None:
    """Drop empty members, as Go does when it writes metadata."""
    for field in ("labels", "annotations", "finalizers", "ownerReferences", "managedFields"):
        if field in metadata and not metadata[field]:
            del metadata[field]
