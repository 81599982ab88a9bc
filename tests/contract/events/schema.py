"""A JSON Schema checker for the few words that our schemas use; strict about all others."""

import re
from typing import Any

ANNOTATIONS = {"title", "description", "default", "format"}
TYPES = {
    "object": dict,
    "string": str,
    "integer": int,
    "number": (int, float),
    "array": list,
    "null": type(None),
    "boolean": bool,
}


def problems(value: Any, schema: dict[str, Any], components: dict[str, Any], at: str = "$"):
    """Yield what is wrong with `value`."""
    words = set(schema) - ANNOTATIONS
    if ref := schema.get("$ref"):
        yield from problems(value, components[ref.rpartition("/")[2]], components, at)
        words.discard("$ref")
    if "type" in schema and not isinstance(value, TYPES[schema["type"]]):
        yield f"{at}: {value!r} is no {schema['type']}"
        return
    if "const" in schema and value != schema["const"]:
        yield f"{at}: {value!r} is not {schema['const']!r}"
    if len(value) < schema.get("minLength", 0) if isinstance(value, str) else False:
        yield f"{at}: too short"
    if schema.get("format") == "date-time" and not re.fullmatch(r"\d{4}-.*T.*Z", value):
        yield f"{at}: {value!r} is no time"
    if isinstance(value, dict):
        yield from _fields(value, schema, components, at)
    for number, item in enumerate(value if isinstance(value, list) else ()):
        yield from problems(item, schema.get("items", {}), components, f"{at}[{number}]")
    known = {"type", "const", "minLength", "properties", "required", "items"}
    known |= {"additionalProperties"}
    assert not words - known, f"{at}: the checker does not know {words - known}"


def _fields(value, schema, components, at):
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{at}: {name} is missing"
    for name, item in value.items():
        more = schema.get("additionalProperties")
        wanted = properties.get(name, more if isinstance(more, dict) else None)
        if wanted is not None:
            yield from problems(item, wanted, components, f"{at}.{name}")
        elif "properties" in schema:
            yield f"{at}: {name} is not in the schema"
