"""The base class of all views, and the wire types that Kubernetes gives no class.

Every module of `shared.api` builds on this one. Views are frozen and outside the garbage
collector's sight (`gc=False`): a decoded object cannot contain itself, and a heap of 100,000 pods
would otherwise be walked by every full collection.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

Json = dict[str, Any]
"""A JSON object."""

QUANTITY = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)

Quantity = str | int | float
"""A quantity of a built-in kind: the API server writes strings; templates may hold bare numbers."""

CrQuantity = int | Annotated[str, Meta(pattern=QUANTITY)]
"""A quantity in a Volcano kind: `cpu: 2` and `cpu: "2"` are both legal, `cpu: 0.5` is not."""

ResourceList = Mapping[str, Quantity]
"""Resource name → quantity, of a built-in kind."""

CrResourceList = Mapping[str, CrQuantity]
"""Resource name → quantity, of a Volcano kind."""

Timestamp = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
"""An RFC 3339 time as text; `shared.api.time` reads and writes it."""

Int32 = Annotated[int, Meta(extra_json_schema={"format": "int32"})]
Int64 = Annotated[int, Meta(extra_json_schema={"format": "int64"})]

Count = Annotated[Int32, Meta(ge=0)]
"""A number that cannot be negative: replicas, minima, counters of a status."""


NAME_MAX = 253
"""Longest name of most objects."""

DNS_SUBDOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
DNS_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"

Name = Annotated[str, Meta(max_length=NAME_MAX)]
"""A name of some object, its form left to that object."""

DnsName = Annotated[str, Meta(max_length=NAME_MAX, pattern=DNS_SUBDOMAIN)]
"""A name of DNS labels and dots."""


def doc(text: str) -> Meta:
    """Return the description of a field, as `kubectl explain` shows it."""
    return Meta(description=text)


def default(value: str | int) -> Meta:
    """Return the default that the API server fills in; the field itself must have the same."""
    return Meta(extra_json_schema={"default": value})


def rule(message: str, expression: str) -> Meta:
    """Return a CEL rule that the API server applies to a field, with what it says otherwise."""
    cel = {"message": message, "rule": expression}
    return Meta(extra_json_schema={"x-kubernetes-validations": [cel]})


class View(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True, rename="camel"):
    """Base of all views: immutable, camelCase, defaults left out, unknown fields ignored.

    ⚠ Because defaults are left out, an encoded view is no merge patch (a counter that went back to
    0 would stay as it was): use `shared.api.patch.merge_patch`.
    """


_AT = re.compile(r"^(?P<what>.*?) - at `(?P<key>key in )?\$(?P<path>.*)`$", re.DOTALL)


def describe_decode_error(exc: BaseException) -> str:
    """Return one line for a msgspec decoding error: the path of the field, then the fault.

    msgspec says ``Expected `int`, got `str` - at `$.spec.tasks[0].replicas` ``; a user should read
    `spec.tasks[0].replicas: expected int, got str`.
    """
    text = str(exc)
    path = ""
    if found := _AT.match(text):
        text = found["what"]
        path = found["path"].removeprefix(".")
        if found["key"]:
            path = f"{path} (a key)" if path else "(a key)"
    fault = text.replace("`", "")
    if fault[1:2].islower():
        fault = fault[0].lower() + fault[1:]
    return f"{path}: {fault}" if path else fault


def without_nulls(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return JSON data without nulls: Kubernetes reads them as absent."""
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [without_nulls(v) for v in value]
    return value
