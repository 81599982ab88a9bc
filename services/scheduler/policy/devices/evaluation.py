"""The value of an expression, within a bounded number of steps.

An expression is a tree (`syntax`); a step is one operation on one value. Users write expressions,
so that each evaluation has `STEPS_MAX` of them, counted for long texts and lists, too.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from services.scheduler.policy.devices.syntax import BadExpression, Node
from services.scheduler.policy.devices.values import (
    FUNCTIONS,
    NONE,
    DomainMap,
    EvaluationError,
    Optional,
    checked,
    compare,
    equal,
    is_number,
    key_of,
)

STEPS_MAX: Final = 100_000
_LETTERS_PER_STEP: Final = 16
_LAZY: Final = frozenset({".orValue", ".or"})


class TooCostly(EvaluationError):  # noqa: N818 - reads as the fact it states
    """The expression takes more steps than it may."""


def check(tree: Node, known: frozenset[str]) -> None:
    """Refuse functions and variables that do not exist. Raises `BadExpression`."""
    if tree.kind == "call" and tree.value not in _LAZY:
        if tree.value not in FUNCTIONS:
            raise BadExpression(f"there is no function {tree.value.removeprefix('.')} here")
        if len(tree.parts) not in FUNCTIONS[tree.value][1]:
            raise BadExpression(f"{tree.value.removeprefix('.')}() takes other operands")
    if tree.kind == "name" and tree.value not in known:
        raise BadExpression(f"there is no variable {tree.value}")
    if tree.kind in {"macro", "bind"}:
        check(tree.parts[0], known)
        inner = tree.value[1] if tree.kind == "macro" else tree.value
        for part in tree.parts[1:]:
            check(part, known | {inner})
        return
    for part in tree.parts:
        check(part, known)


class Evaluation:
    """One evaluation of one expression."""

    def __init__(self, variables: Mapping[str, Any]) -> None:
        self._variables = variables
        self.steps = 0

    def value(self, tree: Node) -> Any:  # noqa: ANN401 - any value of CEL
        """Return the value of a tree. Raises `EvaluationError`."""
        return self._value(tree, self._variables)

    def _spend(self, steps: int) -> None:
        self.steps += steps
        if self.steps > STEPS_MAX:
            raise TooCostly(f"the expression takes more than {STEPS_MAX} steps")

    def _value(self, tree: Node, known: Mapping[str, Any]) -> Any:  # noqa: ANN401
        self._spend(1)
        kind = tree.kind
        if kind == "literal":
            return tree.value
        if kind == "name":
            return known[tree.value]
        if kind in {"||", "&&"}:
            return self._junction(tree, known, ends=kind == "||")
        special = _SPECIAL.get(kind)
        if special is not None:
            return special(self, tree, known)
        values = [self._value(part, known) for part in tree.parts]
        if kind in {"select", "index"}:
            return _chosen(values[0], tree.value if kind == "select" else values[1], tree)
        if kind == "list":
            return values
        if kind == "map":
            return {key_of(k): v for k, v in zip(values[::2], values[1::2], strict=True)}
        return self._operation(kind, values)

    def _junction(self, tree: Node, known: Mapping[str, Any], *, ends: bool) -> bool:
        """Return `||` or `&&` of the parts."""
        return self._decided(((part, known) for part in tree.parts), ends=ends)

    def _decided(self, tests: Iterable[tuple[Node, Mapping[str, Any]]], *, ends: bool) -> bool:
        """Return `ends` if a test says so, which makes up for errors of others."""
        failed: EvaluationError | None = None
        for test, scope in tests:
            try:
                if _truth(self._value(test, scope)) is ends:
                    return ends
            except TooCostly:
                raise
            except EvaluationError as error:
                failed = error
        if failed is not None:
            raise failed
        return not ends

    def _choice(self, tree: Node, known: Mapping[str, Any]) -> Any:  # noqa: ANN401
        which = 1 if _truth(self._value(tree.parts[0], known)) else 2
        return self._value(tree.parts[which], known)

    def _presence(self, tree: Node, known: Mapping[str, Any]) -> bool:
        target = self._value(tree.parts[0], known)
        if isinstance(target, Optional):
            target = target.value if target.has else {}
        if not isinstance(target, dict):
            raise EvaluationError("has() of a value without fields")
        return tree.value in target

    def _binding(self, tree: Node, known: Mapping[str, Any]) -> Any:  # noqa: ANN401
        bound = self._value(tree.parts[0], known)
        return self._value(tree.parts[1], {**known, tree.value: bound})

    def _call(self, tree: Node, known: Mapping[str, Any]) -> Any:  # noqa: ANN401
        if tree.value in _LAZY:
            found = self._value(tree.parts[0], known)
            if not isinstance(found, Optional):
                raise EvaluationError("an optional value was expected")
            if not found.has:
                return self._value(tree.parts[1], known)
            return found.value if tree.value == ".orValue" else found
        values = [self._value(part, known) for part in tree.parts]
        self._spend_for(values)
        return FUNCTIONS[tree.value][0](*values)

    def _spend_for(self, values: list[Any]) -> None:
        for value in values:
            if isinstance(value, str):
                self._spend(len(value) // _LETTERS_PER_STEP)
            elif isinstance(value, list):
                self._spend(len(value))

    def _macro(self, tree: Node, known: Mapping[str, Any]) -> Any:  # noqa: ANN401
        name, variable = tree.value
        over = self._value(tree.parts[0], known)
        if not isinstance(over, list | dict):
            raise EvaluationError(f"{name}() of a value without elements")
        scopes = ((item, {**known, variable: item}) for item in over)
        if name in {"all", "exists"}:
            tests = ((tree.parts[1], scope) for _, scope in scopes)
            return self._decided(tests, ends=name == "exists")
        return self._collected(name, tree.parts[1:], scopes)

    def _collected(
        self, name: str, parts: tuple[Node, ...], scopes: Iterator[tuple[Any, dict[str, Any]]]
    ) -> Any:  # noqa: ANN401
        if name == "map":
            return [
                self._value(parts[-1], scope)
                for _, scope in scopes
                if len(parts) == 1 or _truth(self._value(parts[0], scope))
            ]
        found = [item for item, scope in scopes if _truth(self._value(parts[0], scope))]
        return found if name == "filter" else len(found) == 1

    def _operation(self, kind: str, values: list[Any]) -> Any:  # noqa: ANN401
        if kind == "!":
            return not _truth(values[0])
        if kind == "neg":
            return checked(-_number(values[0]))
        one, other = values
        if kind in {"==", "!="}:
            return equal(one, other) is (kind == "==")
        if kind == "in":
            return _is_in(one, other)
        if kind in _ORDER:
            order = compare(one, other)
            return order in _ORDER[kind]
        self._spend_for(values)
        return _calculated(kind, one, other)


_ORDER: Final = {"<": {-1}, "<=": {-1, 0}, ">": {1}, ">=": {0, 1}}
_SPECIAL: Final = {
    "?:": Evaluation._choice,  # noqa: SLF001 - its own table
    "has": Evaluation._presence,  # noqa: SLF001
    "bind": Evaluation._binding,  # noqa: SLF001
    "call": Evaluation._call,  # noqa: SLF001
    "macro": Evaluation._macro,  # noqa: SLF001
}
"""Operations that do not evaluate all their parts, or not once."""


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise EvaluationError("a truth value was expected")
    return value


def _number(value: Any) -> Any:  # noqa: ANN401 - an integer or a double
    if not is_number(value):
        raise EvaluationError("a number was expected")
    return value


def _is_in(value: object, within: object) -> bool:
    if isinstance(within, list):
        return any(equal(value, item) for item in within)
    if isinstance(within, dict):
        return key_of(value) in within
    raise EvaluationError("`in` a value without elements")


def _chosen(target: Any, key: Any, tree: Node) -> Any:  # noqa: ANN401 - any values of CEL
    """Return a field or an element; of an optional value, and with `.?`, an optional one."""
    optional = tree.optional
    if isinstance(target, Optional):
        if not target.has:
            return NONE
        target, optional = target.value, True
    found = _looked_up(target, key)
    if optional:
        return found
    if not found.has:
        raise EvaluationError(f"no such key: {key}")
    return found.value


def _looked_up(target: object, key: object) -> Optional:
    if isinstance(target, DomainMap) and isinstance(key, str):
        return Optional(has=True, value=target.get(key, {}))
    if isinstance(target, dict):
        known = key_of(key)
        return Optional(has=True, value=target[known]) if known in target else NONE
    if isinstance(target, list) and isinstance(key, int) and not isinstance(key, bool):
        return Optional(has=True, value=target[key]) if 0 <= key < len(target) else NONE
    raise EvaluationError("a value without fields")


def _calculated(kind: str, one: Any, other: Any) -> Any:  # noqa: ANN401 - any values of CEL
    if kind == "+" and type(one) is type(other) and isinstance(one, str | list):
        return one + other
    if type(_number(one)) is not type(_number(other)):
        raise EvaluationError("integers and doubles do not mix")
    if kind == "+":
        return checked(one + other)
    if kind == "-":
        return checked(one - other)
    if kind == "*":
        return checked(one * other)
    if not other:
        raise EvaluationError("division by zero")
    if isinstance(one, float):
        return one / other
    whole = abs(one) // abs(other) * (1 if (one < 0) == (other < 0) else -1)
    return checked(whole) if kind == "/" else one - whole * other
