"""conformance (PL03): critical pods of the cluster are never victims."""

from collections.abc import Sequence

from pumice.plugins import Arguments, Cluster, Hooks, Task

_CRITICAL = frozenset({"system-cluster-critical", "system-node-critical"})


class Conformance:
    """Protects critical pods and the namespace kube-system."""

    name = "conformance"

    def __init__(self, arguments: Arguments) -> None:
        """Take no arguments."""

    def contribute(self, hooks: Hooks, cluster: Cluster) -> None:  # noqa: ARG002 - asks nothing
        """Add the protection."""
        hooks.preemptable(_not_critical)
        hooks.reclaimable(_not_critical)
        hooks.evictable(_not_critical)


def _not_critical(_: object, candidates: Sequence[Task]) -> list[Task]:
    return [
        task
        for task in candidates
        if task.priority_class not in _CRITICAL and task.namespace != "kube-system"
    ]
