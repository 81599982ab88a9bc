"""The cluster as plugins and actions read it: jobs, queues, nodes and pods of the cluster state.

Implements the read-only part of `pumice.plugins.Cluster`, and the tables of nodes
(`pumice.plugins.Nodes`).
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pumice import plugins
from pumice.plugins import BoolArray, FloatArray, IntArray
from pumice.plugins.combining import OrderKey
from services.scheduler.engine.jobs.records import Job, Queue
from services.scheduler.engine.narrowing import engine_record
from services.scheduler.engine.nodes.nodes import Nodes
from services.scheduler.engine.placement.hooks import Combined
from services.scheduler.engine.state.cluster_state import ClusterState
from services.scheduler.engine.tasks.task import Task


class NodeTables:
    """Views of the columns in use; `pumice.plugins.Nodes` says what they mean."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._ledger = nodes.ledger
        self._labels: dict[str, Mapping[str, str]] | None = None

    def _columns(self, amounts: IntArray) -> IntArray:
        return amounts[:, : self._ledger.size]

    @property
    def alive(self) -> BoolArray:
        """Which columns are nodes."""
        return self._ledger.alive[: self._ledger.size]

    @property
    def unschedulable(self) -> BoolArray:
        """Which nodes are cordoned."""
        return self._nodes.attributes.unschedulable()

    @property
    def allocatable(self) -> IntArray:
        """Allocatable amounts."""
        return self._columns(self._ledger.allocatable)

    @property
    def used(self) -> IntArray:
        """Amounts that placed tasks hold."""
        return self._columns(self._ledger.used)

    @property
    def releasing(self) -> IntArray:
        """Amounts that terminating tasks hold."""
        return self._columns(self._ledger.releasing)

    @property
    def pipelined(self) -> IntArray:
        """Amounts that Pipelined tasks reserve."""
        return self._columns(self._ledger.pipelined)

    @property
    def evicted(self) -> IntArray:
        """Amounts that this session's evictions will free."""
        return self._columns(self._ledger.evicted)

    def total_used(self) -> IntArray:
        """Return what is used on all nodes."""
        return self._ledger.total_used()

    def column(self, name: str) -> int:
        """Return a node's column, -1 when there is no such node."""
        return self._nodes.column(name)

    def label(self, key: str) -> NDArray[np.object_]:
        """Return the value of a label per column."""
        return self._nodes.attributes.values(key)

    def labels(self, name: str) -> Mapping[str, str]:
        """Return all labels of a node."""
        if self._labels is None:
            self._labels = self._nodes.attributes.labels_by_name()
        return self._labels.get(name, {})


class ClusterView:
    """Read access to the cluster state and to the combined plugins."""

    def __init__(self, cluster_state: ClusterState) -> None:
        self.cluster_state = cluster_state
        self.hooks = Combined()

    @property
    def resources(self) -> Sequence[str]:
        """Names of the resources, in the order of amounts arrays."""
        return self.cluster_state.dimensions.names

    @property
    def node_names(self) -> Sequence[str]:
        """Names of the nodes by column."""
        return self.cluster_state.nodes.attributes.names

    @cached_property
    def nodes(self) -> NodeTables:
        """The tables of nodes."""
        return NodeTables(self.cluster_state.nodes)

    @property
    def queues(self) -> Mapping[str, Queue]:
        """All queues by name."""
        return self.cluster_state.jobs.queues

    def resource(self, name: str) -> int | None:
        """Return the index of a resource, None when no object ever named it."""
        return self.cluster_state.dimensions.find(name)

    def amounts(self, listed: Mapping[str, str | int | float]) -> IntArray:
        """Return a Kubernetes resource list as an amounts array. Raises `BadQuantity`."""
        return self.cluster_state.dimensions.known(listed)

    def jobs_of(self, queue: str) -> list[Job]:
        """Return the jobs of a queue in any state, in order of their keys."""
        return self.cluster_state.jobs.of_queue(queue)

    def tasks_on(self, node: str) -> Iterable[Task]:
        """Return the pods on a node that facts and assumptions put there."""
        return self.cluster_state.nodes.tasks_on(node)

    def queue(self, name: str) -> Queue | None:
        """Return a queue."""
        return self.cluster_state.jobs.queues.get(name)

    def job(self, key: str) -> Job | None:
        """Return a job."""
        return self.cluster_state.jobs.get(key)

    def job_of(self, task: plugins.Task) -> Job | None:
        """Return the job of a task."""
        return self.cluster_state.jobs.get(task.job_key)

    def victim_key(self, task: plugins.Task) -> OrderKey:
        """Return the sort key of a task among those of its node or job; the largest goes first.

        Of tasks that plugins order alike, the cheapest goes first, then the last by default.
        """
        order, job = self.hooks.task_order(task), self.job_of(task)
        cost = job.eviction_cost(engine_record(task, Task)) if job is not None else 0
        return (*order[:-1], -cost, order[-1])

    def turn_of(self, job: plugins.Job) -> OrderKey:
        """Return the sort key of a job in its queue; the smallest comes first."""
        return self.hooks.job_order(engine_record(job, Job))

    def room_of(self, queue: plugins.Queue) -> FloatArray:
        """Return the amounts that a queue may still get; infinite where no plugin limits it."""
        record = engine_record(queue, Queue)
        room: FloatArray = np.full(self.cluster_state.dimensions.capacity, np.inf)
        for left in self.hooks.queue_room:
            limit = left(record)[: len(room)]
            room[: len(limit)] = np.minimum(room[: len(limit)], limit)
        return room
