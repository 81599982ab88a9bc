"""What a round knows in numbers, for people's dashboards: queues and jobs (ME3, ME4).

Plugins that keep accounts tell them through `queue_figures` and `job_share`; nothing is computed
for them that a decision would not need. Amounts are the arrays that the accounts themselves hold:
those are replaced and never changed in place, so that another thread may read a `Figures` later.
"""

from collections.abc import Mapping

from msgspec import Struct

from pumice.plugins import BoolArray, QueueFigures


class JobFigures(Struct, frozen=True, kw_only=True):
    """What a round knows of one job."""

    namespace: str
    name: str
    """Name of the PodGroup, which is what Volcano's label `job_id` says."""
    queue: str
    created: str
    """RFC 3339, empty when unknown."""
    share: float | None
    """Dominant share of the cluster; None without a plugin that goes by it."""
    missing: int
    """Tasks that the gang lacks to its minimum; 0 when it is whole."""


class Figures(Struct, frozen=True, kw_only=True):
    """All figures of one moment."""

    resources: tuple[str, ...]
    """Names in the order of amounts arrays."""
    present: BoolArray
    """Which resources the cluster's nodes have."""
    queues: tuple[QueueFigures, ...]
    jobs: Mapping[str, JobFigures]
    """By the key of the PodGroup; the ones that changed last come last."""
