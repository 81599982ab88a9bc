"""What a round knows in numbers, for people's dashboards: queues and jobs (ME3, ME4).

Plugins that keep accounts tell them through `Session.accounting` and `Session.job_share`; nothing
is computed for them that a decision would not need. Amounts are the arrays that the accounts
themselves hold: those are replaced and never changed in place, so whoever has a `Figures` may read
it later, in another thread.
"""

from collections.abc import Mapping

from msgspec import Struct

from pumice.plugins import BoolArray, FloatArray, IntArray

Amounts = IntArray | FloatArray
"""One entry per resource: thousandths of CPU, bytes, counts of pods, thousandths of the rest."""


class QueueFigures(Struct, frozen=True, kw_only=True):
    """What a plugin knows of one queue at the end of a round."""

    name: str
    allocated: Amounts
    request: Amounts
    inqueue: Amounts
    deserved: Amounts
    share: float
    """The largest allocated/deserved."""
    overused: bool
    weight: int | None = None
    """None where weights are not what queues share by."""
    capacity: Amounts | None = None
    """What the queue states, infinite where it is silent; None when it states nothing."""
    real_capacity: Amounts | None = None
    """What it can have at most; None where nobody asks."""


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
