"""GPU cards of nodes and which pods use them (DV1, `volcano.sh/gpu-memory` and `gpu-number`).

A pod has its cards by the annotation `volcano.sh/gpu-index`. One that is placed and does not show
it yet has the cards that were chosen for it: the first ones that fit, as Volcano chooses.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
from msgspec import convert
from typing_extensions import override

from pumice.plugins import NODE_MAX, POD_MAX, Fold, IntArray, Task, TaskClass
from services.scheduler.policy.vendors.shared_cards import CardAssignments
from shared.api import kinds
from shared.api.core import Node, Pod
from shared.model.quantity import BadQuantity, units
from shared.model.requests import pod_request

GPU_INDEX: Final = "volcano.sh/gpu-index"
GPU_MEMORY: Final = "volcano.sh/gpu-memory"
GPU_NUMBER: Final = "volcano.sh/gpu-number"
_DIGITS_MAX: Final = 9
_CARDS_MAX: Final = 1_024
_UNHEALTHY: Final = "volcano.sh/gpu-unhealthy-ids"


class GpuRequest(NamedTuple):
    """GPU cards that a pod asks for; `memory` of one card goes before whole cards."""

    memory: int = 0
    number: int = 0


_NO_CARDS: Final = GpuRequest()


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

    def choose(self, request: GpuRequest) -> tuple[int, ...]:
        """Return the cards for one more pod; none when they do not suffice."""
        if request.memory:
            fitting = [card for card, left in self.idle().items() if left >= request.memory]
            return tuple(fitting[:1])
        empty = self.empty()
        return tuple(empty[: request.number]) if len(empty) >= request.number else ()


class Gpus(CardAssignments[tuple[int, ...]]):
    """The cards of all nodes."""

    name: ClassVar[str] = "cards"

    def __init__(self) -> None:
        super().__init__()
        self._nodes: dict[str, _Cards] = {}

    # --- facts -------------------------------------------------------------------------------

    @override
    def folds(self) -> Mapping[str, Fold]:
        """Read nodes."""
        return {kinds.NODE.token: Fold(self.put, self.remove)}

    def put(self, name: str, node: Node) -> None:
        """Store which cards a node has; amounts that cannot be read mean none."""
        capacity = node.status.capacity or node.status.allocatable
        try:
            memory, number = units(capacity.get(GPU_MEMORY, 0)), units(capacity.get(GPU_NUMBER, 0))
        except BadQuantity:
            memory = number = 0
        if memory <= 0 or number <= 0:
            self.remove(name)
            return
        unhealthy = _card_ids(node.metadata.annotations.get(_UNHEALTHY, ""))
        cards = self._nodes.setdefault(name, _Cards())
        each = min(memory // number, NODE_MAX)
        cards.memory = {c: each for c in range(min(number, _CARDS_MAX)) if c not in unhealthy}

    def remove(self, name: str) -> None:
        """Forget the cards of a node; its pods stay known."""
        if name in self._nodes:
            self._nodes[name].memory = {}

    @override
    def demand(self, pod: Pod) -> GpuRequest | None:
        """Return the cards that a pod asks for."""
        spec = pod.spec
        stated = [c.resources.requests for c in (*spec.containers, *spec.init_containers)]
        named = [each for each in stated if GPU_MEMORY in each or GPU_NUMBER in each]
        if not named and not spec.overhead:
            return None
        resource = pod_request(pod)
        memory, number = (
            max(0, min(int(resource.get(name)) // 1000, POD_MAX))
            for name in (GPU_MEMORY, GPU_NUMBER)
        )
        return GpuRequest(memory, number) if memory or number else None

    @override
    def shown_by(self, annotations: Mapping[str, str]) -> tuple[int, ...]:
        """Return the cards that a pod's annotation names."""
        return _card_ids(annotations.get(GPU_INDEX, ""))

    @override
    def counts(self, uid: str, node: str) -> bool:
        """Tell whether a pod counts on the cards of a node."""
        return node in self._nodes and uid in self._nodes[node].pods

    @override
    def count(self, task: Task, sign: int) -> None:
        """Add a task on its node's cards (-1: remove it)."""
        cards = self._nodes.setdefault(task.node, _Cards())
        if sign < 0:
            cards.pods.pop(task.uid, None)
            return
        request = self.request_of(task.task_class)
        chosen = self.assigned(task, lambda: cards.choose(request))
        cards.pods[task.uid] = (chosen, request.memory)

    # --- memory ------------------------------------------------------------------------------

    @override
    def dump(self) -> list[tuple[str, str, tuple[int, ...]]]:
        """Return pod uid, node and cards of each pod that does not show its cards yet."""
        return [(uid, node, cards) for uid, (node, cards) in self._chosen.items()]

    @override
    def restore(self, dumped: Any) -> None:
        """Use cards that were chosen elsewhere, until the pods' objects say so."""
        found = convert(dumped, list[tuple[str, str, tuple[int, ...]]])
        self._chosen = {uid: (node, cards) for uid, node, cards in found}

    # --- queries -----------------------------------------------------------------------------

    def request_of(self, task_class: TaskClass) -> GpuRequest:
        """Return what a task of a class asks for."""
        found: GpuRequest = task_class.demands.get(self, _NO_CARDS)
        return found

    def settle_on(self, task: Task) -> tuple[int, ...]:
        """Return the cards of a placed task; they stay its own from the bind on."""
        cards = self._nodes.get(task.node)
        chosen = cards.pods.get(task.uid, ((), 0))[0] if cards else ()
        if chosen:
            self.journal.write(self._chosen, task.uid, (task.node, chosen))
        return chosen

    def room(self, request: GpuRequest, columns: IntArray, names: Sequence[str]) -> IntArray:
        """Return how many pods find cards, per column; -1 for a node without any."""
        result = np.full(len(columns), -1, dtype=np.int64)
        found: dict[int, int] = {}
        for at, column in enumerate(columns.tolist()):
            room = found.get(column)
            if room is None:
                cards = self._nodes.get(names[column])
                room = found[column] = _room(cards, request) if cards and cards.memory else -1
            result[at] = room
        return result


def _room(cards: _Cards, request: GpuRequest) -> int:
    if request.memory:
        return sum(left // request.memory for left in cards.idle().values())
    return len(cards.empty()) // request.number


def _card_ids(text: str) -> tuple[int, ...]:
    """Return the numbers in `0,3`; none when one of them cannot be read."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    readable = all(part.isdecimal() and len(part) <= _DIGITS_MAX for part in parts)
    return tuple(int(part) for part in parts) if readable else ()


def annotations_of(cards: tuple[int, ...], now_s: float) -> Mapping[str, str]:
    """Return what the device plugin of a node reads."""
    return {
        GPU_INDEX: ",".join(str(card) for card in cards),
        "volcano.sh/predicate-time": str(int(now_s * 1e9)),
    }
