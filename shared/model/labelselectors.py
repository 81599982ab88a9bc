"""Label selectors: which labels they select; as Kubernetes reads them."""

from collections.abc import Mapping

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
    if operator == SelectorOperator.IN:
        return labels.get(key) in values
    if operator == SelectorOperator.NOT_IN:
        return labels.get(key) not in values
    return (key in labels) == (operator == SelectorOperator.EXISTS)
