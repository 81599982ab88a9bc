"""The settings that scheduling decisions depend on, beside the scheduler configuration."""

from typing import Final

import msgspec

from services.scheduler.engine.state.shards import UNSHARDED, Sharding

MIN_WAITING_FOR_POOL: Final = 20
"""The unschedulable pool stays empty while at most this many jobs wait: their status is current."""


class DecisionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that decisions depend on; a recorded cycle holds them too."""

    scheduler_names: tuple[str, ...] = ("volcano",)
    """Values of `schedulerName` whose pods are scheduled."""
    seed: int = 0
    """Of the random numbers with which ties are broken."""
    sharding: Sharding = UNSHARDED
    queue_gates: bool = False
    """Whether pods wait with a scheduling gate until their queue admits them."""
    csi_storage: bool = True
    """Whether the capacity of CSI storage is taken into account."""
    mindcluster: bool = False
    """Whether nodes show NPUs as MindCluster does."""
    node_labels: tuple[tuple[str, str], ...] = ()
    """Only nodes with one of these labels are used, if there are any."""
    single_pods: bool = False
    """Whether pods without a PodGroup are scheduled, and no others."""
    min_waiting_for_pool: int = MIN_WAITING_FOR_POOL


DEFAULTS: Final = DecisionSettings()
