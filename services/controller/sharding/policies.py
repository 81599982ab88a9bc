"""The policies by which a shard chooses its nodes (S01), under Volcano's names.

A policy takes part in one or more steps: it filters nodes, scores them, or selects among those that
are sorted by their scores. The base class says what a policy does in a step that is not its own.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from typing_extensions import override

_HUNDRED: Final = 100
WARMUP_LABEL: Final = "node.volcano.sh/warmup"


class NodeLoad(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a node that policies read."""

    name: str
    labels: Mapping[str, str]
    cpu_share: float
    """Requested CPU over the node's capacity, 1.0 at most."""


class ShardPolicy(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """A policy; its fields are its `arguments` in the configuration."""

    def problem(self) -> str:
        """Return the reason why these arguments cannot be used, else ""."""
        return ""

    def keeps(self, _node: NodeLoad) -> bool:
        """Return whether a node may be in the shard."""
        return True

    def score(self, _node: NodeLoad) -> float:
        """Return how much a node suits the shard, from 0 to 1."""
        return 0.0

    def select(self, nodes: Sequence[NodeLoad]) -> Sequence[NodeLoad]:
        """Return the nodes of the shard, of all that may be in it, the best first."""
        return nodes


class AllocationRate(ShardPolicy, frozen=True, kw_only=True):
    """Selects nodes by the requested share of their CPU; fuller ones come first.

    Shares and bounds are rounded to hundredths, as Volcano rounds them.
    """

    low: float = msgspec.field(default=0.0, name="minCPUUtil")
    high: float = msgspec.field(default=1.0, name="maxCPUUtil")

    @override
    def problem(self) -> str:
        if 0.0 <= self.low <= self.high <= 1.0:
            return ""
        return f"minCPUUtil {self.low:g} and maxCPUUtil {self.high:g} are no range within 0 and 1"

    @override
    def keeps(self, node: NodeLoad) -> bool:
        return _rounded(self.low) <= _rounded(node.cpu_share) <= _rounded(self.high)

    @override
    def score(self, node: NodeLoad) -> float:
        width = _rounded(self.high) - _rounded(self.low)
        if width == 0.0:
            return 1.0
        return min(1.0, max(0.0, (_rounded(node.cpu_share) - _rounded(self.low)) / width))


class Warmup(ShardPolicy, frozen=True, kw_only=True):
    """Prefers nodes with a label."""

    warmup_label: str = WARMUP_LABEL
    warmup_label_value: str = "true"

    @override
    def problem(self) -> str:
        return "" if self.warmup_label else "warmupLabel is empty"

    @override
    def score(self, node: NodeLoad) -> float:
        return float(node.labels.get(self.warmup_label, "") == self.warmup_label_value)


class NodeLimit(ShardPolicy, frozen=True, kw_only=True):
    """Limits the number of nodes of a shard; `minNodes` has no effect, as in Volcano."""

    min_nodes: int = 0
    max_nodes: int = 0
    """0: without a bound."""

    @override
    def problem(self) -> str:
        if self.min_nodes < 0:
            return f"minNodes {self.min_nodes} is below 0"
        if 0 < self.max_nodes < self.min_nodes:
            return f"maxNodes {self.max_nodes} is below minNodes {self.min_nodes}"
        return ""

    @override
    def select(self, nodes: Sequence[NodeLoad]) -> Sequence[NodeLoad]:
        return nodes[: self.max_nodes] if self.max_nodes > 0 else nodes


POLICIES: Final[Mapping[str, type[ShardPolicy]]] = {
    "allocation-rate": AllocationRate,
    "warmup": Warmup,
    "node-limit": NodeLimit,
}


class Weighted(msgspec.Struct, frozen=True):
    """A policy of a shard, and the factor of its scores."""

    policy: ShardPolicy
    weight: int = 1


def policy_of(name: str, arguments: Mapping[str, Any]) -> ShardPolicy:
    """Return a policy. Raises ValueError for a name or arguments that it cannot be made from."""
    if name not in POLICIES:
        raise ValueError(f"{name!r} is none of {', '.join(POLICIES)}")
    found = msgspec.convert(arguments, POLICIES[name])
    if problem := found.problem():
        raise ValueError(problem)
    return found


def _rounded(share: float) -> float:
    """Return a share in whole hundredths; halves are rounded up, as Go does."""
    return math.floor(share * _HUNDRED + 0.5) / _HUNDRED
