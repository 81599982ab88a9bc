"""Conditions on devices: compiled once, and asked once per expression and device.

An expression that cannot be read, or has no truth value for a device, is a fault of the claim or
class that states it (`SelectorFault`): that claim is not allocated, and no other one suffers.
"""

from collections.abc import Mapping
from typing import Any, Final

from services.scheduler.policy.devices.evaluation import Evaluation, TooCostly, check
from services.scheduler.policy.devices.syntax import BadExpression, Node, parse
from services.scheduler.policy.devices.values import (
    DomainMap,
    EvaluationError,
    quantity,
    version,
)
from shared.api.resource import Device, DeviceAttribute, DeviceSelector

_KNOWN: Final = frozenset({"device"})
_EXPRESSIONS_MAX: Final = 10_000


class SelectorFault(ValueError):  # noqa: N818 - reads as the fact it states
    """A condition cannot be judged; the text says why."""


class Selectors:
    """The compiled conditions of claims and classes."""

    def __init__(self) -> None:
        self.steps = 0
        """Steps that evaluations have taken so far."""
        self._trees: dict[str, Node | str] = {}
        """Expression → tree, or why there is none."""

    def admit(self, selectors: tuple[DeviceSelector, ...], variables: Mapping[str, Any]) -> bool:
        """Tell whether a device meets all conditions. Raises `SelectorFault`."""
        return all(self._holds(selector, variables) for selector in selectors)

    def _holds(self, selector: DeviceSelector, variables: Mapping[str, Any]) -> bool:
        if selector.cel is None:
            raise SelectorFault("a condition that is no CEL")
        expression = selector.cel.expression
        tree = self._trees.get(expression)
        if tree is None:
            if len(self._trees) >= _EXPRESSIONS_MAX:
                self._trees.clear()
            tree = self._trees[expression] = _compiled(expression)
        if isinstance(tree, str):
            raise SelectorFault(tree)
        evaluation = Evaluation(variables)
        try:
            found = evaluation.value(tree)
        except EvaluationError as error:
            text = f"CEL runtime error: {error}"
            if isinstance(error, TooCostly):
                self._trees[expression] = text  # not to be tried on each device
            raise SelectorFault(text) from error
        finally:
            self.steps += evaluation.steps
        if not isinstance(found, bool):
            raise SelectorFault("CEL runtime error: the value is neither true nor false")
        return found


def _compiled(expression: str) -> Node | str:
    try:
        tree = parse(expression)
        check(tree, _KNOWN)
    except BadExpression as error:
        return f"CEL compile error: {error}"
    return tree


def variables_of(driver: str, device: Device) -> Mapping[str, Any]:
    """Return what an expression sees of a device. Raises `SelectorFault`."""
    attributes, capacity = DomainMap(), DomainMap()
    try:
        for name, attribute in device.attributes.items():
            domain, key = qualified(name, driver)
            attributes.setdefault(domain, {})[key] = _value_of(attribute)
        for name, amount in device.capacity.items():
            domain, key = qualified(name, driver)
            capacity.setdefault(domain, {})[key] = quantity(str(amount.value))
    except EvaluationError as error:
        raise SelectorFault(f"device {device.name}: {error}") from error
    shown = {
        "driver": driver,
        "attributes": attributes,
        "capacity": capacity,
        "allowMultipleAllocations": device.allow_multiple_allocations,
    }
    return {"device": shown}


def qualified(name: str, driver: str) -> tuple[str, str]:
    """Return domain and name; one without domain is the driver's."""
    domain, slash, rest = name.partition("/")
    return (domain, rest) if slash else (driver, name)


def _value_of(attribute: DeviceAttribute) -> object:
    if attribute.version_value is not None:
        return version(attribute.version_value)
    for value in (attribute.int_value, attribute.bool_value, attribute.string_value):
        if value is not None:
            return value
    raise EvaluationError("an attribute of a kind that is not known here")
