"""Virtual GPUs of nodes and which pods have parts of them (DV2).

A node's device plugin registers its cards in an annotation; a pod has its parts of cards by one.
One that is placed and does not show them yet has those that were chosen for it. How cards are
chosen is the plugin's to say at the start of a session (`begin`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from pumice.plugins import IntArray
from services.scheduler.engine.vcards import (
    GROUP,
    IDS,
    Card,
    Share,
    Usage,
    Want,
    cards_of,
    choose,
    is_present,
    read_shares,
    show_shares,
)
from shared.api.core import Node

if TYPE_CHECKING:
    from services.scheduler.engine.records import Task
    from services.scheduler.engine.shapes import TaskClass

RULES: Final = "vgpu-rules"
"""Trait: numbers of the exclusive rules that a task's labels match."""
_REGISTER: Final = "volcano.sh/node-vgpu-register"
_HANDSHAKE: Final = "volcano.sh/node-vgpu-handshake"
_NONE: Final[frozenset[int]] = frozenset()


class _Held:
    """What one pod has, and what keeps others off its cards."""

    __slots__ = ("group", "rules", "shares")

    def __init__(
        self, shares: Sequence[Sequence[Share]], rules: frozenset[int], group: str
    ) -> None:
        self.shares = shares
        self.rules = rules
        self.group = group

    def uuids(self) -> set[str]:
        """Return the cards."""
        return {share.uuid for shares in self.shares for share in shares}


class _NodeCards:
    """The cards of one node."""

    def __init__(self) -> None:
        self.cards: tuple[Card, ...] = ()
        self.handshake = ""
        self.pods: dict[str, _Held] = {}
        self.version = 0

    def usage(self) -> dict[str, Usage]:
        """Return what is used of each card."""
        used = {card.uuid: Usage() for card in self.cards}
        for held in self.pods.values():
            for share in (share for shares in held.shares for share in shares):
                if share.uuid in used:
                    used[share.uuid] = used[share.uuid].plus(share)
        return used

    def closed_to(self, rules: frozenset[int], group: str) -> set[str]:
        """Return the cards that pods of the same rule, or of the same spread group, have."""
        return {
            uuid
            for held in self.pods.values()
            if (held.rules & rules) or (group and held.group == group)
            for uuid in held.uuids()
        }


class VGpus:
    """The virtual GPUs of all nodes."""

    def __init__(self) -> None:
        self._nodes: dict[str, _NodeCards] = {}
        self._chosen: dict[str, tuple[str, Sequence[Sequence[Share]]]] = {}
        """Pod uid → node and shares that a plan binds it with, until its object says so."""
        self._policy = ""
        self._now = 0.0
        self._matches: Callable[[Mapping[str, str]], frozenset[int]] = lambda _: _NONE
        self._steps: dict[tuple[int, str], tuple[int, list[float], bool]] = {}

    def begin(
        self,
        *,
        now: float,
        policy: str,
        matches: Callable[[Mapping[str, str]], frozenset[int]],
    ) -> None:
        """Say how cards are chosen: `matches` gives the exclusive rules that labels match."""
        self._now, self._policy, self._matches = now, policy, matches
        self._steps = {}

    # --- facts -------------------------------------------------------------------------------

    def put(self, name: str, node: Node) -> None:
        """Take over which cards a node has registered."""
        annotations = node.metadata.annotations
        cards = cards_of(annotations.get(_REGISTER, "")) if _HANDSHAKE in annotations else ()
        if not cards and name not in self._nodes:
            return
        found = self._nodes.setdefault(name, _NodeCards())
        found.cards = cards
        found.handshake = annotations.get(_HANDSHAKE, "")
        found.version += 1

    def remove(self, name: str) -> None:
        """Forget the cards of a node that is gone; its pods stay known."""
        if name in self._nodes:
            self._nodes[name].cards = ()
            self._nodes[name].version += 1

    def count(self, task: "Task", sign: int) -> None:
        """Count a task in on its node's cards (-1: out)."""
        node = self._nodes.setdefault(task.node, _NodeCards())
        node.version += 1
        if sign < 0:
            node.pods.pop(task.uid, None)
            return
        rules, group = self._matches(task.labels), task.shape.traits.get(GROUP, "")
        shares: Sequence[Sequence[Share]] = read_shares(task.vcards)
        if shares:
            self._chosen.pop(task.uid, None)
        else:
            where, kept = self._chosen.get(task.uid, ("", ()))
            shares = kept if where == task.node else self._choose(node, task.shape, rules, group)
        node.pods[task.uid] = _Held(shares, rules, group)

    def forget(self, uid: str) -> None:
        """Forget a pod that is gone."""
        self._chosen.pop(uid, None)

    def _choose(
        self, node: _NodeCards, shape: "TaskClass", rules: frozenset[int], group: str
    ) -> Sequence[Sequence[Share]]:
        want = Want.of(shape.vgpus, shape.traits)
        closed = node.closed_to(rules, group)
        found = choose(node.cards, node.usage(), want, closed, self._policy)
        return found.shares if found else ()

    # --- questions ---------------------------------------------------------------------------

    def settle_on(self, task: "Task") -> str:
        """Return what a placed task has, as its annotation says it; its own from the bind on."""
        node = self._nodes.get(task.node)
        held = node.pods.get(task.uid) if node else None
        if held is None or not held.shares:
            return ""
        self._chosen[task.uid] = (task.node, held.shares)
        return show_shares(held.shares)

    def registered(self, names: Sequence[str]) -> IntArray:
        """Return how many cards each node has that its device plugin answers for."""
        counts = [
            len(node.cards)
            if (node := self._nodes.get(name)) and is_present(node.handshake, self._now)
            else 0
            for name in names
        ]
        return np.array(counts, dtype=np.int64)

    def score(self, shape: "TaskClass", name: str, extra: int) -> float | None:
        """Return the score of one more pod beyond `extra` others; None when it does not fit."""
        node = self._nodes.get(name)
        if node is None:
            return None
        version, steps, over = self._steps.get((shape.id, name), (-1, [], False))
        if version != node.version:
            steps, over = [], False
        if len(steps) <= extra and not over:
            steps, over = self._look_ahead(node, shape, extra + 1)
        self._steps[shape.id, name] = (node.version, steps, over)
        return steps[extra] if extra < len(steps) else None

    def _look_ahead(
        self, node: _NodeCards, shape: "TaskClass", count: int
    ) -> tuple[list[float], bool]:
        """Place pods of a class one after another; return their scores, and whether it is full."""
        rules = _rules(shape)
        group = shape.traits.get(GROUP, "")
        usage, closed = node.usage(), node.closed_to(rules, group)
        want = Want.of(shape.vgpus, shape.traits)
        steps: list[float] = []
        while len(steps) < count:
            found = choose(node.cards, usage, want, closed, self._policy)
            if found is None:
                return steps, True
            steps.append(found.score)
            for share in (share for shares in found.shares for share in shares):
                usage[share.uuid] = usage[share.uuid].plus(share)
                if rules or group:
                    closed.add(share.uuid)
        return steps, False


def _rules(shape: "TaskClass") -> frozenset[int]:
    text = shape.traits.get(RULES, "")
    return frozenset(int(number) for number in text.split(",")) if text else _NONE


def annotations_of(shown: str, node: str, now_s: float) -> Mapping[str, str]:
    """Return what the device plugin of a node reads of a pod that is bound to it."""
    seconds = str(int(now_s))
    return {
        "volcano.sh/vgpu-node": node,
        "volcano.sh/vgpu-time": seconds,
        IDS: shown,
        "volcano.sh/devices-to-allocate": shown,
        "volcano.sh/bind-phase": "allocating",
        "volcano.sh/bind-time": seconds,
    }
