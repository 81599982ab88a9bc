"""Virtual GPUs of nodes and which pods have parts of them (DV2).

A node's device plugin registers its cards in an annotation; a pod has its parts of cards by one.
One that is placed and does not show them yet has those that were chosen for it. How cards are
chosen is the plugin's to say at the start of a session (`begin`).
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np
from msgspec import convert
from typing_extensions import override

from pumice import plugins
from pumice.plugins import BoolArray, IntArray
from services.scheduler.engine.own import own
from services.scheduler.engine.tasks.classes import TaskClass
from services.scheduler.engine.tasks.policy_state import Fold, PolicyState
from services.scheduler.engine.tasks.task import Task
from services.scheduler.policy.states.vgpu_cards import (
    Card,
    CardUsage,
    Share,
    Want,
    are_cut,
    cards_of,
    choose,
    is_present,
    read_shares,
    show_shares,
)
from services.scheduler.policy.states.vgpu_requests import IDS, NO_UUID, PERCENT, USE_UUID
from shared.api import kinds
from shared.api.core import Node, Pod

RULES: Final = "vgpu-rules"
"""Trait: numbers of the exclusive rules that a task's labels match."""
_REGISTER: Final = "volcano.sh/node-vgpu-register"
_HANDSHAKE: Final = "volcano.sh/node-vgpu-handshake"
_NONE: Final[frozenset[int]] = frozenset()
_NO_WANT: Final = Want()
_TABLE_LIMIT: Final = 200_000

State = tuple[tuple[str, int, int, CardUsage], ...]
"""Type, slots, memory and use of each card of a node: all that decides for most pods."""


class _Held:
    """Shares of one pod, and the rules that keep others off its cards."""

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
        self.cut = False
        """Whether its cards are in MIG mode: then none is given, since a share of HAMi-core would
        mean nothing to the node's device plugin."""
        self.handshake = ""
        self.pods: dict[str, _Held] = {}
        self.version = 0
        self._state: tuple[int, State] = (-1, ())

    def state(self) -> State:
        """Return what tells these cards from others, their names apart."""
        if self._state[0] != self.version:
            used = self.usage()
            said = tuple((c.type, c.slots, c.memory, used[c.uuid]) for c in self.cards)
            self._state = (self.version, said)
        return self._state[1]

    def usage(self) -> dict[str, CardUsage]:
        """Return what is used of each card."""
        used = {card.uuid: CardUsage() for card in self.cards}
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


class VGpus(PolicyState):
    """The virtual GPUs of all nodes."""

    name: ClassVar[str] = "shares"
    managed_resources: ClassVar[frozenset[str]] = frozenset({PERCENT})
    """No node offers a part of its cards' memory (T07)."""

    def __init__(self) -> None:
        self._nodes: dict[str, _NodeCards] = {}
        self._shown: dict[str, str] = {}
        """Pod uid → shares, as its annotation says them."""
        self._chosen: dict[str, tuple[str, Sequence[Sequence[Share]]]] = {}
        """Pod uid → node and shares that a plan binds it with, until its object says so."""
        self._policy = ""
        self._now = 0.0
        self._matches: Callable[[Mapping[str, str]], frozenset[int]] = lambda _: _NONE
        self._steps: dict[tuple[int, str], tuple[int, list[float], bool]] = {}
        self._tables: dict[Hashable, dict[tuple[State, int], float | None]] = {}
        """Demand → (state of the cards, pods before this one) → score. Most nodes have cards in the
        same state as others, so that few are computed."""

    def choose_by(
        self,
        *,
        now: float,
        policy: str,
        matches: Callable[[Mapping[str, str]], frozenset[int]],
    ) -> None:
        """Say how cards are chosen: `matches` gives the exclusive rules that labels match."""
        if policy != self._policy or sum(map(len, self._tables.values())) > _TABLE_LIMIT:
            self._tables = {}
        self._now, self._policy, self._matches = now, policy, matches
        self._steps = {}

    # --- facts -------------------------------------------------------------------------------

    @override
    def folds(self) -> Mapping[str, Fold]:
        """Read nodes."""
        return {kinds.NODE.token: Fold(self.put, self.remove)}

    def put(self, name: str, node: Node) -> None:
        """Take over which cards a node has registered."""
        annotations = node.metadata.annotations
        registered = annotations.get(_REGISTER, "") if _HANDSHAKE in annotations else ""
        cut = are_cut(registered)
        cards = () if cut else cards_of(registered)
        if not (cards or cut or name in self._nodes):
            return
        found = self._nodes.setdefault(name, _NodeCards())
        found.cards, found.cut = cards, cut
        found.handshake = annotations.get(_HANDSHAKE, "")
        found.version += 1

    def remove(self, name: str) -> None:
        """Forget the cards of a node that is gone; its pods stay known."""
        if name in self._nodes:
            self._nodes[name].cards, self._nodes[name].cut = (), False
            self._nodes[name].version += 1

    @override
    def demand(self, pod: Pod) -> Want | None:
        """Return what a pod asks for; one that only shows shares counts on its cards, too."""
        return Want.of(pod)

    @override
    def join(self, task: Task, pod: Pod) -> None:
        """Note the shares that a pod shows."""
        if shown := pod.metadata.annotations.get(IDS):
            self._shown[task.uid] = shown

    @override
    def leave(self, task: Task, *, gone: bool) -> None:
        """Forget what a pod shows, and what was chosen for it when it is gone."""
        self._shown.pop(task.uid, None)
        if gone:
            self._chosen.pop(task.uid, None)

    @override
    def count(self, task: Task, sign: int) -> None:
        """Count a task in on its node's cards (-1: out)."""
        node = self._nodes.setdefault(task.node, _NodeCards())
        node.version += 1
        if sign < 0:
            node.pods.pop(task.uid, None)
            return
        rules, want = self._matches(task.labels), self.want(task.task_class)
        shares: Sequence[Sequence[Share]] = read_shares(self._shown.get(task.uid, ""))
        if shares:
            self._chosen.pop(task.uid, None)
        else:
            where, kept = self._chosen.get(task.uid, ("", ()))
            shares = kept if where == task.node else self._choose(node, want, rules)
        node.pods[task.uid] = _Held(shares, rules, want.group)

    def _choose(
        self, node: _NodeCards, want: Want, rules: frozenset[int]
    ) -> Sequence[Sequence[Share]]:
        closed = node.closed_to(rules, want.group)
        found = choose(node.cards, node.usage(), want, closed, self._policy)
        return found.shares if found else ()

    # --- memory ------------------------------------------------------------------------------

    @override
    def dump(self) -> list[tuple[str, str, str]]:
        """Return pod uid, node and shares of each pod that does not show its shares yet."""
        return [(uid, node, show_shares(s)) for uid, (node, s) in self._chosen.items()]

    @override
    def restore(self, kept: Any) -> None:
        """Go by shares that were chosen elsewhere, until the pods' objects say so."""
        found = convert(kept, list[tuple[str, str, str]])
        self._chosen = {uid: (node, read_shares(shown)) for uid, node, shown in found}

    # --- questions ---------------------------------------------------------------------------

    def want(self, task_class: plugins.TaskClass) -> Want:
        """Return what a task of a class asks for."""
        found: Want = own(task_class, TaskClass).demands.get(self, _NO_WANT)
        return found

    def settle_on(self, task: plugins.Task) -> str:
        """Return what a placed task has, as its annotation says it; its own from the bind on."""
        node = self._nodes.get(task.node)
        held = node.pods.get(task.uid) if node else None
        if held is None or not held.shares:
            return ""
        self.journal.write(self._chosen, task.uid, (task.node, held.shares))
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

    def cut(self, names: Sequence[str]) -> BoolArray:
        """Return which nodes have their cards in MIG mode."""
        found = (self._nodes.get(name) for name in names)
        return np.array([node is not None and node.cut for node in found], dtype=np.bool_)

    def scores(
        self, task_class: plugins.TaskClass, names: Sequence[str], extra: Sequence[int]
    ) -> list[float | None]:
        """Return, per node, the score of one more pod beyond `extra` others; None: no room."""
        nodes = [self._nodes.get(name) for name in names]
        want = self.want(task_class)
        if _tells_cards_apart(task_class, want):
            return [
                None if node is None else self._score(task_class, name, node, more)
                for node, name, more in zip(nodes, names, extra, strict=True)
            ]
        table = self._tables.setdefault((want.requests, *want.wishes.items()), {})
        found: list[float | None] = []
        for node, more in zip(nodes, extra, strict=True):
            if node is None:
                found.append(None)
                continue
            likeness = (node.state(), more)
            if likeness not in table:
                steps, _ = self._look_ahead(node, task_class, more + 1)
                table[likeness] = steps[more] if more < len(steps) else None
            found.append(table[likeness])
        return found

    def _score(
        self, task_class: plugins.TaskClass, name: str, node: _NodeCards, extra: int
    ) -> float | None:
        version, steps, over = self._steps.get((task_class.id, name), (-1, [], False))
        if version != node.version:
            steps, over = [], False
        if len(steps) <= extra and not over:
            steps, over = self._look_ahead(node, task_class, extra + 1)
        self._steps[task_class.id, name] = (node.version, steps, over)
        return steps[extra] if extra < len(steps) else None

    def _look_ahead(
        self, node: _NodeCards, task_class: plugins.TaskClass, count: int
    ) -> tuple[list[float], bool]:
        """Place pods of a class one after another; return their scores, and whether it is full."""
        rules, want = _rules(task_class), self.want(task_class)
        usage, closed = node.usage(), node.closed_to(rules, want.group)
        steps: list[float] = []
        while len(steps) < count:
            found = choose(node.cards, usage, want, closed, self._policy)
            if found is None:
                return steps, True
            steps.append(found.score)
            for share in (share for shares in found.shares for share in shares):
                usage[share.uuid] = usage[share.uuid].plus(share)
                if rules or want.group:
                    closed.add(share.uuid)
        return steps, False


def _tells_cards_apart(task_class: plugins.TaskClass, want: Want) -> bool:
    """Whether it matters to a class which cards these are, or whose pods they have."""
    wishes = want.wishes
    return bool(
        task_class.traits.get(RULES) or want.group or wishes.get(USE_UUID) or wishes.get(NO_UUID)
    )


def _rules(task_class: plugins.TaskClass) -> frozenset[int]:
    text = task_class.traits.get(RULES, "")
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
