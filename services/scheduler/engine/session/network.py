"""The network topology of one session: limits and HyperNodes of jobs and subgroups.

`Network` knows for each job and subgroup the highest tier that it may span and the HyperNode that
it is in. The HyperNodes themselves outlive sessions (`nodes.hypernodes`).
"""

import numpy as np

from pumice import plugins
from pumice.plugins import BoolArray
from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.jobs.subjobs import SubJob
from services.scheduler.engine.narrowing import engine_record
from services.scheduler.engine.nodes.hypernodes import TOP, Layout
from shared.api.scheduling import NetworkTopology, TopologyMode
from shared.model.status import HOLDS_RESOURCES


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
        """Return the mask of the columns below a HyperNode."""
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
        sub_jobs = engine_record(job, Job).sub_jobs
        return self._limit(sub_jobs.topology, self.top_tier) if sub_jobs else None

    def limit_of_sub(self, job: plugins.Job, sub: plugins.SubJob) -> int | None:
        """Return the highest tier that a subgroup may span, at most the limit of its job."""
        return self._limit(
            engine_record(sub, SubJob).topology, self._bound(engine_record(job, Job))
        )

    def _bound(self, job: Job) -> int:
        topology = job.sub_jobs.topology if job.sub_jobs else None
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
        if job.sub_jobs is None:
            return False
        return self.limit_of_job(job) is not None or any(
            self.limit_of_sub(job, sub) is not None for sub in job.sub_jobs.by_id().values()
        )

    # --- places (SS12) -----------------------------------------------------------------------

    def allocated(self, job: plugins.Job, sub: plugins.SubJob | None = None) -> str:
        """Return the HyperNode that a job or subgroup is in, empty when in none yet."""
        if job.key not in self._recovered:
            self._recovered.add(job.key)
            self._recover(engine_record(job, Job))
        return self._allocated.get(_key(job, sub), "")

    def occupy(self, job: Job, name: str, sub: SubJob | None = None) -> None:
        """Set the HyperNode of a job or subgroup for the rest of the session."""
        self._allocated[_key(job, sub)] = name

    def widened(self, present: str, more: str) -> str:
        """Return the lowest HyperNode that contains both; no name is in all of them."""
        return self.forest.common_ancestor(present, more)

    def _recover(self, job: Job) -> None:
        """Derive the HyperNodes of jobs from the nodes of their tasks, as after a restart.

        Of HyperNodes that hold all allocated tasks of a subgroup the lowest counts.
        """
        if job.sub_jobs is None or not self.ready:
            return
        whole = ""
        for sub in job.sub_jobs.by_id().values():
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
