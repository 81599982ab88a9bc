"""GPU cards of nodes and which pods use them (DV1, `volcano.sh/gpu-memory` and `gpu-number`).

A pod has its cards by the annotation `volcano.sh/gpu-index`. One that is placed and does not show
it yet has the cards that were chosen for it: the first ones that fit, as Volcano chooses.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from pumice import plugins
from pumice.plugins import IntArray
from services.scheduler.engine.resources.amounts import NODE_MOST
from services.scheduler.engine.tasks.requests import (
    GPU_INDEX,
    GPU_MEMORY,
    GPU_NUMBER,
    GpuRequest,
    card_ids,
)
from services.scheduler.engine.tasks.task import Task
from shared.api.core import Node
from shared.model.quantity import BadQuantity, units

_MOST_CARDS: Final = 1_024
_UNHEALTHY: Final = "volcano.sh/gpu-unhealthy-ids"


class _Cards:
    """The healthy cards of one node."""

    def __init__(self) -> None:
        self.memory: dict[int, int] = {}
        self.pods: dict[str, tuple[tuple[int, ...], int]] = {}
        """Pod uid → its cards, and the memory that it takes of each."""

    def idle(self) -> dict[int, int]:
        """Return free memory per card."""
        left = dict(self.memory)
        for cards, memory in self.pods.values():
            for card in cards:
                if card in left:
                    left[card] = max(0, left[card] - memory)
        return left

    def empty(self) -> list[int]:
        """Return the cards that no pod uses."""
        used = {card for cards, _ in self.pods.values() for card in cards}
        return [card for card in self.memory if card not in used]

    def choose(self, asked: GpuRequest) -> tuple[int, ...]:
        """Return the cards for one more pod; none when they do not suffice."""
        if asked.memory:
            fitting = [card for card, left in self.idle().items() if left >= asked.memory]
            return tuple(fitting[:1])
        empty = self.empty()
        return tuple(empty[: asked.number]) if len(empty) >= asked.number else ()


class Gpus:
    """The cards of all nodes."""

    def __init__(self, column: Callable[[str], int]) -> None:
        self._column = column
        self._nodes: dict[str, _Cards] = {}
        self._chosen: dict[str, tuple[str, tuple[int, ...]]] = {}
        """Pod uid → node and cards that a plan binds it with, until its object says so."""

    # --- facts -------------------------------------------------------------------------------

    def put(self, name: str, node: Node) -> None:
        """Take over which cards a node has; amounts that cannot be read mean none."""
        capacity = node.status.capacity or node.status.allocatable
        try:
            memory, number = units(capacity.get(GPU_MEMORY, 0)), units(capacity.get(GPU_NUMBER, 0))
        except BadQuantity:
            memory = number = 0
        if memory <= 0 or number <= 0:
            if name in self._nodes:
                self._nodes[name].memory = {}
            return
        unhealthy = card_ids(node.metadata.annotations.get(_UNHEALTHY, ""))
        cards = self._nodes.setdefault(name, _Cards())
        each = min(memory // number, NODE_MOST)
        cards.memory = {c: each for c in range(min(number, _MOST_CARDS)) if c not in unhealthy}

    def count(self, task: Task, sign: int) -> None:
        """Count a task in on its node's cards (-1: out)."""
        cards = self._nodes.setdefault(task.node, _Cards())
        if sign < 0:
            cards.pods.pop(task.uid, None)
            return
        asked = task.task_class.gpus
        chosen = task.cards
        if not chosen:
            node, kept = self._chosen.get(task.uid, ("", ()))
            chosen = kept if node == task.node else cards.choose(asked)
        else:
            self._chosen.pop(task.uid, None)
        cards.pods[task.uid] = (chosen, asked.memory)

    def forget(self, uid: str) -> None:
        """Forget a pod that is gone."""
        self._chosen.pop(uid, None)

    def choose_again(self, uid: str, node: str, cards: tuple[int, ...]) -> None:
        """Go by cards that were chosen elsewhere, until the pod's object says so."""
        self._chosen[uid] = (node, cards)

    # --- questions ---------------------------------------------------------------------------

    def chosen(self) -> tuple[tuple[str, str, tuple[int, ...]], ...]:
        """Return pod uid, node and cards of each pod that does not show its cards yet."""
        return tuple((uid, node, cards) for uid, (node, cards) in self._chosen.items())

    def settle_on(self, task: plugins.Task) -> tuple[int, ...]:
        """Return the cards of a placed task; they stay its own from the bind on."""
        cards = self._nodes.get(task.node)
        chosen = cards.pods.get(task.uid, ((), 0))[0] if cards else ()
        if chosen:
            self._chosen[task.uid] = (task.node, chosen)
        return chosen

    def room(self, asked: GpuRequest, columns: IntArray, names: Sequence[str]) -> IntArray:
        """Return how many pods find cards, per column; -1 for a node without any."""
        result = np.full(len(columns), -1, dtype=np.int64)
        found: dict[int, int] = {}
        for at, column in enumerate(columns.tolist()):
            room = found.get(column)
            if room is None:
                cards = self._nodes.get(names[column])
                room = found[column] = _room(cards, asked) if cards and cards.memory else -1
            result[at] = room
        return result


def _room(cards: _Cards, asked: GpuRequest) -> int:
    if asked.memory:
        return sum(left // asked.memory for left in cards.idle().values())
    return len(cards.empty()) // asked.number


def annotations_of(cards: tuple[int, ...], now_s: float) -> Mapping[str, str]:
    """Return what the device plugin of a node reads."""
    return {
        GPU_INDEX: ",".join(str(card) for card in cards),
        "volcano.sh/predicate-time": str(int(now_s * 1e9)),
    }
