"""Views without limits on values, for rules that report every error of an object.

Decoding a view fails at the first value outside its limits, with msgspec's message. Admission
checks objects by rules, so it decodes them with a twin of the view: same fields and names on the
wire, but no limits and patterns, enumerations as plain text, and no required fields. The twin's
instances are used as if they were the view's.
"""

import enum
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, TypeVar, cast

import msgspec

from shared.api.base import View, without_nulls

V = TypeVar("V", bound=View)

_ZERO: dict[Any, Any] = {str: "", int: 0, bool: False, float: 0.0}


def lenient(raw: object, view: type[V]) -> V:
    """Return plain JSON data as `view`, its bounds not checked.

    Raises msgspec.ValidationError where a value is of another type altogether.
    """
    plain = msgspec.json.encode(without_nulls(raw))
    return cast("V", msgspec.json.decode(plain, type=_without_bounds(view)))


@cache
def _without_bounds(view: type) -> type:
    hints = typing.get_type_hints(view, include_extras=True)
    fields = [_field(field, hints[field.name]) for field in msgspec.structs.fields(view)]
    return msgspec.defstruct(
        view.__name__,
        fields,
        bases=(_Base,),
        namespace={"__doc__": view.__doc__, **_properties(view)},
        kw_only=True,
        frozen=True,
    )


class _Base(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all twins (views without bounds), with the msgspec options that are inherited."""


def _properties(view: type) -> dict[str, property]:
    return {name: p for name in dir(view) if isinstance(p := getattr(view, name), property)}


def _field(field: msgspec.structs.FieldInfo, hint: Any) -> tuple[str, Any, Any]:  # noqa: ANN401
    kind = _hint_without_bounds(hint)
    if field.default_factory is not msgspec.NODEFAULT:
        lenient_field = msgspec.field(default_factory=field.default_factory, name=field.encode_name)
    elif field.default is msgspec.NODEFAULT or isinstance(field.default, View):
        made = kind if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else None
        lenient_field = (
            msgspec.field(default_factory=made, name=field.encode_name)
            if made
            else msgspec.field(default=_ZERO.get(kind), name=field.encode_name)
        )
    else:
        lenient_field = msgspec.field(default=field.default, name=field.encode_name)
    return field.name, kind, lenient_field


def _hint_without_bounds(hint: Any) -> Any:  # noqa: ANN401 - any annotation
    """Return an annotation without bounds; views become twins, enumerations text."""
    origin = typing.get_origin(hint)
    if origin is Annotated:
        return _hint_without_bounds(typing.get_args(hint)[0])
    if isinstance(hint, type) and origin is None:
        if issubclass(hint, View):
            return _without_bounds(hint)
        return str if issubclass(hint, enum.Enum) else hint
    if origin is None:
        return hint
    inner = tuple(_hint_without_bounds(argument) for argument in typing.get_args(hint))
    if origin in {typing.Union, types.UnionType}:
        return typing.Union[tuple(dict.fromkeys(inner))]  # noqa: UP007 - made at run time
    return (dict if origin is Mapping else origin)[inner]
