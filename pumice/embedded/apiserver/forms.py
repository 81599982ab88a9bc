"""The form of one kind: its schema drops unknown fields, sets defaults and refuses values.

A schema is compiled once into `Node`s, which drop unknown fields and fill in defaults in place, in
one walk; jsonschema-rs checks what is left, and CEL rules come last. Built-in kinds differ in three
ways, as in Go: `null` counts as absent, a zero value is no default, and a wrong type cannot
even be read (400 instead of 422).
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, Final

import jsonschema_rs
import msgspec

from pumice.embedded.apiserver.catalogue import REFERENCE, ApiResource, builtin_schemas
from pumice.embedded.apiserver.expressions import ExpressionError, compiled
from pumice.embedded.apiserver.replies import (
    FieldFault,
    Object,
    RequestFailure,
    bad_request,
    invalid,
    rules_left_out,
)

_HEAD: Final = frozenset(("apiVersion", "kind", "metadata"))
_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_IN_BODY: Final = {
    "Minimum": "should be greater than or equal to {limit}",
    "Maximum": "should be less than or equal to {limit}",
    "ExclusiveMinimum": "should be greater than {limit}",
    "ExclusiveMaximum": "should be less than {limit}",
}


class SchemaRule:
    """One compiled CEL rule of a CRD. Raises ValueError for an expression that is no CEL."""

    def __init__(self, rule: Mapping[str, Any]) -> None:
        self.text = str(rule["rule"])
        self.message = str(rule.get("message", ""))
        self.reason = str(rule.get("reason", "FieldValueInvalid"))
        self.field_path = str(rule.get("fieldPath", ""))
        self.is_transition = "oldSelf" in self.text
        self._expression = compiled(self.text)

    def holds(self, value: Any, old: Any) -> bool:  # noqa: ANN401 - any JSON
        """Return whether a value obeys the rule; an error of the evaluation counts as no."""
        known = {"self": value} | ({"oldSelf": old} if self.is_transition else {})
        try:
            return bool(self._expression.value(known))
        except ExpressionError:
            return False


def _broken(rules: Sequence[SchemaRule], value: Any, old: Any, path: str) -> Iterator[FieldFault]:  # noqa: ANN401
    """Yield the rules that a value breaks; transition rules apply only where there was a value."""
    for rule in rules:
        if (rule.is_transition and old is None) or rule.holds(value, old):
            continue
        text = rule.message or f"failed rule: {rule.text}"
        shown = "object" if isinstance(value, dict) else msgspec.json.encode(value).decode()
        shown = f'"{shown}"' if isinstance(value, dict | list) else shown
        yield FieldFault(
            field=path + rule.field_path,
            message=f"Invalid value: {shown}: {text}",
            reason=rule.reason,
        )


class SchemaNode:
    """One place in a schema."""

    __slots__ = (
        "additional",
        "defaults",
        "embedded",
        "has_rules",
        "items",
        "nullable",
        "preserve",
        "properties",
        "rules",
    )

    def __init__(self) -> None:
        self.properties: dict[str, SchemaNode] = {}
        self.additional: SchemaNode | None = None
        self.items: SchemaNode | None = None
        self.preserve = False
        self.embedded = False
        self.nullable = False
        self.defaults: list[tuple[str, Any, bool]] = []
        """Field, encoded default, and whether null is a value of the field."""
        self.rules: list[SchemaRule] = []
        self.has_rules = False
        """Whether there are rules here or below: nothing else is walked through for them."""

    def tidy(self, value: Any, path: str, unknown: list[str], *, go: bool) -> None:  # noqa: ANN401
        """Drop unknown fields (their paths go to `unknown`) and fill in defaults, in place."""
        if isinstance(value, dict):
            self._tidy_object(value, path, unknown, go=go)
        elif isinstance(value, list) and self.items is not None:
            items = self.items
            for index, item in enumerate(value):
                if isinstance(item, dict | list):
                    items.tidy(item, f"{path}[{index}]", unknown, go=go)

    def _tidy_object(self, value: Object, path: str, unknown: list[str], *, go: bool) -> None:
        properties, additional = self.properties, self.additional
        for key in list(value):
            item = value[key]
            node = properties.get(key, additional)
            if node is None:
                if self.preserve or (self.embedded and key in _HEAD):
                    continue
                unknown.append(f"{path}.{key}" if path else key)
                del value[key]
            elif item is None and (go or not node.nullable):
                del value[key]
            elif isinstance(item, dict | list):
                node.tidy(item, f"{path}.{key}" if path else key, unknown, go=go)
        for key, default, nullable in self.defaults:
            if key not in value or (value[key] is None and not nullable):
                filled = value[key] = msgspec.json.decode(default)
                if isinstance(filled, dict | list):
                    properties[key].tidy(filled, "", [], go=go)

    def faults(self, value: Any, old: Any, path: str) -> Iterator[FieldFault]:  # noqa: ANN401
        """Yield the faults that the rules of this node and those below find."""
        if self.rules:
            yield from _broken(self.rules, value, old, path)
        if isinstance(value, dict):
            before = old if isinstance(old, dict) else {}
            for key, item in value.items():
                node = self.properties.get(key, self.additional)
                if node is not None and node.has_rules and isinstance(item, dict | list):
                    inner = f"{path}.{key}" if path else key
                    yield from node.faults(item, before.get(key), inner)
        elif isinstance(value, list) and self.items is not None:
            for index, item in enumerate(value):
                yield from self.items.faults(item, None, f"{path}[{index}]")


class KindSchema:
    """The compiled schema of one kind."""

    def __init__(self, resource: ApiResource) -> None:
        self.resource = resource
        self._go = not resource.custom
        root = _Compiler(go=self._go).node(resource.schema)
        self._meta = _metadata()
        self._root = root
        self._root.embedded = True
        if not self._go:
            root.properties = {k: v for k, v in root.properties.items() if k not in _HEAD}
        else:
            root.properties["metadata"] = self._meta
        self.has_rules = _mark_rules(root, set())
        self._judge = _validator(resource)

    def tidy(self, obj: Object) -> list[str]:
        """Drop unknown fields and fill in defaults; returns the paths of the dropped fields."""
        unknown: list[str] = []
        if not self._go and isinstance(obj.get("metadata"), dict):
            self._meta.tidy(obj["metadata"], "metadata", unknown, go=True)
        self._root.tidy(obj, "", unknown, go=self._go)
        return unknown

    def check(self, obj: Object, old: Object | None) -> None:
        """Raise RequestFailure (400 or 422) that names each wrong field."""
        faults: list[FieldFault] = []
        if not self._judge.is_valid(obj):
            faults = [self._fault(error, obj) for error in self._judge.iter_errors(obj)]
        if self.has_rules:
            hidden = rules_left_out(faults)
            faults += hidden or self._root.faults(obj, old, "")
        if faults:
            raise invalid(self.resource, obj["metadata"].get("name", ""), faults)

    def _fault(self, error: jsonschema_rs.ValidationError, obj: Object) -> FieldFault:
        path = _dotted(error.instance_path)
        kind: Any = error.kind
        name = type(kind).__name__
        value = _at(obj, error.instance_path)
        if name == "Required":
            field = f"{path}.{kind.property}" if path else str(kind.property)
            return FieldFault(field=field, message="Required value", reason="FieldValueRequired")
        if name == "Enum":
            return _unsupported(path, value, list(kind.options))
        if self._go and name in ("Type", "OneOfNotValid", "AnyOf"):
            raise bad_request(
                f'{self.resource.kind} in version "{self.resource.version}" cannot be handled as a '
                f"{self.resource.kind}: json: cannot unmarshal {_go_kind(value)} into Go struct "
                f"field {path} of another type"
            )
        if name == "Type":
            expected = error.kind.as_dict().get("types", ["another type"])
            shown = _go_kind(value)
            text = f'{path} in body must be of type {_type_name(expected)}: "{shown}"'
            message = f'Invalid value: "{shown}": {text}'
            return FieldFault(field=path, message=message, reason="FieldValueTypeInvalid")
        rest = _IN_BODY.get(name, "")
        text = rest.format(limit=getattr(kind, "limit", "")) if rest else error.message
        message = f"Invalid value: {_shown(value)}: {path} in body {text}"
        return FieldFault(field=path, message=message)


def form_of(resource: ApiResource) -> KindSchema:
    """Return the form of a kind, which all servers of the process share: it never changes."""
    return _compiled(msgspec.json.encode(resource))


@lru_cache(maxsize=256)
def _compiled(resource: bytes) -> KindSchema:
    return KindSchema(msgspec.json.decode(resource, type=ApiResource))


def strict(unknown: Sequence[str], resource: ApiResource) -> RequestFailure:
    """Return the error for unknown fields under `fieldValidation=Strict`."""
    listed = ", ".join(f'unknown field "{path}"' for path in unknown)
    return bad_request(
        f'{resource.kind} in version "{resource.version}" cannot be handled as a '
        f"{resource.kind}: strict decoding error: {listed}"
    )


class _Compiler:
    """Turns schemas into nodes; a recursive schema becomes a loop of nodes."""

    def __init__(self, *, go: bool) -> None:
        self._go = go
        self._by_name: dict[str, SchemaNode] = {}

    def node(self, schema: Mapping[str, Any]) -> SchemaNode:
        """Return the node of a schema."""
        reference = schema.get("$ref")
        if isinstance(reference, str):
            name = reference.removeprefix(REFERENCE)
            if name not in self._by_name:
                self._by_name[name] = node = SchemaNode()
                self._fill(node, builtin_schemas()[name])
            return self._by_name[name]
        node = SchemaNode()
        self._fill(node, schema)
        return node

    def _fill(self, node: SchemaNode, schema: Mapping[str, Any]) -> None:
        for key, inner in (schema.get("properties") or {}).items():
            node.properties[key] = self.node(inner)
            default = inner.get("default")
            if default is not None and not (self._go and not default):
                nullable = bool(inner.get("nullable"))
                node.defaults.append((key, msgspec.json.encode(default), nullable))
        additional = schema.get("additionalProperties")
        if isinstance(additional, dict):
            node.additional = self.node(additional)
        if isinstance(schema.get("items"), dict):
            node.items = self.node(schema["items"])
        typeless = "type" not in schema and not node.properties
        node.preserve = bool(
            schema.get("x-kubernetes-preserve-unknown-fields")
            or additional is True
            or (self._go and (typeless or (schema.get("type") == "object" and not _shaped(schema))))
        )
        node.nullable = bool(schema.get("nullable"))
        node.embedded = bool(schema.get("x-kubernetes-embedded-resource"))
        node.rules = [SchemaRule(rule) for rule in schema.get("x-kubernetes-validations", ())]


def _shaped(schema: Mapping[str, Any]) -> bool:
    return "properties" in schema or "additionalProperties" in schema


def _metadata() -> SchemaNode:
    return _Compiler(go=True).node({"$ref": REFERENCE + _META})


def _mark_rules(node: SchemaNode, seen: set[int]) -> bool:
    """Note at each place whether it has rules here or below; returns so for the first."""
    if id(node) not in seen:
        seen.add(id(node))
        inner = [n for n in (*node.properties.values(), node.additional, node.items) if n]
        below = [_mark_rules(n, seen) for n in inner]
        node.has_rules = bool(node.rules) or any(below)
    return node.has_rules


def _validator(resource: ApiResource) -> jsonschema_rs.Validator:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {"metadata": {"$ref": REFERENCE + _META}},
        "allOf": [_plain(resource.schema)],
        "components": {"schemas": _plain_builtins()},
    }
    return jsonschema_rs.Draft7Validator(schema)


@cache
def _plain_builtins() -> dict[str, Any]:
    return {name: _plain(schema) for name, schema in builtin_schemas().items()}


def _plain(schema: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return an OpenAPI schema as JSON Schema."""
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {
        key: value
        for key, value in schema.items()
        if not key.startswith("x-kubernetes-") and key not in ("format", "nullable", "default")
    }
    for key in ("items", "additionalProperties", "not", "allOf", "anyOf", "oneOf"):
        if key in plain:
            plain[key] = _plain(plain[key])
    if isinstance(plain.get("properties"), dict):
        plain["properties"] = {key: _plain(item) for key, item in plain["properties"].items()}
    _strict_bounds(plain)
    if schema.get("x-kubernetes-int-or-string"):
        plain.pop("anyOf", None)
        plain["type"] = ["integer", "string"]
    # Go writes an absent time as null.
    is_time = schema.get("format") in ("date-time", "micro-time")
    if (schema.get("nullable") or is_time) and "type" in plain:
        own = plain["type"]
        plain["type"] = [*(own if isinstance(own, list) else [own]), "null"]
    return plain


def _strict_bounds(plain: Object) -> None:
    """Turn OpenAPI's flags into JSON Schema's numbers, in place."""
    for bound in ("Minimum", "Maximum"):
        if plain.pop(f"exclusive{bound}", None) is True:
            plain[f"exclusive{bound}"] = plain.pop(bound.lower())


def _unsupported(path: str, value: Any, options: Sequence[Any]) -> FieldFault:  # noqa: ANN401
    listed = ", ".join(_shown(option) for option in options)
    message = f"Unsupported value: {_shown(value)}: supported values: {listed}"
    return FieldFault(field=path, message=message, reason="FieldValueNotSupported")


def _dotted(path: Sequence[Any]) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


def _at(obj: Any, path: Sequence[Any]) -> Any:  # noqa: ANN401 - any JSON
    for part in path:
        obj = obj[part]
    return obj


def _shown(value: Any) -> str:  # noqa: ANN401 - any JSON
    return msgspec.json.encode(value).decode()


_GO_KINDS: Final[tuple[tuple[type, str], ...]] = (
    (bool, "boolean"),
    (int, "integer"),
    (float, "number"),
    (str, "string"),
    (list, "array"),
    (dict, "object"),
)


def _go_kind(value: Any) -> str:  # noqa: ANN401 - any JSON
    return next((name for kind, name in _GO_KINDS if isinstance(value, kind)), "null")


def _type_name(expected: Any) -> str:  # noqa: ANN401 - one name or several
    return ", ".join(expected) if isinstance(expected, list | tuple) else str(expected)
