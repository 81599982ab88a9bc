"""The values of CEL, and the functions that conditions on devices may call.

Integers have 64 bits and do not wrap; a truth value is no number. Quantities and versions are
compared by functions only, as the API server's own check of an expression demands.
"""

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from shared.api import patterns
from shared.model.numbers import parse_bool
from shared.model.quantity import BadQuantity, milli

_BOUND: Final = 1 << 63
_VERSION: Final = re.compile(
    r"(0|[1-9]\d{0,18})\.(0|[1-9]\d{0,18})\.(0|[1-9]\d{0,18})"
    r"(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?",
    re.ASCII,
)


class EvaluationError(ValueError):
    """An expression has no value for a device: a field is absent, or types do not go together."""


class Quantity(NamedTuple):
    """An amount, in thousandths."""

    thousandths: int


class Version(NamedTuple):
    """A semantic version, in the order of its precedence."""

    major: int
    minor: int
    patch: int
    pre_release: tuple[tuple[int, int, str], ...]
    """Empty for none, which `order` puts last."""

    def order(self) -> tuple[Any, ...]:
        """Return what is compared."""
        return (self.major, self.minor, self.patch, not self.pre_release, self.pre_release)


class Optional(NamedTuple):
    """A value that may be absent."""

    has: bool
    value: Any = None


NONE: Final = Optional(has=False)


class DomainMap(dict[str, Any]):
    """A map in which a key that is absent has an empty map, as `device.attributes` is."""


def quantity(text: object) -> Quantity:
    """Return an amount."""
    try:
        return Quantity(milli(_text(text)))
    except BadQuantity as error:
        raise EvaluationError(str(error)) from error


def version(text: object) -> Version:
    """Return a semantic version."""
    match = _VERSION.fullmatch(_text(text))
    if match is None:
        raise EvaluationError(f"{text!r} is no semantic version")
    major, minor, patch, pre = match.groups()
    parts = tuple(
        (0, int(part), "") if part.isdecimal() else (1, 0, part) for part in (pre or "").split(".")
    )
    return Version(int(major), int(minor), int(patch), parts if pre else ())


def is_number(value: object) -> bool:
    """Tell whether a value is an integer or a double."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def equal(one: object, other: object) -> bool:
    """Tell whether two values are the same; values of different types are not."""
    if is_number(one) and is_number(other):
        return one == other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(v, other[k]) for k, v in one.items())
    return type(one) is type(other) and one == other


def compare(one: Any, other: Any) -> int:  # noqa: ANN401 - any value of CEL
    """Return -1, 0 or 1."""
    alike = type(one) is type(other) and isinstance(one, str | bool | Quantity | Version)
    if not alike and not (is_number(one) and is_number(other)):
        raise EvaluationError("values of these types have no order")
    if isinstance(one, Version):
        one, other = one.order(), other.order()
    return int(one > other) - int(one < other)


def checked(number: Any) -> Any:  # noqa: ANN401 - an integer or a double
    """Return the result of a calculation unless it is beyond 64 bits."""
    if isinstance(number, int) and not -_BOUND <= number < _BOUND:
        raise EvaluationError("a number is beyond 64 bits")
    return number


def size(value: object) -> int:
    """Return the number of letters, elements or keys."""
    if isinstance(value, str | list | dict):
        return len(value)
    raise EvaluationError("size() of a value that has none")


def key_of(value: object) -> Any:  # noqa: ANN401 - any value of CEL
    """Return a value as the key of a map."""
    if isinstance(value, str | int):
        return value
    raise EvaluationError("no key of a map")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise EvaluationError("a text was expected")
    return value


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise EvaluationError("an integer was expected")
    return value


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise EvaluationError("a list was expected")
    return value


def _quantity(value: object) -> Quantity:
    if not isinstance(value, Quantity):
        raise EvaluationError("a quantity was expected")
    return value


def _version(value: object) -> Version:
    if not isinstance(value, Version):
        raise EvaluationError("a version was expected")
    return value


def _optional(value: object) -> Optional:
    if not isinstance(value, Optional):
        raise EvaluationError("an optional value was expected")
    return value


def _int(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise EvaluationError("int() of a value that has none")
    try:
        return int(checked(int(value)))
    except (ValueError, OverflowError) as error:
        raise EvaluationError(f"{value!r} is no integer") from error


def _double(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise EvaluationError("double() of a value that has none")
    try:
        return float(value)
    except (ValueError, OverflowError) as error:
        raise EvaluationError(f"{value!r} is no number") from error


def _bool(value: object) -> bool:
    if isinstance(value, bool):
        return value
    truth = parse_bool(value) if isinstance(value, str) else None
    if truth is None:
        raise EvaluationError("bool() of a value that has none")
    return truth


def _string(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int):
        return str(value)
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    raise EvaluationError("string() of a value that has none")


def _matches(value: object, pattern: object) -> bool:
    return _compiled(_text(pattern)).search(_text(value)) is not None


def _found(value: object, pattern: object) -> str:
    match = _compiled(_text(pattern)).search(_text(value))
    return str(match.group()) if match else ""


@functools.lru_cache(maxsize=1024)
def _compiled(pattern: str) -> Any:  # noqa: ANN401 - re2 has no types
    try:
        return patterns.compiled(pattern)
    except patterns.BadPattern as error:
        raise EvaluationError(f"{pattern!r} is no regular expression") from error


def _compare_to(one: object, other: object) -> int:
    if not isinstance(one, Quantity | Version):
        raise EvaluationError("compareTo() of a value that has no order")
    return compare(one, other)


def _substring(value: object, start: object, end: object = None) -> str:
    text = _text(value)
    first, last = _whole(start), len(text) if end is None else _whole(end)
    if not 0 <= first <= last <= len(text):
        raise EvaluationError("a range is beyond the text")
    return text[first:last]


def _index_of(value: object, part: object) -> int:
    if isinstance(value, list):
        return next((at for at, item in enumerate(value) if equal(item, part)), -1)
    return _text(value).find(_text(part))


def _split(value: object, separator: object) -> list[str]:
    text, mark = _text(value), _text(separator)
    return text.split(mark) if mark else list(text)


def _is(reader: Callable[[object], object]) -> Callable[[object], bool]:
    def known(value: object) -> bool:
        try:
            reader(value)
        except EvaluationError:
            return False
        return True

    return known


def _added(one: object, other: object, sign: int) -> Quantity:
    more = _quantity(other).thousandths if isinstance(other, Quantity) else 1000 * _whole(other)
    return Quantity(_quantity(one).thousandths + sign * more)


def _as_integer(value: object) -> int:
    whole, rest = divmod(_quantity(value).thousandths, 1000)
    if rest:
        raise EvaluationError("a quantity with a fraction is no integer")
    return whole


def _least(values: object, sign: int) -> Any:  # noqa: ANN401 - any value of CEL
    items = _list(values)
    if not items:
        raise EvaluationError("the least of no values")
    return functools.reduce(lambda a, b: a if sign * compare(a, b) <= 0 else b, items)


def _sum(values: object) -> int | float:
    items = _list(values)
    if not all(map(is_number, items)):
        raise EvaluationError("a sum of values that are no numbers")
    total: int | float = checked(sum(items))
    return total


def _within(part: object, whole: object) -> bool:
    return all(any(equal(item, other) for other in _list(whole)) for item in _list(part))


def _shared(one: object, other: object) -> bool:
    return any(equal(item, each) for item in _list(one) for each in _list(other))


FUNCTIONS: Final[Mapping[str, tuple[Callable[..., Any], Iterable[int]]]] = {
    "size": (size, {1}),
    ".size": (size, {1}),
    "int": (_int, {1}),
    "uint": (_int, {1}),
    "double": (_double, {1}),
    "bool": (_bool, {1}),
    "string": (_string, {1}),
    "dyn": (lambda value: value, {1}),
    "matches": (_matches, {2}),
    ".matches": (_matches, {2}),
    ".find": (_found, {2}),
    ".startsWith": (lambda text, part: _text(text).startswith(_text(part)), {2}),
    ".endsWith": (lambda text, part: _text(text).endswith(_text(part)), {2}),
    ".contains": (lambda text, part: _text(part) in _text(text), {2}),
    ".lowerAscii": (lambda text: _text(text).lower(), {1}),
    ".upperAscii": (lambda text: _text(text).upper(), {1}),
    ".trim": (lambda text: _text(text).strip(), {1}),
    ".replace": (lambda text, a, b: _text(text).replace(_text(a), _text(b)), {3}),
    ".split": (_split, {2}),
    ".join": (lambda texts, by="": _text(by).join(map(_text, _list(texts))), {1, 2}),
    ".substring": (_substring, {2, 3}),
    ".indexOf": (_index_of, {2}),
    ".charAt": (lambda text, at: _substring(text, at, _whole(at) + 1), {2}),
    ".min": (lambda values: _least(values, 1), {1}),
    ".max": (lambda values: _least(values, -1), {1}),
    ".sum": (_sum, {1}),
    "quantity": (quantity, {1}),
    "isQuantity": (_is(quantity), {1}),
    "semver": (version, {1}),
    "isSemver": (_is(version), {1}),
    ".compareTo": (_compare_to, {2}),
    ".isGreaterThan": (lambda one, other: _compare_to(one, other) > 0, {2}),
    ".isLessThan": (lambda one, other: _compare_to(one, other) < 0, {2}),
    ".add": (lambda one, other: _added(one, other, 1), {2}),
    ".sub": (lambda one, other: _added(one, other, -1), {2}),
    ".sign": (lambda one: compare(_quantity(one), Quantity(0)), {1}),
    ".isInteger": (lambda one: _quantity(one).thousandths % 1000 == 0, {1}),
    ".asInteger": (_as_integer, {1}),
    ".asApproximateFloat": (lambda one: _quantity(one).thousandths / 1000, {1}),
    ".major": (lambda one: _version(one).major, {1}),
    ".minor": (lambda one: _version(one).minor, {1}),
    ".patch": (lambda one: _version(one).patch, {1}),
    "optional.of": (lambda value: Optional(has=True, value=value), {1}),
    "optional.none": (lambda: NONE, {0}),
    ".hasValue": (lambda value: _optional(value).has, {1}),
    "sets.contains": (lambda whole, part: _within(part, whole), {2}),
    "sets.equivalent": (lambda one, other: _within(one, other) and _within(other, one), {2}),
    "sets.intersects": (_shared, {2}),
}
"""Function, or `.method`, → what it does, and its numbers of operands (a method's own included)."""
