"""Selectors, affinity, taints and spreading: the vocabulary in which pods say where they may run.

Operators, effects and policies are plain text here, not enums: a new Kubernetes version may add
one, and a pod that cannot be decoded would be a pod whose usage is not counted. The code that
interprets them decides what an unknown word means. The words known today are the constants of the
`StrEnum`s below; label selectors are interpreted here (`matches`), as Kubernetes reads them.
"""

import enum
import re
from collections.abc import Collection, Mapping
from typing import Annotated, Final

from msgspec import field

from shared.api.base import View, doc

_INTEGER: Final = re.compile(r"[+-]?\d+")


class SelectorOperator(enum.StrEnum):
    """Operators of label and node selectors (`Gt` and `Lt` for nodes only)."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


class TolerationOperator(enum.StrEnum):
    """Operators of tolerations; an absent one means `Equal`."""

    EQUAL = "Equal"
    EXISTS = "Exists"


class TaintEffect(enum.StrEnum):
    """Effect of a taint on pods that do not tolerate it."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class WhenUnsatisfiable(enum.StrEnum):
    """Whether a spread constraint is hard or soft."""

    DO_NOT_SCHEDULE = "DoNotSchedule"
    SCHEDULE_ANYWAY = "ScheduleAnyway"


class LabelSelectorRequirement(View, frozen=True, kw_only=True):
    """One expression of a label selector."""

    key: Annotated[str, doc("Label that the selector applies to.")]
    operator: Annotated[str, doc("In, NotIn, Exists or DoesNotExist.")]
    values: Annotated[tuple[str, ...], doc("Values for In and NotIn; empty for the others.")] = ()


class LabelSelector(View, frozen=True, kw_only=True):
    """All expressions must hold; an empty selector matches everything, an absent one nothing."""

    match_labels: Annotated[
        Mapping[str, str], doc("Labels that must have exactly these values.")
    ] = field(default_factory=dict)
    match_expressions: Annotated[
        tuple[LabelSelectorRequirement, ...], doc("Expressions that must hold.")
    ] = ()


class NodeSelectorRequirement(View, frozen=True, kw_only=True):
    """One expression over a node's labels or fields."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class NodeSelectorTerm(View, frozen=True, kw_only=True):
    """All expressions must hold; an empty term matches no node."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(View, frozen=True, kw_only=True):
    """At least one term must hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(View, frozen=True, kw_only=True):
    """A node selector term that adds `weight` (1 to 100) to the score of nodes that match."""

    weight: int
    preference: NodeSelectorTerm


class NodeAffinity(View, frozen=True, kw_only=True):
    """Nodes that a pod must or would like to run on."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredSchedulingTerm, ...] = ()


class PodAffinityTerm(View, frozen=True, kw_only=True):
    """Pods that decide about a topology domain, and the node label that names the domain."""

    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(View, frozen=True, kw_only=True):
    """A pod affinity term that adds or takes `weight` (1 to 100)."""

    weight: int
    pod_affinity_term: PodAffinityTerm


class PodAffinity(View, frozen=True, kw_only=True):
    """Terms for running beside (affinity) or apart from (anti-affinity) other pods."""

    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] = ()
    preferred_during_scheduling_ignored_during_execution: tuple[WeightedPodAffinityTerm, ...] = ()


class Affinity(View, frozen=True, kw_only=True):
    """All affinity of a pod."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(View, frozen=True, kw_only=True):
    """A taint that the pod puts up with; an empty key or effect matches all of them."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class Taint(View, frozen=True, kw_only=True):
    """A taint of a node: keeps pods away that do not tolerate it."""

    key: str
    value: str = ""
    effect: str


class TopologySpreadConstraint(View, frozen=True, kw_only=True):
    """How evenly pods that match the selector spread over the domains of `topology_key`."""

    max_skew: int
    topology_key: str
    when_unsatisfiable: str
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] = ()


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
        case SelectorOperator.GT | SelectorOperator.LT:
            return _is_beyond(operator, value, values)
        case _:
            return False


def _is_beyond(operator: str, value: str | None, values: Collection[str]) -> bool:
    """Compare whole numbers; False for a value or a bound that is none."""
    texts = (value or "", *values)
    if len(values) != 1 or not all(_INTEGER.fullmatch(text) for text in texts):
        return False
    own, bound = map(int, texts)
    return own > bound if operator == SelectorOperator.GT else own < bound
