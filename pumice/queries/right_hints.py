"""Hints at the roles that give the rights which a refused request needs."""

from typing import Final

_CLUSTER: Final = "at the cluster scope"
_CLUSTER_WIDE_HINT: Final = "a ClusterRoleBinding to view, or to pumice-visibility-viewer, gives it"
_USAGE_HINT: Final = "your own usage needs no right; the ClusterRole pumice-usage-viewer gives this"
_RIGHTS_HINTS: Final = (
    ("queues", _CLUSTER, "the ClusterRole pumice-defragmenter gives it"),
    ("whatifs/cluster", "", "the ClusterRole pumice-visibility-planner gives it"),
    ("usagereports", "", _USAGE_HINT),
    ("queues/usagereports", "", _USAGE_HINT),
    ("whatifs", "", "the ClusterRole edit, or pumice-visibility-editor, gives it"),
    ("pendingjobs", _CLUSTER, f"ask about one namespace, without -A; for all {_CLUSTER_WIDE_HINT}"),
    ("", _CLUSTER, _CLUSTER_WIDE_HINT),
    ("", "", "the ClusterRole view, or pumice-visibility-viewer, gives it"),
)
"""Resource, part of the error message, and the hint to show; the first match counts."""


def right_hint(refusal: str) -> str:
    """Return which role gives the right that was missing."""
    return next(
        helps
        for resource, scope, helps in _RIGHTS_HINTS
        if scope in refusal and (not resource or f'resource "{resource}"' in refusal)
    )
