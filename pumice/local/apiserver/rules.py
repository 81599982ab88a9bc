"""CEL rules of CRDs (`x-kubernetes-validations`)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import cel
import msgspec

from pumice.local.apiserver.answers import Fault


class Rule:
    """One compiled rule. Raises ValueError for an expression that is no CEL."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        self.text = str(told["rule"])
        self.message = str(told.get("message", ""))
        self.message_expression = told.get("messageExpression")
        self.reason = str(told.get("reason", "FieldValueInvalid"))
        self.field_path = str(told.get("fieldPath", ""))
        self.is_transition = "oldSelf" in self.text
        self._program = cel.compile(self.text)

    def holds(self, value: Any, old: Any) -> bool:  # noqa: ANN401 - any JSON
        """Tell whether a value obeys the rule; an error while looking counts as no."""
        known = {"self": value} | ({"oldSelf": old} if self.is_transition else {})
        try:
            return bool(self._program.execute(known))
        except (ValueError, TypeError, RuntimeError):
            return False


def broken(rules: Sequence[Rule], value: Any, old: Any, path: str) -> Iterator[Fault]:  # noqa: ANN401
    """Yield the rules that a value breaks; rules about a change ask only where something was."""
    for rule in rules:
        if (rule.is_transition and old is None) or rule.holds(value, old):
            continue
        text = rule.message or f"failed rule: {rule.text}"
        shown = "object" if isinstance(value, dict) else msgspec.json.encode(value).decode()
        shown = f'"{shown}"' if isinstance(value, dict | list) else shown
        yield Fault(
            field=path + rule.field_path,
            message=f"Invalid value: {shown}: {text}",
            reason=rule.reason,
        )
