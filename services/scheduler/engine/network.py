"""The network as one session sees it: HyperNodes over the ledger's columns, and who is where.

`HyperNodes` folds the objects and keeps their `Layout` between cycles: with a virtual HyperNode
above all others (SS02), so that "anywhere" is a place like any other. `Network` belongs to a
session and knows for each job and subgroup the highest tier that it may span and the HyperNode that
it is in.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np
from msgspec.structs import replace

from pumice import plugins
from pumice.plugins import BoolArray, IntArray
from services.scheduler.engine.nodes import Nodes
from services.scheduler.engine.own import own
from services.scheduler.engine.records import Job
from services.scheduler.engine.subjobs import SubJob
from shared.api.scheduling import NetworkTopology, TopologyMode
from shared.api.topology import HyperNode, HyperNodeSpec
from shared.model.hypernodes import Forest, forest
from shared.model.status import HOLDS_RESOURCES

TOP: Final = "<cluster-top-hypernode>"
"""The virtual HyperNode above all others."""


class HyperNodes:
    """The HyperNode objects, and the forest that they make of the nodes."""

    def __init__(self) -> None:
        self._specs: dict[str, HyperNodeSpec] = {}
        self._version = 0
        self._made: tuple[tuple[int, int], Layout] | None = None

    def put(self, name: str, obj: HyperNode) -> None:
        """Take over an object."""
        if self._specs.get(name) != obj.spec:
            self._specs[name] = obj.spec
            self._version += 1

    def remove(self, name: str) -> None:
        """Forget an object."""
        if self._specs.pop(name, None) is not None:
            self._version += 1

    def layout(self, nodes: Nodes) -> "Layout":
        """Return where they are; made anew only when HyperNodes, names or labels changed."""
        state = (self._version, nodes.attributes.generation)
        if self._made is None or self._made[0] != state:
            labels = nodes.attributes.labels_by_name() if self._specs else {}
            self._made = (state, Layout(forest(self._specs, labels), nodes))
        return self._made[1]


class Layout:
    """HyperNodes over columns, the virtual one above all others included (SS02)."""

    def __init__(self, below: Forest, nodes: Nodes) -> None:
        self._nodes = nodes
        self.size = nodes.ledger.size
        self.is_empty = not below.by_tier
        """Whether the virtual HyperNode is the only one."""
        self.forest = with_top(below, nodes.attributes.names)
        self.tiers = sorted(self.forest.by_tier)
        self._columns: dict[str, IntArray] = {}
        self._at_tier: dict[int, IntArray] = {}

    def columns(self, name: str) -> IntArray:
        """Return the columns of the nodes below a HyperNode; none for an unknown one."""
        found = self._columns.get(name)
        if found is None:
            places = [self._nodes.column(node) for node in self.forest.nodes.get(name, ())]
            found = np.array(sorted(p for p in places if p >= 0), dtype=np.int64)
            self._columns[name] = found
        return found

    def at_tier(self, tier: int) -> IntArray:
        """Return per column its HyperNode of a tier: position in `by_tier`, -1 = none."""
        found = self._at_tier.get(tier)
        if found is None:
            found = np.full(self.size, -1, dtype=np.int64)
            for number, name in reversed(list(enumerate(self.forest.by_tier.get(tier, ())))):
                found[self.columns(name)] = number
            self._at_tier[tier] = found
        return found


class Network:
    """The layout, and limits and places of jobs and subgroups in this session."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.forest = layout.forest
        self.tiers = layout.tiers
        self.top_tier = self.forest.tiers[TOP]
        self._allocated: dict[str, str] = {}
        self._recovered: set[str] = set()
        self.nominated: dict[str, str] = {}
        """Subgroup → HyperNode that an eviction made room in (A08)."""

    @property
    def ready(self) -> bool:
        """Whether jobs with a topology may be placed."""
        return self.forest.ready

    # --- nodes -------------------------------------------------------------------------------

    def mask(self, name: str) -> BoolArray:
        """Return which columns are below a HyperNode."""
        result = np.zeros(self.layout.size, dtype=np.bool_)
        result[self.layout.columns(name)] = True
        return result

    def leaf(self, column: int) -> str:
        """Return the HyperNode of the lowest tier that a column belongs to, empty when none."""
        number = int(self.layout.at_tier(self.tiers[0])[column])
        return self.forest.by_tier[self.tiers[0]][number] if number >= 0 else ""

    # --- limits (SS02) -----------------------------------------------------------------------

    def limit_of_job(self, job: plugins.Job) -> int | None:
        """Return the highest tier that a job may span, None when it has no such limit."""
        division = own(job, Job).division
        return self._limit(division.topology, self.top_tier) if division else None

    def limit_of_sub(self, job: plugins.Job, sub: plugins.SubJob) -> int | None:
        """Return the highest tier that a subgroup may span; a wish is bounded by the job's."""
        return self._limit(own(sub, SubJob).topology, self._bound(own(job, Job)))

    def _bound(self, job: Job) -> int:
        topology = job.division.topology if job.division else None
        if topology is None:
            return self.top_tier
        if topology.mode is TopologyMode.SOFT:
            return self.top_tier
        stated = self._stated(topology)
        return self.top_tier if stated is None else stated

    def _limit(self, topology: NetworkTopology | None, softly: int) -> int | None:
        if topology is None:
            return None
        return softly if topology.mode is TopologyMode.SOFT else self._stated(topology)

    def _stated(self, topology: NetworkTopology) -> int | None:
        if topology.highest_tier_allowed is not None:
            return topology.highest_tier_allowed
        return self.forest.tier_names.get(topology.highest_tier_name)

    def is_bound(self, job: Job) -> bool:
        """Tell whether a job or one of its subgroups has a limit."""
        if job.division is None:
            return False
        return self.limit_of_job(job) is not None or any(
            self.limit_of_sub(job, sub) is not None for sub in job.division.subs().values()
        )

    # --- places (SS12) -----------------------------------------------------------------------

    def allocated(self, job: plugins.Job, sub: plugins.SubJob | None = None) -> str:
        """Return the HyperNode that a job or subgroup is in, empty when in none yet."""
        if job.key not in self._recovered:
            self._recovered.add(job.key)
            self._recover(own(job, Job))
        return self._allocated.get(_key(job, sub), "")

    def occupy(self, job: Job, name: str, sub: SubJob | None = None) -> None:
        """State the HyperNode that a job or subgroup is in for the rest of the session."""
        self._allocated[_key(job, sub)] = name

    def widened(self, present: str, more: str) -> str:
        """Return the lowest HyperNode that contains both; no name is in all of them."""
        return self.forest.common_ancestor(present, more)

    def _recover(self, job: Job) -> None:
        """Derive places from where tasks are: the facts outlive a scheduler, its memory does not.

        Of HyperNodes that hold all allocated tasks of a subgroup the lowest counts.
        """
        if job.division is None or not self.ready:
            return
        whole = ""
        for sub in job.division.subs().values():
            if sub.topology is None:
                continue
            place = self._lowest(
                {t.node for t in sub.tasks.values() if HOLDS_RESOURCES[t.status] and t.node}
            )
            if place:
                self._allocated[_key(job, sub)] = place
                whole = self.widened(whole, place)
        if whole:
            self._allocated[_key(job, None)] = whole

    def _lowest(self, nodes: set[str]) -> str:
        if not nodes:
            return ""
        holders = [
            (self.forest.tiers[name], name)
            for name in self.forest.tiers
            if nodes <= self.forest.nodes.get(name, frozenset())
        ]
        return min(holders, default=(0, ""))[1]


def _key(job: plugins.Job, sub: plugins.SubJob | None) -> str:
    return f"{sub.id}#" if sub else job.key


def with_top(below: Forest, nodes: Mapping[str, object] | list[str]) -> Forest:
    """Return a forest with the virtual HyperNode above all roots (SS02)."""
    roots = sorted(name for name in below.tiers if name not in below.parents)
    tier = max((*below.by_tier, 0)) + 1
    return replace(
        below,
        tiers={**below.tiers, TOP: tier},
        parents={**below.parents, **dict.fromkeys(roots, TOP)},
        children={**below.children, TOP: tuple(roots)},
        nodes={**below.nodes, TOP: frozenset(name for name in nodes if name)},
        by_tier={**below.by_tier, tier: (TOP,)},
    )
