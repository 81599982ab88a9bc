"""Labels and taints of nodes, interned so that a selector is one comparison over all nodes.

A label key that some class selects by gets an array of value numbers (-1 = absent), built on first
use and updated from then on. Taints are interned as whole sets, because clusters have few distinct
ones.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.plugins import (
    BoolArray,
    IntArray,
)
from shared.api.selectors import (
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Taint,
)

_CACHE_LIMIT = 8192
_NAME_FIELD = "metadata.name"


class NodeAttributes:
    """Labels, taints and cordons of nodes, one entry per column of the ledger."""

    def __init__(self) -> None:
        self.generation = 0
        """Grows with every change; masks are kept per generation."""
        self.names: list[str] = []
        self._labels: list[Mapping[str, str]] = []
        self._keys: dict[str, _KeyColumn] = {}
        self._taint_sets: dict[tuple[Taint, ...], int] = {}
        self._taints: list[int] = []
        self._unschedulable: list[bool] = []

    def set(
        self,
        column: int,
        name: str,
        labels: Mapping[str, str],
        taints: tuple[Taint, ...],
        *,
        unschedulable: bool,
    ) -> None:
        """Set labels, taints and cordon of a node; does nothing if they are unchanged."""
        taint_set = self._taint_sets.setdefault(taints, len(self._taint_sets))
        if column == len(self.names):
            self.names.append("")
            self._labels.append({})
            self._taints.append(-1)
            self._unschedulable.append(False)
        elif (
            self.names[column] == name
            and self._taints[column] == taint_set
            and self._unschedulable[column] == unschedulable
            and self._labels[column] == labels
        ):
            return
        self.generation += 1
        self.names[column] = name
        self._labels[column] = labels
        self._taints[column] = taint_set
        self._unschedulable[column] = unschedulable
        for key, values in self._keys.items():
            values.set(column, labels.get(key))

    def unset(self, column: int) -> None:
        """Forget a removed node."""
        self.set(column, "", {}, (), unschedulable=False)

    def labels_by_name(self) -> dict[str, Mapping[str, str]]:
        """Return node → labels."""
        return {name: labels for name, labels in zip(self.names, self._labels, strict=True) if name}

    # --- queries over all nodes --------------------------------------------------------------

    def values(self, key: str) -> NDArray[np.object_]:
        """Return the value of a label on each node, None where it is absent."""
        return np.array([labels.get(key) for labels in self._labels], dtype=np.object_)

    def numbers(self, key: str) -> IntArray:
        """Return per node the interned number of its value of a label, -1 where it is absent."""
        return self._key(key).values()

    def is_unique(self, key: str) -> bool:
        """Tell whether no two nodes share a value of a label, as with host names."""
        return self._key(key).is_unique()

    def unschedulable(self) -> BoolArray:
        """Return which nodes are cordoned."""
        return np.array(self._unschedulable, dtype=np.bool_)

    def taints(self, classify: Callable[[Sequence[Taint]], int]) -> IntArray:
        """Return `classify` of each node's taints; called once per distinct set of taints."""
        verdicts = np.array([classify(taints) for taints in self._taint_sets], dtype=np.int64)
        return verdicts[np.array(self._taints, dtype=np.int64)] if self._taints else verdicts[:0]

    def matching(self, selector: Mapping[str, str]) -> BoolArray:
        """Return which nodes have all these labels."""
        result = np.ones(len(self.names), dtype=np.bool_)
        for key, value in selector.items():
            result &= self._key(key).equal(value)
        return result

    def selected(self, selector: NodeSelector) -> BoolArray:
        """Return which nodes at least one term of the selector matches."""
        result = np.zeros(len(self.names), dtype=np.bool_)
        for term in selector.node_selector_terms:
            result |= self.term(term)
        return result

    def term(self, term: NodeSelectorTerm) -> BoolArray:
        """Return which nodes a term matches; an empty term matches none."""
        size = len(self.names)
        if not term.match_expressions and not term.match_fields:
            return np.zeros(size, dtype=np.bool_)
        result = np.ones(size, dtype=np.bool_)
        for expression in term.match_expressions:
            result &= self._key(expression.key).match(expression)
        for expression in term.match_fields:
            result &= self._field(expression)
        return result

    def _field(self, expression: NodeSelectorRequirement) -> BoolArray:
        # The API server admits only `metadata.name` here; anything else matches no node.
        found = np.array([name in expression.values for name in self.names], dtype=np.bool_)
        if expression.key != _NAME_FIELD or expression.operator not in {"In", "NotIn"}:
            return np.zeros(len(self.names), dtype=np.bool_)
        return found if expression.operator == "In" else ~found

    def _key(self, key: str) -> "_KeyColumn":
        column = self._keys.get(key)
        if column is None:
            column = self._keys[key] = _KeyColumn([labels.get(key) for labels in self._labels])
        return column


class _KeyColumn:
    """The values of one label key over all nodes, as numbers."""

    def __init__(self, values: Sequence[str | None]) -> None:
        self._numbers: dict[str, int] = {}
        self._per_node: list[int] = [self._number(value) for value in values]
        self._array: IntArray | None = None
        self._unique = False

    def _number(self, value: str | None) -> int:
        return -1 if value is None else self._numbers.setdefault(value, len(self._numbers))

    def set(self, column: int, value: str | None) -> None:
        if column == len(self._per_node):
            self._per_node.append(-1)
        self._per_node[column] = self._number(value)
        self._array = None

    def values(self) -> IntArray:
        """Return the number of the value per node, -1 where the label is absent."""
        if self._array is None:
            self._array = np.array(self._per_node, dtype=np.int64)
            present = self._array[self._array >= 0]
            self._unique = len(np.unique(present)) == len(present)
        return self._array

    def is_unique(self) -> bool:
        """Tell whether no two nodes share a value."""
        self.values()
        return self._unique

    def equal(self, value: str) -> BoolArray:
        """Return where the label has this value."""
        number = self._numbers.get(value, -2)
        found: BoolArray = self.values() == number
        return found

    def match(self, expression: NodeSelectorRequirement) -> BoolArray:
        """Return where the expression holds; an unknown operator holds nowhere."""
        values = self.values()
        match expression.operator:
            case "Exists":
                return values >= 0
            case "DoesNotExist":
                return values < 0
            case "In":
                return self._among(expression.values)
            case "NotIn":
                return ~self._among(expression.values)
            case "Gt" | "Lt":
                return self._beyond(expression)
            case _:
                return np.zeros(len(values), dtype=np.bool_)

    def _among(self, desired: Sequence[str]) -> BoolArray:
        numbers = [self._numbers[value] for value in desired if value in self._numbers]
        return np.isin(self.values(), numbers)

    def _beyond(self, expression: NodeSelectorRequirement) -> BoolArray:
        values = self.values()
        bound = _integer(expression.values[0]) if len(expression.values) == 1 else None
        if bound is None:
            return np.zeros(len(values), dtype=np.bool_)
        holds = [False] * (len(self._numbers) + 1)  # the last entry is the result for "absent" (-1)
        for text, number in self._numbers.items():
            value = _integer(text)
            if value is not None:
                holds[number] = value > bound if expression.operator == "Gt" else value < bound
        result: BoolArray = np.array(holds, dtype=np.bool_)[values]
        return result


def _integer(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


class StaticCache:
    """Cache of arrays over all nodes that are valid until a node object changes."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[int, NDArray[Any]]] = {}

    def get(
        self, key: Hashable, generation: int, compute: Callable[[], NDArray[Any]]
    ) -> NDArray[Any]:
        """Return the cached array of this node generation, or compute it."""
        cached = self._kept.get(key)
        if cached is None or cached[0] != generation:
            if len(self._kept) > _CACHE_LIMIT:
                self._kept.clear()
            cached = self._kept[key] = (generation, compute())
        return cached[1]
