"""The scheduler's model of the cluster, folded from facts and kept between cycles.

The result depends only on the last fact of each object: facts of different objects may come in any
order, and repeatedly. A session changes the state in place and undoes all its changes, so between
cycles it holds only facts and assumptions.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np

from pumice.plugins import Fold, IntArray, Journal, PolicyState
from services.scheduler.engine.jobs.jobs import Jobs
from services.scheduler.engine.jobs.records import GroupStatus
from services.scheduler.engine.narrowing import engine_record
from services.scheduler.engine.nodes.attributes import StaticCache
from services.scheduler.engine.nodes.hypernodes import HyperNodes
from services.scheduler.engine.nodes.nodes import Drift, Nodes
from services.scheduler.engine.plan import Plan
from services.scheduler.engine.resources.dimensions import Dimensions
from services.scheduler.engine.state.assumptions import (
    Assumption,
    Assumptions,
    Nominations,
    Purpose,
)
from services.scheduler.engine.state.groups import PodGroups
from services.scheduler.engine.state.refusals import Refusals
from services.scheduler.engine.state.shards import NodeShards
from services.scheduler.engine.state.single_pods import SinglePods
from services.scheduler.engine.tasks.classes import TaskClasses
from services.scheduler.engine.tasks.from_pod import fill_in, traits_of
from services.scheduler.engine.tasks.task import Task, TaskClass
from shared.api import kinds
from shared.api.core import Node, Pod
from shared.api.scheduling import NodeShard
from shared.contracts.messages import Bind, ItemOutcome, Result, Victim
from shared.jobs.pod_terms import TooManyTerms, excess
from shared.model.quantity import BadQuantity
from shared.model.status import TERMINAL

_S = TypeVar("_S")


class BadFact(ValueError):  # noqa: N818 - reads as the fact it states
    """A fact that cannot be folded; the text names the object and what is wrong with it."""


class ClusterState:
    """Nodes, jobs, queues and tasks with their sums. Used by one thread at a time."""

    def __init__(
        self,
        scheduler_names: Iterable[str] = ("volcano",),
        states: Iterable[Callable[[], PolicyState]] = (),
        node_labels: Iterable[tuple[str, str]] = (),
        *,
        single_pods: bool = False,
    ) -> None:
        """Create a state without facts.

        Args:
            scheduler_names: Values of `spec.schedulerName` whose pods this scheduler places.
            states: Factories of the state that plugins keep (`PolicyState`).
            node_labels: (label, value) pairs; with any, only nodes that have one take part (K11).
            single_pods: Whether each pod is a job of its own, without PodGroups and queues (Y01).
        """
        self._names = frozenset(scheduler_names)
        self._node_labels = frozenset(node_labels)
        self.states = [state() for state in states]
        self.dimensions = Dimensions(
            self._stretch, lambda name: any(state.manages(name) for state in self.states)
        )
        self.task_classes = TaskClasses(self.dimensions, self.states)
        self.nodes = Nodes(self.dimensions, self.task_classes)
        affinity = self.nodes.pod_affinity
        self.jobs = Jobs(self.dimensions)
        self.groups = PodGroups(self.jobs)
        self.hypernodes = HyperNodes()
        self.shards = NodeShards()
        self.static_cache = StaticCache()
        self.memory: dict[str, float] = {}
        """Name of a plugin → when it last did its periodic work (Unix seconds)."""
        self._consistent = True
        self._tasks: dict[str, Task] = {}
        self._uid_by_key: dict[str, str] = {}
        self.quarantined: dict[str, dict[str, str]] = {}
        """Kind → key → uid of objects that exist but could not be folded, and count nowhere."""
        self.assumptions = Assumptions()
        self.nominations = Nominations()
        self.refusals = Refusals()
        self._folds: dict[str, list[Fold]] = {
            kinds.POD.token: [Fold(self._put_pod, self._remove_pod)],
            kinds.NODE.token: [Fold(self._put_node, self._put_node)],
            **self.jobs.folds(),
            kinds.HYPERNODE.token: [Fold(self.hypernodes.put, self.hypernodes.remove)],
            kinds.NODESHARD.token: [Fold(self._put_shard, self._remove_shard)],
            **self.groups.folds(Fold(affinity.put_namespace, affinity.remove_namespace)),
        }
        self.single_pods = single_pods
        if single_pods:
            self._take_pods_singly()
        for state in self.states:
            for kind, fold in state.folds().items():
                # First, since the engine may count pods anew on a node that it takes over.
                self._folds.setdefault(kind, []).insert(0, fold)
        tables = (self.nodes.attributes, self.nodes.images, self.nodes.arrivals, affinity)
        # by base classes as well: a state of an external plugin is of a guarded subclass
        self._stores = {c: s for s in (*self.states, *tables) for c in type(s).__mro__}

    def _take_pods_singly(self) -> None:
        singles = SinglePods(self.jobs, self._names)
        self._folds[kinds.POD.token].insert(0, Fold(singles.put, singles.remove))
        for kind in (kinds.PODGROUP, kinds.NATIVEPODGROUP, kinds.QUEUE):
            del self._folds[kind.token]

    @property
    def kinds(self) -> frozenset[str]:
        """Tokens of the kinds that are folded; others need not be read."""
        return frozenset(self._folds)

    @property
    def is_consistent(self) -> bool:
        """Whether all sums are right; False after a change of them has failed half-way."""
        return self._consistent and self.nodes.pod_affinity.is_consistent

    def mark_inconsistent(self) -> None:
        """Record that a change has failed half-way, so STATE has to be read again."""
        self._consistent = False

    # --- facts -------------------------------------------------------------------------------

    def put(self, kind: str, key: str, uid: str, obj: Any) -> None:  # noqa: ANN401 - of any kind
        """Fold a new or changed object, whose decoded view is `obj`.

        `kind` is a token of `shared.api.kinds.KINDS`; those that scheduling does not read are
        ignored. Raises `BadFact` for an object with a bad value, which is then quarantined.
        """
        if kind not in self._folds:
            return
        quarantined = self.quarantined.setdefault(kind, {})
        quarantined.pop(key, None)
        try:
            for fold in self._folds[kind]:
                fold.put(key, obj)
        except (BadQuantity, TooManyTerms) as error:
            self._remove(kind, key)
            quarantined[key] = uid
            raise BadFact(f"{kind} {key} (uid {uid}): {error}") from error
        if kind == kinds.POD.token and key not in self._uid_by_key:
            quarantined[key] = uid

    def delete(self, kind: str, key: str, uid: str) -> None:
        """Fold that no object has that key; one with another uid goes, as STATE coalesces facts."""
        if kind not in self._folds:
            return
        self.quarantined.setdefault(kind, {}).pop(key, None)
        if kind == kinds.POD.token:
            self.assumptions.drop(uid)
            self.nominations.drop(uid)
        self._remove(kind, key)

    def quarantine(self, kind: str, key: str, uid: str) -> None:
        """Remove an object that exists but cannot be folded; it counts nowhere until it changes."""
        if kind in self._folds:
            self.delete(kind, key, uid)
            self.quarantined[kind][key] = uid

    def _remove(self, kind: str, key: str) -> None:
        for fold in self._folds[kind]:
            fold.remove(key)

    def _stretch(self) -> None:
        capacity = self.dimensions.capacity
        consistent, self._consistent = self._consistent, False
        for task_class in self.task_classes.all():
            task_class.request = self.dimensions.fitted(task_class.request)
        self.nodes.ledger.grow_rows(capacity)
        self.jobs.stretch(capacity)
        self._consistent = consistent

    def _put_node(self, name: str, node: Node | None = None) -> None:
        before, labels = self.nodes.ledger.largest, self._node_labels
        if node and (not labels or labels & set(node.metadata.labels.items())):
            self.nodes.put(name, node)
        else:
            self.nodes.remove(name)
        self._recount(before)

    def begin_session(self, journal: Journal) -> None:
        """Begin a session; states of policy say what nodes offer beyond their objects."""
        for state in self.states:
            state.begin(journal)
        before = self.nodes.ledger.largest
        self.nodes.take_offers(self.states)
        self._recount(before)

    def _recount(self, before: IntArray) -> None:
        """Count pods on nodes again when the largest node changes, as it bounds their requests."""
        largest = self.nodes.ledger.largest
        if largest is before or np.array_equal(largest, before):
            return
        if not self._consistent:
            return  # a resync follows, and a change that failed half-way cannot be counted out
        self._consistent = False
        if any(
            self.task_classes.on_node(task_class, largest) is not task_class
            for task_class in self.task_classes.all()
        ):
            for uid, task in self._tasks.items():
                if self._counted(task) is not task.task_class:
                    self._resettle(uid)
        self._consistent = True

    def _put_shard(self, name: str, shard: NodeShard) -> None:
        self.shards.put(name, shard)
        self.jobs.activate_all()

    def _remove_shard(self, name: str) -> None:
        self.shards.remove(name)
        self.jobs.activate_all()

    def _put_pod(self, key: str, pod: Pod) -> None:
        is_ours = pod.spec.scheduler_name in self._names and not pod.spec.node_name
        if is_ours and (why := excess(pod.spec)):
            raise TooManyTerms(why)
        task = self._read(key, pod)
        consistent, self._consistent = self._consistent, False
        before = self._uid_by_key.get(key)
        if before is not None:
            old = self._tasks[before]
            self._forget(old, gone=before != task.uid)
            if before == task.uid:
                task.last_condition = old.last_condition
                task.lifting = old.lifting and task.gated
            else:
                self.assumptions.drop(before)
                self.nominations.drop(before)
        if self._is_relevant(task):
            self._tasks[task.uid] = task
            self._uid_by_key[key] = task.uid
            self.nodes.pod_affinity.join(task)
            for state in task.task_class.demands:
                state.join(task, pod)
            self._settle(task)
        self._consistent = consistent

    def _remove_pod(self, key: str) -> None:
        uid = self._uid_by_key.get(key)
        if uid is not None:
            consistent, self._consistent = self._consistent, False
            self._forget(self._tasks[uid], gone=True)
            self._consistent = consistent
            self.assumptions.drop(uid)
            self.nominations.drop(uid)

    def _read(self, key: str, pod: Pod) -> Task:
        task = Task()
        task.task_class = self.task_classes.of(pod, self.nodes.pod_affinity.affinity_terms(pod))
        if traits := traits_of(pod):
            task.task_class = self.task_classes.marked(task.task_class, traits)
        fill_in(task, key, pod)
        task.ours = pod.spec.scheduler_name in self._names
        if self.single_pods:
            task.job_key = key if task.ours else ""
        task.nominated = self.nominations.overlay(task.uid, pod.status.nominated_node_name)
        return task

    @staticmethod
    def _is_relevant(task: Task) -> bool:
        """Tell whether a pod counts: this scheduler places it, or it occupies a node (CA01)."""
        return task.ours or (bool(task.fact_node) and not TERMINAL[task.fact_status])

    def _settle(self, task: Task) -> None:
        """Count a task in with its status by fact and assumption."""
        task.status, task.node = self.assumptions.overlay(
            task.uid, task.fact_status, task.fact_node
        )
        task.task_class = self._counted(task)
        self.nodes.hold(task)
        if task.job_key:
            self.jobs.take(task)

    def _counted(self, task: Task) -> TaskClass:
        """Return the class by which a pod counts, on its node or pending."""
        if task.node:
            return self.task_classes.on_node(task.task_class, self.nodes.ledger.largest)
        return self.task_classes.as_requested(task.task_class)

    def _unsettle(self, task: Task) -> None:
        self.nodes.release(task)
        if task.job_key:
            self.jobs.drop(task)

    def _forget(self, task: Task, *, gone: bool) -> None:
        self._unsettle(task)
        self.nodes.pod_affinity.leave(task)
        for state in task.task_class.demands:
            state.leave(task, gone=gone)
        del self._tasks[task.uid]
        del self._uid_by_key[task.key]

    # --- assumptions -------------------------------------------------------------------------

    def assume(self, intent: str, binds: Iterable[Bind | ItemOutcome]) -> None:
        """Count pods on their nodes, as the intent with this id binds them.

        A pod that STATE shows as bound counts as shown: after a restart that is nearly all of them.
        """
        for bind in binds:
            task = self._tasks.get(bind.uid)
            if task is not None and task.fact_node:
                continue
            if isinstance(bind, Bind) and (bind.devices or bind.annotations):
                for state in self.states:
                    state.assume(bind)
            is_done = isinstance(bind, ItemOutcome)
            assumption = Assumption(
                intent=intent, purpose=Purpose.BIND, pod=bind.pod, node=bind.node, is_done=is_done
            )
            self.add_assumption(bind.uid, assumption)

    def assume_evictions(self, intent: str, victims: Iterable[Victim | ItemOutcome]) -> None:
        """Count pods as Releasing, as the intent with this id evicts them."""
        for victim in victims:
            self.add_assumption(
                victim.uid, Assumption(intent=intent, purpose=Purpose.EVICT, pod=victim.pod)
            )

    def is_being_evicted(self, uid: str) -> bool:
        """Tell whether an eviction of a pod was published that its object does not show yet."""
        assumed = self.assumptions.get(uid)
        return assumed is not None and assumed.purpose is Purpose.EVICT

    def assume_nomination(self, intent: str, uid: str, node: str) -> None:
        """Assume the nominated node of a preemptor until its status shows it (SS11)."""
        self.nominations.add(uid, intent, node)
        if uid in self._tasks:
            self._tasks[uid].nominated = node

    def add_assumption(self, uid: str, assumption: Assumption) -> None:
        """Count a pod as if its intent had been carried out."""
        self.assumptions.add(uid, assumption)
        self._resettle(uid)

    def outcome(self, intent: str, items: Iterable[tuple[str, Result]]) -> None:
        """Store an outcome as (uid, result): what failed or is gone is no longer assumed."""
        for uid, result in items:
            if self.assumptions.outcome(intent, uid, result):
                self._resettle(uid)
                self._resettle_all(self.nominations.end(intent))

    def review_refusals(self, now: float) -> None:
        """Hold back pods whose binds or evictions failed, until they are due again at `now`."""
        if len(self.refusals):
            self.refusals.review(self._tasks.get, self.jobs.get, now=now)

    def drop_assumptions(self) -> None:
        """Drop all assumptions: a new leader rebuilds them from the bus."""
        for uid in self.assumptions.clear():
            self._resettle(uid)
        self._resettle_all(self.nominations.clear())

    def _resettle_all(self, uids: Iterable[str]) -> None:
        for uid in uids:
            if uid in self._tasks:
                self._tasks[uid].nominated = ""

    def _resettle(self, uid: str) -> None:
        task = self._tasks.get(uid)
        if task is not None:
            consistent, self._consistent = self._consistent, False
            self._unsettle(task)
            self._settle(task)
            self._consistent = consistent

    def assume_statuses(self, plan: Plan, *, unpublished: Iterable[str] = ()) -> None:
        """Assume the statuses of a published plan until the objects show them.

        `unpublished` are keys of PodGroups whose status was decided and not published: it is
        computed again in the next session, settled or not.
        """
        for group in plan.podgroups:
            counters = (group.running, group.succeeded, group.failed)
            self.jobs.assume_status(
                group.key, group.uid, GroupStatus(group.phase, counters, group.conditions)
            )
        for desired in plan.pods:
            task = self._tasks.get(desired.uid)
            if task is not None:
                task.last_condition = desired.condition
        for lifted in plan.lifted:
            if lifted.uid in self._tasks:
                self._tasks[lifted.uid].lifting = True
        for allocated in plan.queues:
            queue = self.jobs.queues.get(allocated.name)
            if queue is not None and queue.uid == allocated.uid:
                queue.last_allocated = allocated.allocated
                queue.last_pending = allocated.pending
        self.jobs.compute_only(unpublished)

    def forget_desired(self) -> None:
        """Drop assumed statuses: use those that objects show."""
        self.jobs.forget_desired()
        self.shards.forget_desired()
        for task in self._tasks.values():
            task.last_condition = task.shown
            task.lifting = False

    def tidy(self) -> None:
        """Forget classes and queries of pods that are gone; called after each session."""
        self.nodes.pod_affinity.tidy()
        if self.task_classes.are_many:
            used = [task.task_class for task in self._tasks.values()]
            self.task_classes.retain([*used, *self.nodes.held_classes()])

    # --- queries -----------------------------------------------------------------------------

    def store(self, kind: type[_S]) -> _S:
        """Return the state of policy of a type."""
        return engine_record(self._stores[kind], kind)

    def task(self, uid: str) -> Task | None:
        """Return a task."""
        return self._tasks.get(uid)

    def pod(self, key: str) -> Task | None:
        """Return the task of that key, `namespace/name`."""
        uid = self._uid_by_key.get(key)
        return None if uid is None else self._tasks[uid]

    def tasks(self) -> Iterable[Task]:
        """Return all tasks."""
        return self._tasks.values()

    def busy_nodes(self) -> frozenset[str]:
        """Return the nodes with binds or evictions that no fact shows yet."""
        found = self.assumptions.nodes(self._tasks)
        tasks = (self._tasks.get(uid) for uid, _ in self.assumptions.items())
        return frozenset(found | {task.node for task in tasks if task is not None}) - {""}

    @property
    def assumed(self) -> int:
        """Number of pods with an assumption."""
        return len(self.assumptions)

    def audit(self) -> list[Drift]:
        """Compute all node usage from the pods again; repair and return the differences."""
        return self.nodes.audit()
