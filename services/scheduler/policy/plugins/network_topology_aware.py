"""network-topology-aware (PL17): keeps groups near each other and packs HyperNodes."""

from collections.abc import Sequence

import numpy as np

from pumice.plugins import (
    Arguments,
    Cluster,
    FloatArray,
    Hooks,
    IntArray,
    Job,
    PlacementTarget,
    SubJob,
    Task,
    TaskClass,
)
from services.scheduler.engine.resources.amounts import AMOUNT_MAX, total_of
from services.scheduler.engine.resources.dimensions import CPU_DIM, MEMORY_DIM
from services.scheduler.engine.session.network import Network
from services.scheduler.policy import network_scores as scores
from services.scheduler.policy.arguments import boolean, integer, names, number
from shared.model.resources import CPU, MEMORY

_MAX = 100
_EVICTION_DOMAINS = 8
_FADING = 0.8


class NetworkTopologyAware:
    """Selects the HyperNodes to try, and scores HyperNodes and nodes."""

    name = "network-topology-aware"

    def __init__(self, arguments: Arguments) -> None:
        """Take the arguments; negative numbers count as the default."""
        self._weight = _positive(integer(arguments, "weight", 1), 1)
        prefix = "hypernode.binpack"
        listed = names(arguments, f"{prefix}.resources")
        weights = {name: integer(arguments, f"{prefix}.resources.{name}", 1) for name in listed}
        weights[CPU] = integer(arguments, f"{prefix}.cpu", 1)
        weights[MEMORY] = integer(arguments, f"{prefix}.memory", 1)
        self._weights = {name: _positive(weight, 1) for name, weight in weights.items()}
        self._normal = boolean(arguments, f"{prefix}.normal-pod.enable", default=True)
        fading = number(arguments, f"{prefix}.normal-pod.fading", _FADING)
        self._fading = fading if fading >= 0 else _FADING
        most = integer(arguments, "hypernode.gradient.evict.max-hypernodes", _EVICTION_DOMAINS)
        self._domains = most if most > 0 else _EVICTION_DOMAINS

    def contribute(self, hooks: Hooks, cluster: Cluster) -> None:
        """Add the gradients and scores."""
        round_ = _Round(self._weight, self._weights, cluster)

        def of_job(job: Job, root: str, evict: bool) -> list[list[str]]:
            network = cluster.store(Network)
            limit = network.limit_of_job(job)
            requested = job.min_resources
            if requested is None:
                requested = np.zeros_like(cluster.total)
            return self._levels(round_, root, limit, network.allocated(job), requested, evict=evict)

        def of_sub(sub: SubJob, root: str, evict: bool) -> list[list[str]]:
            network = cluster.store(Network)
            job = cluster.job(sub.job_key)
            assert job is not None, f"{sub.job_key} is not a job of this session"
            requested = _summed(sub.pending(), cluster.total)
            so_far = network.allocated(job, sub)
            limit = network.limit_of_sub(job, sub)
            return self._levels(round_, root, limit, so_far, requested, evict=evict)

        def of_node(
            target: PlacementTarget, task_class: TaskClass, columns: IntArray
        ) -> FloatArray | None:
            if target.sub is not None and target.sub.states_topology:
                return round_.of_group(target, target.sub, columns)
            return round_.of_anyone(task_class, columns, self._fading) if self._normal else None

        hooks.job_gradient(of_job)
        hooks.sub_job_gradient(of_sub)
        hooks.hypernode_score(round_.of_hypernodes)
        hooks.batch_node_order(of_node)

    def _levels(
        self,
        round_: "_Round",
        root: str,
        limit: int | None,
        so_far: str,
        requested: IntArray,
        *,
        evict: bool,
    ) -> list[list[str]]:
        if limit is None:
            return [[root]]
        levels = round_.gradient(root, limit, so_far, requested, evict=evict)
        return scores.cut_for_eviction(levels, self._domains) if evict else levels


class _Round:
    """The plugin in one session."""

    def __init__(self, weight: int, weights: dict[str, int], cluster: Cluster) -> None:
        self._scale = float(_MAX * weight)
        self._cluster = cluster
        self._nodes = nodes = cluster.nodes
        places = [(cluster.resource(name), w) for name, w in weights.items()]
        self._weights = {dim: w for dim, w in places if dim is not None}
        # ⚠ Room is that at the beginning of the session, without later placements.
        self._idle: IntArray = nodes.allocatable - nodes.used
        self._future: IntArray = self._idle + nodes.releasing

    @property
    def _network(self) -> Network:
        return self._cluster.store(Network)

    # --- which HyperNodes --------------------------------------------------------------------

    def gradient(
        self, root: str, limit: int, so_far: str, requested: IntArray, *, evict: bool
    ) -> list[list[str]]:
        """Return the HyperNodes to try."""
        network = self._network
        dims = [d for d, amount in enumerate(requested) if amount or d in {CPU_DIM, MEMORY_DIM}]
        requested_dims = requested[dims]
        rooms = (self._nodes.allocatable,) if evict else (self._idle, self._future)

        def has_room(name: str) -> bool:
            columns = network.layout.columns(name)
            return any(
                bool((requested_dims <= room[:, columns].sum(axis=1, dtype=np.float64)[dims]).all())
                for room in rooms
            )

        return scores.gradient(network.forest, root, limit, so_far, has_room)

    # --- scores ------------------------------------------------------------------------------

    def of_hypernodes(self, sub: SubJob, candidates: Sequence[str]) -> list[float]:
        """Score HyperNodes for a subgroup: by utilisation, then by its number of tasks there."""
        network = self._network
        tasks = list(sub.tasks.values())
        request = _summed(tasks, self._cluster.total)
        places = [network.layout.columns(name) for name in candidates]

        def per_place(amounts: IntArray) -> IntArray:
            sums = [amounts[columns].sum(dtype=np.float64) for columns in places]
            return np.minimum(sums, AMOUNT_MAX).astype(np.int64)

        requested = [
            scores.RequestedResource(
                weight,
                int(request[dim]),
                per_place(self._used(dim)),
                per_place(self._nodes.allocatable[dim]),
            )
            for dim, weight in self._weights.items()
            if request[dim]
        ]
        packed = scores.binpacked(requested, len(candidates))
        found = scores.with_tie_break(
            packed, lambda: np.array([self._share(sub, name) for name in candidates])
        )
        result: list[float] = (found * self._scale).tolist()
        return result

    def of_group(
        self, target: PlacementTarget, sub: SubJob, columns: IntArray
    ) -> FloatArray | None:
        """Score nodes for a group: by nearness to its HyperNode, then by its tasks there."""
        network = self._network
        if not target.allocated:
            return None
        lowest, highest = network.tiers[0], network.tiers[-1]
        numbers, where = np.unique(network.layout.at_tier(lowest)[columns], return_inverse=True)
        known = network.forest.by_tier[lowest]
        places = [known[number] if number >= 0 else "" for number in numbers.tolist()]
        near = np.array(
            [
                scores.nearness(network.forest, place, target.allocated, lowest, highest)
                for place in places
            ]
        )
        found = scores.with_tie_break(
            near[where], lambda: np.array([self._share(sub, place) for place in places])[where]
        )
        return found * self._scale if len(places) > 1 else None

    def of_anyone(
        self, task_class: TaskClass, columns: IntArray, fading: float
    ) -> FloatArray | None:
        """Score nodes by the utilisation of their HyperNodes; best where there are none."""
        network = self._network
        if network.layout.is_empty:
            return None
        weights = scores.tier_weights(network.tiers, fading)
        total = np.zeros(len(columns), dtype=np.float64)
        differs = False
        for tier, weight in weights.items():
            where = network.layout.at_tier(tier)[columns]
            differs = differs or bool(len(where) and (where != where[0]).any())
            packed = np.append(self._packed(task_class, tier), scores.FULL)
            total += weight * packed[where]
        whole = sum(weights.values())
        return total * (self._scale / whole) if differs and whole > 0 else None

    def _packed(self, task_class: TaskClass, tier: int) -> FloatArray:
        """Return the utilisation of each HyperNode of a tier with one more task."""
        network = self._network
        where = network.layout.at_tier(tier)
        count = len(network.forest.by_tier.get(tier, ()))

        def summed(amounts: IntArray) -> IntArray:
            sums = np.bincount(where + 1, weights=amounts, minlength=count + 1)[1:]
            return sums.astype(np.int64)

        requested = [
            scores.RequestedResource(
                weight,
                int(task_class.request[dim]),
                summed(self._used(dim)),
                summed(self._nodes.allocatable[dim]),
            )
            for dim, weight in self._weights.items()
            if task_class.request[dim]
        ]
        return scores.binpacked(requested, count)

    def _used(self, dim: int) -> IntArray:
        """Return allocated and Pipelined amounts per column, without evicted pods."""
        nodes = self._nodes
        used: IntArray = nodes.used[dim] + nodes.pipelined[dim] - nodes.evicted[dim]
        return used

    def _share(self, sub: SubJob, place: str) -> float:
        """Return the fraction of a subgroup's tasks on nodes of a HyperNode."""
        nodes = self._network.forest.nodes.get(place, frozenset())
        return sum(task.node in nodes for task in sub.tasks.values()) / max(1, len(sub.tasks))


def _summed(tasks: Sequence[Task], like: IntArray) -> IntArray:
    """Return the sum of the tasks' requests."""
    return total_of((task.task_class.request for task in tasks), like)


def _positive(value: int, default: int) -> int:
    return default if value < 0 else value
