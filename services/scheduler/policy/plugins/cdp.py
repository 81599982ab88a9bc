"""cdp (PL15): a pod with a cooldown is not evicted until the cooldown has passed.

The time counts from when the pod was scheduled and protects it while it runs: an elastic job's pods
should not be evicted again as soon as they were scheduled again.
"""

from collections.abc import Sequence

from pumice.plugins import Arguments, Cluster, Hooks, Task


class Cdp:
    """Cooldown protection."""

    name = "cdp"

    def __init__(self, arguments: Arguments) -> None:
        """Take no arguments."""

    def contribute(self, hooks: Hooks, cluster: Cluster) -> None:
        """Add the protection."""
        now = cluster.now

        def cooled(_: Task, candidates: Sequence[Task]) -> list[Task]:
            return [task for task in candidates if task.cools_until <= now]

        hooks.preemptable(cooled)
        hooks.reclaimable(cooled)
