"""The index for pod affinity and spreading: queries, the pods they match, and sums over nodes.

A *query* is the set of pods that an affinity term or a spread constraint selects; a *label group*
are pods that no query can tell apart. When a pod comes, only the queries that its labels can match
are tried; when a query comes, only the label groups that it can match. Pods are never matched one
by one, and without any query nothing is kept at all.

Sums change with each pod that a node takes or loses, by facts (`Nodes.hold`) and by decisions
(`changes`) alike.
"""

from collections.abc import Callable, Iterable, Mapping

from services.scheduler.engine.nodes.attributes import NodeAttributes
from services.scheduler.engine.nodes.domain_sums import Tally
from services.scheduler.engine.tasks.affinity_terms import (
    NO_AFFINITY_TERMS,
    AffinityTerms,
    states_terms,
    terms_of,
)
from services.scheduler.engine.tasks.pod_selectors import Query
from services.scheduler.engine.tasks.task import Task, TaskClass
from shared.api.core import Namespace, Pod
from shared.jobs.pod_terms import excess
from shared.model.status import TERMINAL

_ENOUGH = 1024
GroupKey = tuple[str, tuple[tuple[str, str], ...]]
"""Namespace, and the labels that queries read."""
_NOTHING: Mapping[str, str] = {}


class LabelGroup:
    """Pods of a namespace that have the same values of all labels that queries read."""

    __slots__ = ("key", "labels", "matched", "namespace", "tasks")

    def __init__(self, key: GroupKey, namespace: str, labels: Mapping[str, str]) -> None:
        self.key = key
        self.namespace = namespace
        self.labels = labels
        self.matched: tuple[int, ...] = ()
        self.tasks: dict[str, Task] = {}


class PodAffinityIndex:
    """All queries, label groups and sums of a cluster."""

    def __init__(
        self,
        column: Callable[[str], int],
        attributes: NodeAttributes,
        reclass: "Callable[[TaskClass, AffinityTerms], TaskClass]",
    ) -> None:
        self._column = column
        self._attributes = attributes
        self._reclass = reclass
        self._queries: list[Query] = []
        self._numbers: dict[Query, int] = {}
        self._by_pair: dict[tuple[str, str], list[int]] = {}
        self._anywhere: list[int] = []
        """Queries that cannot be found by a pair of label and value."""
        self._keys: set[str] = set()
        self._groups: dict[GroupKey, LabelGroup] = {}
        self._groups_by_pair: dict[tuple[str, str], dict[GroupKey, LabelGroup]] = {}
        self._tasks: dict[str, Task] = {}
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self._namespaces_matter = False
        self._enough = _ENOUGH
        self._open: list[Tally] = []
        self.is_consistent = True
        """Whether no change of queries and sums failed half-way."""
        self.counts: list[Tally] = []
        """Per query, pods on nodes."""
        self.anti_affinity: dict[int, dict[str, Tally]] = {}
        """Query → topology key → pods on nodes whose required anti-affinity is this query."""
        self.preferred: dict[int, dict[str, Tally]] = {}
        """Query → topology key → weights of the preferred terms of pods on nodes that match it."""

    # --- pods --------------------------------------------------------------------------------

    def affinity_terms(self, pod: Pod) -> AffinityTerms:
        """Return a pod's terms and the queries that match it; new queries are added."""
        meta = pod.metadata
        terms = NO_AFFINITY_TERMS
        if states_terms(pod.spec) and not excess(pod.spec):
            self._read_labels_of(pod)
            terms = terms_of(pod.spec, meta.namespace, meta.labels, self._number)
            self._provide(terms)
        if not self._queries:
            return terms
        key = self._key(meta.namespace, meta.labels)
        group = self._groups.get(key)
        matched = group.matched if group else self._matching(meta.namespace, meta.labels)
        return terms._replace(matched=matched)

    def _provide(self, terms: AffinityTerms) -> None:
        """Create the sums that tasks with these terms read."""
        for sums, of_kind in (
            (self.anti_affinity, terms.required_anti_affinity),
            (self.preferred, terms.preferred),
        ):
            for term in of_kind:
                sums.setdefault(term.query, {}).setdefault(term.key, self._tally())

    def join(self, task: "Task") -> None:
        """Add a task, on a node or not."""
        self._tasks[task.uid] = task
        if self._queries:
            self._group_of(task).tasks[task.uid] = task

    def leave(self, task: "Task") -> None:
        """Forget a task."""
        self._tasks.pop(task.uid, None)
        if self._queries:
            self._leave_group(task)

    def _leave_group(self, task: "Task") -> None:
        group = self._groups.get(self._key(task.namespace, task.labels))
        if group is not None and task.uid in group.tasks:
            del group.tasks[task.uid]
            if not group.tasks:
                self._drop(group)

    def _group_of(self, task: "Task") -> LabelGroup:
        key = self._key(task.namespace, task.labels)
        group = self._groups.get(key)
        if group is None:
            labels = dict(key[1])
            group = self._groups[key] = LabelGroup(key, task.namespace, labels)
            group.matched = self._matching(task.namespace, labels)
            for pair in labels.items():
                self._groups_by_pair.setdefault(pair, {})[key] = group
        return group

    def _drop(self, group: LabelGroup) -> None:
        del self._groups[group.key]
        for pair in group.labels.items():
            alike = self._groups_by_pair[pair]
            del alike[group.key]
            if not alike:
                del self._groups_by_pair[pair]

    def _key(self, namespace: str, labels: Mapping[str, str]) -> GroupKey:
        """Return the label group of a pod; the cost depends on the pod's own labels only."""
        return (namespace, tuple(sorted(p for p in labels.items() if p[0] in self._keys)))

    def _matching(self, namespace: str, labels: Mapping[str, str]) -> tuple[int, ...]:
        numbers = set(self._anywhere)
        for pair in labels.items():
            numbers.update(self._by_pair.get(pair, ()))
        of_namespace = self._namespaces.get(namespace, _NOTHING)
        return tuple(
            number
            for number in sorted(numbers)
            if self._queries[number].matches(namespace, labels, of_namespace)
        )

    # --- queries -----------------------------------------------------------------------------

    def _number(self, query: Query) -> int:
        number = self._numbers.get(query)
        return self._take_up(query) if number is None else number

    def _read_labels_of(self, pod: Pod) -> None:
        """Group pods by all labels that the queries of a pod read, at once: that costs most."""
        read: set[str] = set()

        def note(query: Query) -> int:
            if query not in self._numbers:
                read.update(query.keys())
            return -1

        terms_of(pod.spec, pod.metadata.namespace, pod.metadata.labels, note)
        self._read_labels(read)

    def _read_labels(self, read: set[str]) -> None:
        fresh = read - self._keys
        if fresh:
            consistent, self.is_consistent = self.is_consistent, False
            concerned = list(self._tasks.values())
            if self._queries:
                concerned = [t for t in concerned if not fresh.isdisjoint(t.labels)]
                for task in concerned:
                    self._leave_group(task)
                self._keys |= fresh
                for task in concerned:
                    self._group_of(task).tasks[task.uid] = task
            else:
                self._keys |= fresh
            self.is_consistent = consistent

    def _take_up(self, query: Query) -> int:
        self._read_labels(query.keys())
        consistent, self.is_consistent = self.is_consistent, False
        if not self._queries:
            self._regroup()
        number = self._numbers[query] = len(self._queries)
        self._queries.append(query)
        self.counts.append(self._tally())
        self._namespaces_matter = self._namespaces_matter or query.reads_namespaces
        pairs = query.pairs()
        for pair in pairs:
            self._by_pair.setdefault(pair, []).append(number)
        if not pairs:
            self._anywhere.append(number)
        for group in self._concerned(pairs):
            self._rematch(group)
        self.is_consistent = consistent
        return number

    def _concerned(self, pairs: Iterable[tuple[str, str]]) -> list[LabelGroup]:
        found: dict[GroupKey, LabelGroup] = {}
        for pair in pairs:
            found.update(self._groups_by_pair.get(pair, {}))
        return list(found.values()) if pairs else list(self._groups.values())

    def _regroup(self) -> None:
        self._groups.clear()
        self._groups_by_pair.clear()
        for task in self._tasks.values():
            self._group_of(task).tasks[task.uid] = task

    def _rematch(self, group: LabelGroup) -> None:
        matched = self._matching(group.namespace, group.labels)
        if matched == group.matched:
            return
        group.matched = matched
        for task in group.tasks.values():
            on_node = bool(task.node) and not TERMINAL[task.status]
            if on_node:
                self.count(task, -1)
            task.task_class = self._reclass(
                task.task_class, task.task_class.affinity_terms._replace(matched=matched)
            )
            if on_node:
                self.count(task, 1)

    def tidy(self) -> None:
        """Drop queries that no task has any more, if there may be many.

        Call it between sessions only: the remaining queries are renumbered and everything is
        counted again.
        """
        if len(self._queries) <= self._enough:
            return
        tasks = list(self._tasks.values())
        stated = sorted(
            {number for task in tasks for number in task.task_class.affinity_terms.stated()}
        )
        self._enough = max(_ENOUGH, 2 * len(stated))
        queries = [self._queries[number] for number in stated]
        for mapping in (self._queries, self._anywhere, self._keys, self.counts, self._open):
            mapping.clear()
        for index in (
            self._numbers,
            self._by_pair,
            self._groups,
            self._groups_by_pair,
            self._tasks,
        ):
            index.clear()
        self.anti_affinity.clear()
        self.preferred.clear()
        self._namespaces_matter = False
        numbers = {old: self._take_up(query) for old, query in zip(stated, queries, strict=True)}
        for task in tasks:
            matched = self._group_of(task).matched if queries else ()
            affinity_terms = task.task_class.affinity_terms.renumbered(numbers, matched)
            self._provide(affinity_terms)
            task.task_class = self._reclass(task.task_class, affinity_terms)
            self.join(task)
            if task.node and not TERMINAL[task.status]:
                self.count(task, 1)

    # --- namespaces --------------------------------------------------------------------------

    def put_namespace(self, name: str, namespace: Namespace) -> None:
        """Store a namespace's labels."""
        self._relabel(name, namespace.metadata.labels)

    def remove_namespace(self, name: str) -> None:
        """Forget a namespace: it has no labels."""
        self._relabel(name, _NOTHING)

    def _relabel(self, name: str, labels: Mapping[str, str]) -> None:
        if labels == self._namespaces.get(name, _NOTHING):
            return
        consistent, self.is_consistent = self.is_consistent, False
        self._namespaces[name] = labels
        if self._namespaces_matter:
            for group in [group for group in self._groups.values() if group.namespace == name]:
                self._rematch(group)
        self.is_consistent = consistent

    # --- sums --------------------------------------------------------------------------------

    def count(self, task: "Task", sign: int) -> None:
        """Add a task on its node (-1: remove it)."""
        if task.task_class.affinity_terms.matched or task.task_class.affinity_terms.states_terms:
            self.imagine(task.task_class.affinity_terms, task.node, sign, deleting=task.deleting)

    def imagine(
        self, affinity_terms: AffinityTerms, node: str, amount: int, *, deleting: bool = False
    ) -> None:
        """Add imagined pods with these terms to a node."""
        for number in affinity_terms.matched:
            if not (deleting and self._queries[number].staying):
                self.counts[number].add(node, amount)
        for term in affinity_terms.required_anti_affinity:
            self.anti_affinity[term.query][term.key].add(node, amount)
        for term in affinity_terms.preferred:
            self.preferred[term.query][term.key].add(node, amount * term.weight)

    def _tally(self) -> Tally:
        return Tally(self._column, self._attributes, self._open)

    def forget_tables(self) -> None:
        """End a session: the next one builds the dense arrays again."""
        for tally in self._open:
            tally.forget_tables()
        self._open.clear()

    def sums(self) -> dict[tuple[str, str, str], dict[str, int]]:
        """Return all sums that are not 0: (what, query, topology key) → node → sum."""
        found = {("count", str(query), ""): self.counts[n] for query, n in self._numbers.items()}
        for what, sums in (("anti-affinity", self.anti_affinity), ("preferred", self.preferred)):
            for number, by_key in sums.items():
                for key, tally in by_key.items():
                    found[what, str(self._queries[number]), key] = tally
        return {name: found[name].by_node for name in sorted(found) if found[name]}
