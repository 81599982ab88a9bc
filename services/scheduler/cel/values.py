"""Quantities and semantic versions as values of CEL, and what else Kubernetes adds to the language.

They are protobuf messages, which the library compares by their fields. So each has one form:
a quantity in thousandths, a version without its build metadata, which Kubernetes ignores.
"""

import functools
import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from cel_expr_python import cel
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from shared.api import patterns
from shared.model.quantity import milli

_PACKAGE: Final = "kubernetes"
_BOUND: Final = 1 << 63
_VERSION: Final = re.compile(
    r"(0|[1-9]\d{0,18})\.(0|[1-9]\d{0,18})\.(0|[1-9]\d{0,18})"
    r"(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?",
    re.ASCII,
)
_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "false", "FALSE", "False"})
_Field: Final = descriptor_pb2.FieldDescriptorProto


def _pool() -> descriptor_pool.DescriptorPool:
    file = descriptor_pb2.FileDescriptorProto(
        name="kubernetes.proto", package=_PACKAGE, syntax="proto3"
    )
    for name, kind in (("Quantity", _Field.TYPE_SINT64), ("Semver", _Field.TYPE_STRING)):
        message = file.message_type.add(name=name)
        message.field.add(name="value", number=1, type=kind, label=_Field.LABEL_OPTIONAL)
    found = descriptor_pool.DescriptorPool()
    found.Add(file)
    return found


POOL: Final = _pool()
"""Describes the messages."""


def _message(name: str) -> Any:  # noqa: ANN401 - classes made at run time have no types
    return message_factory.GetMessageClass(POOL.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


Quantity: Final = _message("Quantity")
Semver: Final = _message("Semver")


def quantity(text: str) -> Any:  # noqa: ANN401 - a `Quantity`
    """Return an amount. Raises `ValueError`."""
    return Quantity(value=milli(text))


def semver(text: str, normalize: bool = False) -> Any:  # noqa: ANN401 - a `Semver`
    """Return a semantic version. Raises `ValueError`.

    `normalize` accepts `v1.2`, too: without the `v`, with zeros for what is missing and without
    leading zeros.
    """
    if normalize:
        text = _normalized(text)
    match = _VERSION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no semantic version")
    return Semver(value=text.partition("+")[0])


def _normalized(text: str) -> str:
    numbers, mark, rest = text.removeprefix("v"), "", ""
    if found := re.search(r"[-+]", numbers):
        numbers, mark, rest = numbers[: found.start()], found.group(), numbers[found.end() :]
    parts = numbers.split(".") if numbers else []
    parts += ["0"] * (3 - len(parts))
    return ".".join(part.lstrip("0") or "0" for part in parts) + mark + rest


def _order(version: Any) -> tuple[Any, ...]:  # noqa: ANN401 - a `Semver`
    """Return what the precedence of versions compares: a pre-release goes before its release."""
    release, _, pre = version.value.partition("-")
    parts = tuple(
        (0, int(part), "") if part.isdecimal() else (1, 0, part) for part in pre.split(".")
    )
    return (*map(int, release.split(".")), not pre, parts)


def _compare(one: Any, other: Any) -> int:  # noqa: ANN401 - two `Quantity`s or two `Semver`s
    if type(one) is not type(other):
        raise TypeError("values of these types have no order")
    if isinstance(one, Semver):
        before, after = _order(one), _order(other)
    else:
        before, after = (_thousandths(one),), (_thousandths(other),)
    return int(before > after) - int(before < after)


def _thousandths(value: Any) -> int:  # noqa: ANN401 - a `Quantity`
    if not isinstance(value, Quantity):
        raise TypeError("a quantity was expected")
    return int(value.value)


def _added(one: Any, other: Any, sign: int) -> Any:  # noqa: ANN401 - `Quantity`s; `other` or an int
    more = other * 1000 if isinstance(other, int) else _thousandths(other)
    total = _thousandths(one) + sign * more
    return Quantity(value=max(-_BOUND, min(total, _BOUND - 1)))


def _as_integer(value: Any) -> int:  # noqa: ANN401 - a `Quantity`
    whole, rest = divmod(_thousandths(value), 1000)
    if rest:
        raise ValueError("a quantity with a fraction is no integer")
    return whole


def _number_of_version(at: int) -> Callable[[Any], int]:
    return lambda version: int(version.value.partition("-")[0].split(".")[at])


def _is(reader: Callable[..., Any]) -> Callable[..., bool]:
    def known(*values: Any) -> bool:  # noqa: ANN401 - what the reader takes
        try:
            reader(*values)
        except ValueError:
            return False
        return True

    return known


def _to_bool(value: object) -> bool:
    """Return the truth of a text as Go reads it; the library knows fewer forms."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value in _TRUE | _FALSE:
        return value in _TRUE
    raise ValueError("bool() of a value that has none")


def _find(text: str, pattern: str) -> str:
    match = _pattern(pattern).search(text)
    return str(match.group()) if match else ""


def _find_all(text: str, pattern: str, most: int = -1) -> list[str]:
    found: list[str] = []
    for match in _pattern(pattern).finditer(text):
        if len(found) == most:
            break
        found.append(match.group())
    return found


@functools.lru_cache(maxsize=64)
def _pattern(text: str) -> Any:  # noqa: ANN401 - re2 has no types
    return patterns.compiled(text)


def _index(value: Any, part: Any) -> int:  # noqa: ANN401 - a list with an element, or two texts
    if isinstance(value, str):
        return value.find(part)
    return value.index(part) if part in value else -1


def _last_index(value: Any, part: Any) -> int:  # noqa: ANN401 - likewise
    if isinstance(value, str):
        return value.rfind(part)
    return len(value) - 1 - value[::-1].index(part) if part in value else -1


def _is_sorted(values: list[Any]) -> bool:
    return all(_key(a) <= _key(b) for a, b in itertools.pairwise(values))


def _key(value: Any) -> Any:  # noqa: ANN401 - what can be compared
    return _order(value) if isinstance(value, Semver) else value


ANY: Final = cel.Type("google.protobuf.Any")
_T: Final = cel.Type
_QUANTITY: Final = cel.Type(f"{_PACKAGE}.Quantity")
_SEMVER: Final = cel.Type(f"{_PACKAGE}.Semver")
RENAMED: Final = {"bool": "_bool", "indexOf": "_indexOf", "lastIndexOf": "_lastIndexOf"}
"""Functions that the library has, for fewer types than Kubernetes → ours."""

_FUNCTIONS: Final[dict[str, list[tuple[list[Any], Any, Callable[..., Any]]]]] = {
    "quantity": [([_T.STRING], _QUANTITY, quantity)],
    "isQuantity": [([_T.STRING], _T.BOOL, _is(quantity))],
    "semver": [([_T.STRING], _SEMVER, semver), ([_T.STRING, _T.BOOL], _SEMVER, semver)],
    "isSemver": [
        ([_T.STRING], _T.BOOL, _is(semver)),
        ([_T.STRING, _T.BOOL], _T.BOOL, _is(semver)),
    ],
    "_bool": [([ANY], _T.BOOL, _to_bool)],
}
_METHODS: Final[dict[str, list[tuple[list[Any], Any, Callable[..., Any]]]]] = {
    # Quantity and version look alike to the library, which compares the kinds of messages.
    "compareTo": [([_QUANTITY, _QUANTITY], _T.INT, _compare)],
    "isGreaterThan": [([_QUANTITY, _QUANTITY], _T.BOOL, lambda a, b: _compare(a, b) > 0)],
    "isLessThan": [([_QUANTITY, _QUANTITY], _T.BOOL, lambda a, b: _compare(a, b) < 0)],
    "add": [
        ([_QUANTITY, _QUANTITY], _QUANTITY, lambda a, b: _added(a, b, 1)),
        ([_QUANTITY, _T.INT], _QUANTITY, lambda a, b: _added(a, b, 1)),
    ],
    "sub": [
        ([_QUANTITY, _QUANTITY], _QUANTITY, lambda a, b: _added(a, b, -1)),
        ([_QUANTITY, _T.INT], _QUANTITY, lambda a, b: _added(a, b, -1)),
    ],
    "sign": [([_QUANTITY], _T.INT, lambda a: (_thousandths(a) > 0) - (_thousandths(a) < 0))],
    "isInteger": [([_QUANTITY], _T.BOOL, lambda a: _thousandths(a) % 1000 == 0)],
    "asInteger": [([_QUANTITY], _T.INT, _as_integer)],
    "asApproximateFloat": [([_QUANTITY], _T.DOUBLE, lambda a: _thousandths(a) / 1000)],
    "major": [([_SEMVER], _T.INT, _number_of_version(0))],
    "minor": [([_SEMVER], _T.INT, _number_of_version(1))],
    "patch": [([_SEMVER], _T.INT, _number_of_version(2))],
    "find": [([_T.STRING, _T.STRING], _T.STRING, _find)],
    "findAll": [
        ([_T.STRING, _T.STRING], _T.DYN, _find_all),
        ([_T.STRING, _T.STRING, _T.INT], _T.DYN, _find_all),
    ],
    "_indexOf": [([ANY, ANY], _T.INT, _index)],
    "_lastIndexOf": [([ANY, ANY], _T.INT, _last_index)],
    "min": [([_T.LIST], _T.DYN, lambda values: min(values, key=_key))],
    "max": [([_T.LIST], _T.DYN, lambda values: max(values, key=_key))],
    "sum": [([_T.LIST], _T.DYN, sum)],
    "isSorted": [([_T.LIST], _T.BOOL, _is_sorted)],
}


def declarations() -> Iterator[Any]:
    """Return the functions that Kubernetes adds to the library's."""
    for table, is_member in ((_FUNCTIONS, False), (_METHODS, True)):
        for name, overloads in table.items():
            yield cel.FunctionDecl(
                name,
                [
                    cel.Overload(
                        f"{name}_{number}",
                        return_type=returned,
                        parameters=parameters,
                        is_member=is_member,
                        impl=function,
                    )
                    for number, (parameters, returned, function) in enumerate(overloads)
                ],
            )


NAMES: Final = frozenset({*_FUNCTIONS, *_METHODS})
"""Of the functions in `declarations`."""
