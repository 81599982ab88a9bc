"""Container images on nodes, and the score that a pod gets for them (ImageLocality, PL08).

A large cluster reports a million of them, so they are kept as numbers, 16 bytes each; sorted arrays
over all nodes are built when a class with images is first scored after a change.
"""

from array import array
from collections.abc import Sequence

import numpy as np

from pumice.plugins import NODE_MAX, BoolArray, IntArray
from shared.api.core import ContainerImage

_MIB = 1024 * 1024
_MIN_THRESHOLD = 23 * _MIB
"""Bytes below which the images of a node give no score, as in Kubernetes."""
_MAX_THRESHOLD = 1000 * _MIB
_MAX = 100


class NodeImages:
    """Images by node column."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._held: dict[int, array[int]] = {}
        """Column → number and size in turn."""
        self._sorted: tuple[IntArray, IntArray, IntArray] | None = None
        self._generation = -1
        self._scores: dict[tuple[str, ...], IntArray] = {}

    def set(self, column: int, images: Sequence[ContainerImage]) -> None:
        """Set the images of a node."""
        entries = array("q")
        for image in images:
            for name in image.names:
                entries.append(self._numbers.setdefault(name, len(self._numbers)))
                entries.append(max(0, min(image.size_bytes, NODE_MAX)))
        if entries != self._held.get(column, array("q")):
            self._sorted = None
            self._scores.clear()
            if entries:
                self._held[column] = entries
            else:
                del self._held[column]

    def score(self, images: tuple[str, ...], alive: BoolArray, generation: int) -> IntArray | None:
        """Return 0…100 per column for a pod's images; `generation` is that of the node objects.

        None if no node has any of them. An image counts by its size and by the share of nodes that
        have it, so that one node does not attract all pods, as in Kubernetes.
        """
        known = [self._numbers[name] for name in images if name in self._numbers]
        if not known or not self._held:
            return None
        if generation != self._generation:
            self._scores.clear()
            self._generation = generation
        total = self._scores.get(images)
        if total is None:
            total = np.zeros(len(alive), dtype=np.int64)
            nodes = max(1, int(alive.sum()))
            for number in known:
                columns, sizes = self._holders(number)
                total[columns] += (sizes * (len(columns) / nodes)).astype(np.int64)
            low, high = _MIN_THRESHOLD, _MAX_THRESHOLD * len(images)
            total = _MAX * (total.clip(low, high) - low) // (high - low)
            self._scores[images] = total
        return total

    def _holders(self, number: int) -> tuple[IntArray, IntArray]:
        """Return the columns that have an image, and its size there."""
        if self._sorted is None:
            pairs = [np.frombuffer(entries, dtype=np.int64) for entries in self._held.values()]
            lengths = [len(entries) // 2 for entries in self._held.values()]
            flat = np.concatenate(pairs).reshape(-1, 2)
            columns = np.repeat(np.array(list(self._held), dtype=np.int64), lengths)
            order = np.argsort(flat[:, 0], kind="stable")
            self._sorted = (flat[order, 0], columns[order], flat[order, 1])
        numbers, columns, sizes = self._sorted
        start, end = np.searchsorted(numbers, [number, number + 1])
        found, first = np.unique(columns[start:end], return_index=True)
        return found, sizes[start:end][first]
