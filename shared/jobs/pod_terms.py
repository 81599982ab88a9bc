"""How much a pod may ask for: each term is looked at for every pod or node of the cluster.

The API server sets no bound but the size of an object. Admission refuses a job whose pods would be
beyond ours. The scheduler leaves such a pod out, and its condition names the field. One that is on
a node already counts there, without its terms.
"""

from typing import Final

from shared.api.core import PodSpec
from shared.api.selectors import NodeSelectorTerm

POD_TERMS_MAX: Final = 32
"""Terms of pod affinity and anti-affinity, and topology spread constraints, of one pod."""
NODE_TERMS_MAX: Final = 256
"""Terms of node affinity, expressions of all of them, and labels of the node selector."""


class TooManyTerms(ValueError):  # noqa: N818 - reads as the fact it states
    """A pod asks for more than is looked at; the text names the field."""


def excess(spec: PodSpec) -> str:
    """Return which field of a pod asks for too much, and what the bound is; "" if none does."""
    for field, count, most in (
        ("affinity.podAffinity, podAntiAffinity", _pod_terms(spec), POD_TERMS_MAX),
        ("topologySpreadConstraints", len(spec.topology_spread_constraints), POD_TERMS_MAX),
        ("affinity.nodeAffinity", _node_terms(spec), NODE_TERMS_MAX),
        ("nodeSelector", len(spec.node_selector), NODE_TERMS_MAX),
    ):
        if count > most:
            return f"spec.{field}: {count} terms, at most {most} are looked at"
    return ""


def _pod_terms(spec: PodSpec) -> int:
    affinity = spec.affinity
    kinds = (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity else ()
    return sum(
        len(each.required_during_scheduling_ignored_during_execution)
        + len(each.preferred_during_scheduling_ignored_during_execution)
        for each in kinds
        if each is not None
    )


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
