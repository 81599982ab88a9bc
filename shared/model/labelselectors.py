"""Label selectors: which labels they select; as Kubernetes reads them."""

from collections.abc import Collection, Mapping

from shared.api.selectors import LabelSelector, LabelSelectorRequirement, SelectorOperator


class BadSelector(ValueError):  # noqa: N818 - reads as the fact it states
    """A selector that says nothing: an unknown operator, or values that it may not have."""


def matches(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Tell whether all parts of a selector hold; an empty one holds for everything.

    Raises `BadSelector`, whatever the labels are.
    """
    verdicts = [_holds(expression, labels) for expression in selector.match_expressions]
    return all(verdicts) and all(
        labels.get(key) == value for key, value in selector.match_labels.items()
    )


def _holds(expression: LabelSelectorRequirement, labels: Mapping[str, str]) -> bool:
    key, operator, values = expression.key, expression.operator, expression.values
    wants_values = operator in {SelectorOperator.IN, SelectorOperator.NOT_IN}
    knows = wants_values or operator in {SelectorOperator.EXISTS, SelectorOperator.DOES_NOT_EXIST}
    if not knows or wants_values != bool(values):
        raise BadSelector(f"{key} {operator} {list(values)}")
    return holds(operator, labels.get(key), values)


def holds(operator: str, value: str | None, values: Collection[str]) -> bool:
    """Tell whether an expression holds of a label's value, None where the label is absent.

    An unknown operator holds of nothing.
    """
    match operator:
        case SelectorOperator.IN:
            return value is not None and value in values
        case SelectorOperator.NOT_IN:
            return value is None or value not in values
        case SelectorOperator.EXISTS:
            return value is not None
        case SelectorOperator.DOES_NOT_EXIST:
            return value is None
        case _:
            return False
