"""How much a pod may ask for: each term is looked at for every pod or node of the cluster.

The API server sets no bound but the size of an object. Admission refuses a job whose pods would be
beyond ours. The scheduler leaves such a pod out, and its condition names the field. One that is on
a node already counts there, without its terms.
"""

from typing import Final

from shared.api.core import PodSpec
from shared.api.scheduling import PodGroupSpec
from shared.api.selectors import LabelSelector, NodeSelectorTerm, PodAffinityTerm
from shared.api.workloads import PodDisruptionBudgetSpec

POD_TERMS_MAX: Final = 32
"""Terms of pod affinity and anti-affinity, and topology spread constraints, of one pod."""
NODE_TERMS_MAX: Final = 256
"""Terms of node affinity, expressions of all of them, and labels of the node selector."""


EXPRESSIONS_MAX: Final = 256
"""Expressions of all label selectors of one object: each is looked at for every pod."""
SUBGROUP_TERMS_MAX: Final = 1_024
"""Policies of a PodGroup's subgroups with their expressions, looked at once for each pod of it."""
PARTITIONED_TASKS_MAX: Final = SUBGROUP_TERMS_MAX // 3
"""Tasks of a job that may have partitions: the policy of each has a label and a key."""
_VALUES_EACH: Final = 32
"""So many values of an expression, and namespaces of a term, count as much as one expression."""


class TooManyTerms(ValueError):  # noqa: N818 - reads as the fact it states
    """A pod asks for more than is looked at; the text names the field."""


def excess(spec: PodSpec) -> str:
    """Return which field of a pod asks for too much, and what the bound is; "" if none does."""
    pod_terms = _pod_terms(spec)
    constraints = spec.topology_spread_constraints
    for field, count, most in (
        ("affinity.podAffinity, podAntiAffinity", len(pod_terms), POD_TERMS_MAX),
        ("topologySpreadConstraints", len(constraints), POD_TERMS_MAX),
        ("affinity.nodeAffinity", _node_terms(spec), NODE_TERMS_MAX),
        ("nodeSelector", len(spec.node_selector), NODE_TERMS_MAX),
    ):
        if count > most:
            return f"spec.{field}: {count} terms, at most {most} are looked at"
    for field, count in (
        ("affinity.podAffinity, podAntiAffinity", sum(map(_expressions_of_term, pod_terms))),
        (
            "topologySpreadConstraints",
            sum(expressions(c.label_selector) + len(c.match_label_keys) for c in constraints),
        ),
    ):
        if count > EXPRESSIONS_MAX:
            return _too_many(f"spec.{field}", count)
    return ""


def excess_of_subgroups(spec: PodGroupSpec) -> str:
    """Return why the policies of a PodGroup's subgroups are too many, "" if they are not."""
    count = sum(
        1 + expressions(policy.label_selector) + len(policy.match_label_keys)
        for policy in spec.sub_group_policy
    )
    if count > SUBGROUP_TERMS_MAX:
        return f"spec.subGroupPolicy: {count} terms, at most {SUBGROUP_TERMS_MAX} are looked at"
    return ""


def excess_of_budget(spec: PodDisruptionBudgetSpec) -> str:
    """Return why the selector of a PodDisruptionBudget is too long, "" if it is not."""
    count = expressions(spec.selector)
    return _too_many("spec.selector", count) if count > EXPRESSIONS_MAX else ""


def expressions(selector: LabelSelector | None) -> int:
    """Return how many expressions there are in a selector, long lists of values as several."""
    if selector is None:
        return 0
    values = sum(len(each.values) // _VALUES_EACH for each in selector.match_expressions)
    return len(selector.match_labels) + len(selector.match_expressions) + values


def _too_many(field: str, count: int) -> str:
    return f"{field}: {count} expressions of label selectors, at most {EXPRESSIONS_MAX} are read"


def _pod_terms(spec: PodSpec) -> list[PodAffinityTerm]:
    affinity = spec.affinity
    found: list[PodAffinityTerm] = []
    for each in (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity else ():
        if each is not None:
            found += each.required_during_scheduling_ignored_during_execution
            preferred = each.preferred_during_scheduling_ignored_during_execution
            found += (weighted.pod_affinity_term for weighted in preferred)
    return found


def _expressions_of_term(term: PodAffinityTerm) -> int:
    of_namespaces = len(term.namespaces) // _VALUES_EACH + expressions(term.namespace_selector)
    keys = len(term.match_label_keys) + len(term.mismatch_label_keys)
    return expressions(term.label_selector) + of_namespaces + keys


def _node_terms(spec: PodSpec) -> int:
    stated = spec.affinity.node_affinity if spec.affinity else None
    if stated is None:
        return 0
    terms: list[NodeSelectorTerm] = [
        each.preference for each in stated.preferred_during_scheduling_ignored_during_execution
    ]
    required = stated.required_during_scheduling_ignored_during_execution
    terms += required.node_selector_terms if required is not None else ()
    return sum(max(1, len(term.match_expressions) + len(term.match_fields)) for term in terms)
