"""Who counts whom: pods by what selectors say of them, and sums over those on nodes.

A *query* is what some term asks for; a *kin* are pods that no query can tell apart. When a pod
comes, only the queries of its labels are tried; when a query comes, only the kin of its labels:
nothing is ever matched pod by pod. Without any query nothing is kept at all.

Sums change with each pod that a node takes or loses, by facts (`Nodes.hold`) and by decisions
(`changes`) alike.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from services.scheduler.engine.labels import NodeAttributes
from services.scheduler.engine.locality import (
    NOWHERE_SPECIAL,
    Locality,
    states_terms,
    terms_of,
)
from services.scheduler.engine.selecting import Query
from services.scheduler.engine.tallies import Tally
from shared.api.core import Namespace, Pod
from shared.model.status import TERMINAL

if TYPE_CHECKING:
    from services.scheduler.engine.shapes import TaskClass
    from services.scheduler.engine.tasks import Task

_ENOUGH = 1024
_NOTHING: Mapping[str, str] = {}


class Kin:
    """Pods of a namespace that have the same values of all labels that queries read."""

    __slots__ = ("key", "labels", "matched", "namespace", "tasks")

    def __init__(self, key: tuple[str, ...], namespace: str, labels: Mapping[str, str]) -> None:
        self.key = key
        self.namespace = namespace
        self.labels = labels
        self.matched: tuple[int, ...] = ()
        self.tasks: dict[str, Task] = {}


class Peers:
    """All queries, kin and sums of a replica."""

    def __init__(
        self,
        column: Callable[[str], int],
        attributes: NodeAttributes,
        reclass: "Callable[[TaskClass, Locality], TaskClass]",
    ) -> None:
        self._column = column
        self._attributes = attributes
        self._reclass = reclass
        self._queries: list[Query] = []
        self._numbers: dict[Query, int] = {}
        self._by_pair: dict[tuple[str, str], list[int]] = {}
        self._anywhere: list[int] = []
        """Queries that no (label, value) pair leads to."""
        self._keys: list[str] = []
        self._kin: dict[tuple[str, ...], Kin] = {}
        self._kin_by_pair: dict[tuple[str, str], dict[tuple[str, ...], Kin]] = {}
        self._tasks: dict[str, Task] = {}
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self._namespaces_matter = False
        self._enough = _ENOUGH
        self._open: list[Tally] = []
        self.is_whole = True
        """Whether no change of queries and sums failed half-way."""
        self.counts: list[Tally] = []
        """Per query, pods on nodes."""
        self.shunning: dict[int, dict[str, Tally]] = {}
        """Query → topology key → the pods on nodes that must not have its pods near."""
        self.leaning: dict[int, dict[str, Tally]] = {}
        """Query → topology key → weights of pods on nodes that prefer or mind its pods."""

    # --- pods --------------------------------------------------------------------------------

    def locality(self, pod: Pod) -> Locality:
        """Return what a pod's place has to do with other pods; takes its queries up."""
        meta = pod.metadata
        terms = NOWHERE_SPECIAL
        if states_terms(pod.spec):
            terms = terms_of(pod.spec, meta.namespace, meta.labels, self._number)
            self._provide(terms)
        if not self._queries:
            return terms
        key = self._key(meta.namespace, meta.labels)
        kin = self._kin.get(key)
        matched = kin.matched if kin else self._matching(meta.namespace, meta.labels)
        return terms._replace(matched=matched)

    def _provide(self, terms: Locality) -> None:
        """Have sums ready for those who state these terms."""
        for sums, nears in ((self.shunning, terms.apart), (self.leaning, terms.leaning)):
            for near in nears:
                sums.setdefault(near.query, {}).setdefault(near.key, self._tally())

    def join(self, task: "Task") -> None:
        """Take a task up, on a node or not."""
        self._tasks[task.uid] = task
        if self._queries:
            self._kin_of(task).tasks[task.uid] = task

    def leave(self, task: "Task") -> None:
        """Forget a task."""
        self._tasks.pop(task.uid, None)
        if self._queries:
            key = self._key(task.namespace, task.labels)
            kin = self._kin.get(key)
            if kin is not None and task.uid in kin.tasks:
                del kin.tasks[task.uid]
                if not kin.tasks:
                    self._drop(kin)

    def _kin_of(self, task: "Task") -> Kin:
        key = self._key(task.namespace, task.labels)
        kin = self._kin.get(key)
        if kin is None:
            labels = dict(zip(self._keys, key[1:], strict=True))
            labels = {name: value for name, value in labels.items() if name in task.labels}
            kin = self._kin[key] = Kin(key, task.namespace, labels)
            kin.matched = self._matching(task.namespace, labels)
            for pair in labels.items():
                self._kin_by_pair.setdefault(pair, {})[key] = kin
        return kin

    def _drop(self, kin: Kin) -> None:
        del self._kin[kin.key]
        for pair in kin.labels.items():
            alike = self._kin_by_pair[pair]
            del alike[kin.key]
            if not alike:
                del self._kin_by_pair[pair]

    def _key(self, namespace: str, labels: Mapping[str, str]) -> tuple[str, ...]:
        # "\0" is no label value: an absent label is not an empty one.
        return (namespace, *[labels.get(key, "\0") for key in self._keys])

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

    def _take_up(self, query: Query) -> int:
        whole, self.is_whole = self.is_whole, False
        first = not self._queries
        number = self._numbers[query] = len(self._queries)
        fresh = sorted(query.keys() - set(self._keys))
        if first or fresh:
            self._keys += fresh
            self._regroup()
        self._queries.append(query)
        self.counts.append(self._tally())
        self._namespaces_matter = self._namespaces_matter or query.reads_namespaces
        pairs = query.pairs()
        for pair in pairs:
            self._by_pair.setdefault(pair, []).append(number)
        if not pairs:
            self._anywhere.append(number)
        for kin in self._concerned(pairs):
            self._rematch(kin)
        self.is_whole = whole
        return number

    def _concerned(self, pairs: Iterable[tuple[str, str]]) -> list[Kin]:
        found: dict[tuple[str, ...], Kin] = {}
        for pair in pairs:
            found.update(self._kin_by_pair.get(pair, {}))
        return list(found.values()) if pairs else list(self._kin.values())

    def _regroup(self) -> None:
        self._kin.clear()
        self._kin_by_pair.clear()
        for task in self._tasks.values():
            self._kin_of(task).tasks[task.uid] = task

    def _rematch(self, kin: Kin) -> None:
        matched = self._matching(kin.namespace, kin.labels)
        if matched == kin.matched:
            return
        kin.matched = matched
        for task in kin.tasks.values():
            on_node = bool(task.node) and not TERMINAL[task.status]
            if on_node:
                self.count(task, -1)
            task.shape = self._reclass(task.shape, task.shape.locality._replace(matched=matched))
            if on_node:
                self.count(task, 1)

    def tidy(self) -> None:
        """Forget queries that no task states any more, when there may be many of them.

        Between sessions only: what is left is numbered anew and everything is counted again.
        """
        if len(self._queries) <= self._enough:
            return
        tasks = list(self._tasks.values())
        stated = sorted({number for task in tasks for number in task.shape.locality.stated()})
        self._enough = max(_ENOUGH, 2 * len(stated))
        queries = [self._queries[number] for number in stated]
        for kept in (self._queries, self._anywhere, self._keys, self.counts, self._open):
            kept.clear()
        for index in (self._numbers, self._by_pair, self._kin, self._kin_by_pair, self._tasks):
            index.clear()
        self.shunning.clear()
        self.leaning.clear()
        self._namespaces_matter = False
        numbers = {old: self._take_up(query) for old, query in zip(stated, queries, strict=True)}
        for task in tasks:
            matched = self._kin_of(task).matched if queries else ()
            locality = task.shape.locality.renumbered(numbers, matched)
            self._provide(locality)
            task.shape = self._reclass(task.shape, locality)
            self.join(task)
            if task.node and not TERMINAL[task.status]:
                self.count(task, 1)

    # --- namespaces --------------------------------------------------------------------------

    def put_namespace(self, name: str, namespace: Namespace) -> None:
        """Take over a namespace's labels."""
        self._relabel(name, namespace.metadata.labels)

    def remove_namespace(self, name: str) -> None:
        """Forget a namespace: it has no labels."""
        self._relabel(name, _NOTHING)

    def _relabel(self, name: str, labels: Mapping[str, str]) -> None:
        if labels == self._namespaces.get(name, _NOTHING):
            return
        whole, self.is_whole = self.is_whole, False
        self._namespaces[name] = labels
        if self._namespaces_matter:
            for kin in [kin for kin in self._kin.values() if kin.namespace == name]:
                self._rematch(kin)
        self.is_whole = whole

    # --- sums --------------------------------------------------------------------------------

    def count(self, task: "Task", sign: int) -> None:
        """Count a task in on its node (out: -1)."""
        if task.shape.locality.matched or task.shape.locality.states_terms:
            self.imagine(task.shape.locality, task.node, sign, deleting=task.deleting)

    def imagine(
        self, locality: Locality, node: str, amount: int, *, deleting: bool = False
    ) -> None:
        """Count pods of a locality in on a node."""
        for number in locality.matched:
            if not (deleting and self._queries[number].staying):
                self.counts[number].add(node, amount)
        for near in locality.apart:
            self.shunning[near.query][near.key].add(node, amount)
        for near in locality.leaning:
            self.leaning[near.query][near.key].add(node, amount * near.weight)

    def _tally(self) -> Tally:
        return Tally(self._column, self._attributes, self._open)

    def forget_tables(self) -> None:
        """End a session: dense arrays are made anew by the next."""
        for tally in self._open:
            tally.forget_tables()
        self._open.clear()

    def sums(self) -> dict[tuple[str, str, str], dict[str, int]]:
        """Return all sums that are not 0: (what, query, topology key) → node → sum."""
        found = {("count", str(query), ""): self.counts[n] for query, n in self._numbers.items()}
        for what, sums in (("shun", self.shunning), ("lean", self.leaning)):
            for number, by_key in sums.items():
                for key, tally in by_key.items():
                    found[what, str(self._queries[number]), key] = tally
        return {name: found[name].by_node for name in sorted(found) if found[name]}
