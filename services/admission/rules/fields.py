"""Unknown fields in pod templates and claims: typos that the CRD would store.

A CRD keeps templates as they come, so that any field of any version can be set, and a misspelt
field would be stored without a warning. Known fields come from the API server's OpenAPI
(`adapters.lookup`); messages have the form of its strict validation.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from shared.api.base import Json

TEMPLATE: Final = "io.k8s.api.core.v1.PodTemplateSpec"
CLAIM: Final = "io.k8s.api.core.v1.PersistentVolumeClaimSpec"

_REF: Final = "#/components/schemas/"


class Schema(msgspec.Struct, frozen=True, kw_only=True, rename={
    "ref": "$ref", "all_of": "allOf", "additional": "additionalProperties",
    "open": "x-kubernetes-preserve-unknown-fields",
}):  # fmt: skip
    """The part of an OpenAPI schema that says which fields there are."""

    ref: str = ""
    all_of: tuple["Schema", ...] = ()
    properties: dict[str, "Schema"] = msgspec.field(default_factory=dict)
    items: "Schema | None" = None
    additional: "Schema | bool | None" = None
    open: bool = False


Schemas = Mapping[str, Schema]


def unknown_fields(job: Json, schemas: Schemas, *, at: str = "spec") -> Iterator[str]:
    """Yield the paths of fields in a job's spec that no schema has."""
    for number, task in _objects(job.get("tasks")):
        where = f"{at}.tasks[{number}].template"
        yield from _unknown(task.get("template"), Schema(ref=_REF + TEMPLATE), schemas, where)
    for number, volume in _objects(job.get("volumes")):
        where = f"{at}.volumes[{number}].volumeClaim"
        yield from _unknown(volume.get("volumeClaim"), Schema(ref=_REF + CLAIM), schemas, where)


def _objects(value: object) -> Iterator[tuple[int, Json]]:
    for number, found in enumerate(value if isinstance(value, list) else ()):
        if isinstance(found, dict):
            yield number, found


def _unknown(value: Any, schema: Schema, schemas: Schemas, at: str) -> Iterator[str]:  # noqa: ANN401
    schema = _resolved(schema, schemas)
    if isinstance(value, list) and schema.items is not None:
        for number, found in enumerate(value):
            yield from _unknown(found, schema.items, schemas, f"{at}[{number}]")
    if not isinstance(value, dict) or schema.open:
        return
    rest = schema.additional if isinstance(schema.additional, Schema) else None
    for name, found in value.items():
        known = schema.properties.get(name, rest)
        if known is not None:
            yield from _unknown(found, known, schemas, f"{at}.{name}")
        elif schema.properties:
            yield f"{at}.{name}"


def _resolved(schema: Schema, schemas: Schemas) -> Schema:
    """Follow references; a missing schema accepts everything."""
    for _ in range(_HOPS_MAX):
        ref = schema.ref or next((part.ref for part in schema.all_of if part.ref), "")
        if not ref:
            return schema
        schema = schemas.get(ref.removeprefix(_REF), _NOTHING)
    return _NOTHING


_NOTHING: Final = Schema()
_HOPS_MAX: Final = 8
