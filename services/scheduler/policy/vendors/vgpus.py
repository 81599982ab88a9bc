"""Virtual GPUs of nodes and which pods have parts of them (DV2)."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import ClassVar, Final

import numpy as np
from typing_extensions import override

from pumice.plugins import IntArray, Task, TaskClass
from services.scheduler.policy.vendors.cards import (
    CardChoice,
    CardUsage,
    Shares,
    read_shares,
    show_shares,
)
from services.scheduler.policy.vendors.mig import ModelGeometries, geometries_of
from services.scheduler.policy.vendors.shared_cards import NONE, NodeCards, SharedCards
from services.scheduler.policy.vendors.vgpu_cards import (
    CUT,
    IDS,
    NO_UUID,
    PERCENT,
    SHARED,
    USE_UUID,
    VGpuRequests,
    are_cut,
    cards_of,
    choose,
    is_present,
)
from shared.api.core import Node, Pod

RULES: Final = "vgpu-rules"
"""Trait: numbers of the exclusive rules that a task's labels match."""
_REGISTER: Final = "volcano.sh/node-vgpu-register"
_HANDSHAKE: Final = "volcano.sh/node-vgpu-handshake"


class VGpus(SharedCards[VGpuRequests]):
    """The virtual GPUs of all nodes."""

    name: ClassVar[str] = "shares"
    managed_resources: ClassVar[frozenset[str]] = frozenset({PERCENT})
    """No node offers a part of its cards' memory (T07)."""

    def __init__(self) -> None:
        super().__init__(VGpuRequests())
        self._policy = ""
        self._geometries: Sequence[ModelGeometries] = ()
        self._now = 0.0
        self._matches: Callable[[Mapping[str, str]], frozenset[int]] = lambda _: NONE

    def choose_by(
        self,
        *,
        now: float,
        policy: str,
        matches: Callable[[Mapping[str, str]], frozenset[int]],
        geometries: Sequence[ModelGeometries],
    ) -> None:
        """Say how cards are chosen: `matches` gives the exclusive rules that labels match."""
        self.set_choice_policy((policy, geometries))
        self._now, self._policy, self._matches = now, policy, matches
        self._geometries = geometries

    @override
    def demand(self, pod: Pod) -> VGpuRequests | None:
        """Return what a pod asks for; one that only shows shares counts on its cards, too."""
        return VGpuRequests.of(pod)

    # --- what kinds of cards differ in -------------------------------------------------------

    @override
    def register(self, found: NodeCards, node: Node) -> None:
        annotations = node.metadata.annotations
        registered = annotations.get(_REGISTER, "") if _HANDSHAKE in annotations else ""
        found.cut = are_cut(registered)
        found.cards = cards_of(registered)
        found.handshake = annotations.get(_HANDSHAKE, "")

    @override
    def shown_by(self, annotations: Mapping[str, str]) -> Shares:
        return read_shares(annotations.get(IDS, ""))

    @override
    def choose(
        self,
        node: NodeCards,
        usage: Mapping[str, CardUsage],
        request: VGpuRequests,
        closed: set[str],
    ) -> CardChoice | None:
        if request.mode not in {"", CUT if node.cut else SHARED}:
            return None
        types = {card.type for card in node.cards}
        geometries = {t: geometries_of(self._geometries, t) for t in types} if node.cut else None
        return choose(node.cards, usage, request, closed, self._policy, geometries=geometries)

    @override
    def rules_of(self, task: Task) -> frozenset[int]:
        return self._matches(task.labels)

    @override
    def rules_of_class(self, task_class: TaskClass) -> frozenset[int]:
        text = task_class.traits.get(RULES, "")
        return frozenset(int(number) for number in text.split(",")) if text else NONE

    @override
    def group_of(self, request: VGpuRequests) -> str:
        return request.group

    @override
    def key_of(self, task_class: TaskClass) -> Hashable | None:
        request = self.request_of(task_class)
        if task_class.traits.get(RULES) or request.group:
            return None
        if request.preferences.get(USE_UUID) or request.preferences.get(NO_UUID):
            return None
        return (request.requests, *request.preferences.items())

    # --- queries -----------------------------------------------------------------------------

    def registered(self, names: Sequence[str]) -> IntArray:
        """Return how many cards each node has that its device plugin answers for."""
        counts = [
            len(node.cards)
            if (node := self._nodes.get(name)) and is_present(node.handshake, self._now)
            else 0
            for name in names
        ]
        return np.array(counts, dtype=np.int64)

    def mode(self, name: str) -> str:
        """Return the mode of a node's cards, "" if they are in MIG mode with unknown geometries."""
        node = self._nodes.get(name)
        if node is None or not node.cut:
            return SHARED
        known = any(geometries_of(self._geometries, card.type) for card in node.cards)
        return CUT if known else ""


def annotations_of(shares: Shares, node: str, now_s: float) -> Mapping[str, str]:
    """Return what the device plugin of a node reads of a pod that is bound to it."""
    shown, seconds = show_shares(shares), str(int(now_s))
    return {
        "volcano.sh/vgpu-node": node,
        "volcano.sh/vgpu-time": seconds,
        IDS: shown,
        "volcano.sh/devices-to-allocate": shown,
        "volcano.sh/bind-phase": "allocating",
        "volcano.sh/bind-time": seconds,
    }
