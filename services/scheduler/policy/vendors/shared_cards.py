"""Cards of nodes and the shares of pods, for every kind of shared card.

A node's device plugin registers its cards in an annotation; an annotation of a pod has its shares.
A placed pod without the annotation has the shares that were chosen for it. A kind of card (`vgpus`,
`npus`) parses both annotations and chooses cards; the plugin sets the policy at the start of a
session.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from msgspec import convert
from typing_extensions import override

from pumice.plugins import Fold, Journal, PolicyState, PublishedBind, Task, TaskClass
from services.scheduler.policy.vendors.cards import (
    Card,
    CardChoice,
    CardUsage,
    Shares,
    each,
    read_shares,
    show_shares,
)
from shared.api import kinds
from shared.api.core import Node, Pod

NONE: Final[frozenset[int]] = frozenset()
_TABLE_LIMIT: Final = 200_000

Given = TypeVar("Given")
"""The type of a pod's assignment."""
CardRequest = TypeVar("CardRequest")
"""The type of a pod's request."""
State = tuple[tuple[tuple[Any, ...], CardUsage], ...]
"""Properties and usage of each card of a node without names: sufficient for most pods."""


class CardShares:
    """Shares of one pod, and the rules that exclude others from its cards."""

    __slots__ = ("group", "rules", "shares")

    def __init__(self, shares: Shares, rules: frozenset[int], group: str) -> None:
        self.shares = shares
        self.rules = rules
        self.group = group

    def uuids(self) -> set[str]:
        """Return the cards."""
        return {share.card for share in each(self.shares)}


class NodeCards:
    """The cards of one node."""

    def __init__(self) -> None:
        self.cards: tuple[Card, ...] = ()
        self.cut = False
        """Whether its cards are in MIG mode: pods get instances of them, not shares."""
        self.handshake = ""
        self.pods: dict[str, CardShares] = {}
        self.version = 0
        self._state: tuple[int, State] = (-1, ())

    def state(self) -> State:
        """Return the properties and usage of the cards, without names."""
        if self._state[0] != self.version:
            used = self.usage()
            self._state = (
                self.version,
                tuple(((*c[1:], self.cut), used[c.uuid]) for c in self.cards),
            )
        return self._state[1]

    def usage(self) -> dict[str, CardUsage]:
        """Return the usage of each card."""
        used = {card.uuid: CardUsage() for card in self.cards}
        for assigned in self.pods.values():
            for share in each(assigned.shares):
                if share.card in used:
                    used[share.card] = used[share.card].plus(share)
        return used

    def closed_to(self, rules: frozenset[int], group: str) -> set[str]:
        """Return the cards used by pods of the same rule or the same spread group.

        Rules do not concern cards in MIG mode, whose instances are isolated.
        """
        return {
            uuid
            for assigned in self.pods.values()
            if (assigned.rules & rules and not self.cut) or (group and assigned.group == group)
            for uuid in assigned.uuids()
        }


class CardAssignments(PolicyState, ABC, Generic[Given]):
    """The cards that each pod has: as its object says, or as chosen for it until its object does.

    What was chosen in a session counts there only. From the bind on it stands in `_chosen`, until
    the pod's object says it, the pod is gone, or the bind has come to nothing.
    """

    def __init__(self) -> None:
        self._shown: dict[str, Given] = {}
        """Pod uid → its cards, as its annotation says them."""
        self._chosen: dict[str, tuple[str, Given]] = {}
        """Pod uid → node and cards that a plan binds it with, until its object says so."""

    @abstractmethod
    def shown_by(self, annotations: Mapping[str, str]) -> Given:
        """Return the cards that a pod's annotations say it has; an empty value: none."""

    @abstractmethod
    def counts(self, uid: str, node: str) -> bool:
        """Tell whether a pod counts on the cards of a node."""

    @override
    def begin(self, journal: Journal) -> None:
        """Begin a session; cards that were chosen for a failed bind are free again."""
        super().begin(journal)
        self._chosen = {
            uid: (node, cards)
            for uid, (node, cards) in self._chosen.items()
            if self.counts(uid, node)
        }

    @override
    def join(self, task: Task, pod: Pod) -> None:
        """Note the cards that a pod shows."""
        if shown := self.shown_by(pod.metadata.annotations):
            self._shown[task.uid] = shown

    @override
    def leave(self, task: Task, *, gone: bool) -> None:
        """Forget what a pod shows, and what was chosen for it when it is gone."""
        self._shown.pop(task.uid, None)
        if gone:
            self._chosen.pop(task.uid, None)

    @override
    def assume(self, bind: PublishedBind) -> None:
        """Use the cards of a published bind, until the pod's object says so."""
        if cards := self.shown_by(bind.annotations):
            self._chosen[bind.uid] = (bind.node, cards)

    def assigned(self, task: Task, choose: Callable[[], Given]) -> Given:
        """Return the cards of a task that is added; `choose` selects them for a new one."""
        shown = self._shown.get(task.uid)
        if shown:
            self._chosen.pop(task.uid, None)
            return shown
        chosen = self._chosen.get(task.uid)
        return chosen[1] if chosen is not None and chosen[0] == task.node else choose()


class SharedCards(CardAssignments[Shares], Generic[CardRequest]):
    """The cards of one kind on all nodes."""

    def __init__(self, nothing: CardRequest) -> None:
        """Take what a pod asks for that asks for no card."""
        super().__init__()
        self._nothing = nothing
        self._nodes: dict[str, NodeCards] = {}
        self._choice_policy: Hashable = None
        """How cards are chosen in this session."""
        self._steps: dict[tuple[int, str], tuple[int, list[float], bool]] = {}
        self._tables: dict[Hashable, dict[tuple[State, int], float | None]] = {}
        """Demand → (state of the cards, pods before this one) → score. Most nodes have cards in the
        same state as others, so that few are computed."""

    def set_choice_policy(self, policy: Hashable) -> None:
        """Choose by `policy` from now on; scores of another policy are forgotten."""
        if policy != self._choice_policy or sum(map(len, self._tables.values())) > _TABLE_LIMIT:
            self._tables = {}
        self._choice_policy = policy
        self._steps = {}

    # --- hooks of the kinds of cards -------------------------------------------------------

    @abstractmethod
    def register(self, found: NodeCards, node: Node) -> None:
        """Note the cards that a node has registered."""

    @abstractmethod
    def choose(
        self,
        node: NodeCards,
        usage: Mapping[str, CardUsage],
        request: CardRequest,
        closed: set[str],
    ) -> CardChoice | None:
        """Return cards for one pod, None when they do not suffice."""

    def rules_of(self, task: Task) -> frozenset[int]:  # noqa: ARG002 - few kinds have any
        """Return the exclusive rules that a task's labels match."""
        return NONE

    def rules_of_class(self, task_class: TaskClass) -> frozenset[int]:  # noqa: ARG002
        """Return the exclusive rules that the tasks of a class match."""
        return NONE

    def group_of(self, request: CardRequest) -> str:  # noqa: ARG002 - few kinds have any
        """Return the group whose pods do not share cards with each other; "": none."""
        return ""

    def key_of(self, task_class: TaskClass) -> Hashable | None:
        """Return the cache key of a class; None if the names of cards matter too."""
        found: Hashable = self.request_of(task_class)
        return found

    # --- facts -------------------------------------------------------------------------------

    @override
    def folds(self) -> Mapping[str, Fold]:
        """Read nodes."""
        return {kinds.NODE.token: Fold(self.put, self.remove)}

    def put(self, name: str, node: Node) -> None:
        """Store which cards a node has registered."""
        found = NodeCards()
        self.register(found, node)
        if not (found.cards or found.cut or name in self._nodes):
            return
        known = self._nodes.setdefault(name, found)
        known.cards, known.cut, known.handshake = found.cards, found.cut, found.handshake
        known.version += 1

    def remove(self, name: str) -> None:
        """Forget the cards of a node that is gone; its pods stay known."""
        if name in self._nodes:
            self._nodes[name].cards, self._nodes[name].cut = (), False
            self._nodes[name].version += 1

    @override
    def count(self, task: Task, sign: int) -> None:
        """Add a task on its node's cards (-1: remove it)."""
        node = self._nodes.setdefault(task.node, NodeCards())
        node.version += 1
        if sign < 0:
            node.pods.pop(task.uid, None)
            return
        rules, request = self.rules_of(task), self.request_of(task.task_class)
        shares = self.assigned(task, lambda: self._first_choice(node, request, rules))
        node.pods[task.uid] = CardShares(shares, rules, self.group_of(request))

    @override
    def counts(self, uid: str, node: str) -> bool:
        """Tell whether a pod counts on the cards of a node."""
        return node in self._nodes and uid in self._nodes[node].pods

    def _first_choice(self, node: NodeCards, request: CardRequest, rules: frozenset[int]) -> Shares:
        closed = node.closed_to(rules, self.group_of(request))
        found = self.choose(node, node.usage(), request, closed)
        return found.shares if found else ()

    # --- memory ------------------------------------------------------------------------------

    @override
    def dump(self) -> list[tuple[str, str, str]]:
        """Return pod uid, node and shares of each pod that does not show its shares yet."""
        return [(uid, node, show_shares(s)) for uid, (node, s) in self._chosen.items()]

    @override
    def restore(self, dumped: Any) -> None:
        """Use shares that were chosen elsewhere, until the pods' objects say so."""
        found = convert(dumped, list[tuple[str, str, str]])
        self._chosen = {uid: (node, read_shares(shown)) for uid, node, shown in found}

    # --- queries -----------------------------------------------------------------------------

    def request_of(self, task_class: TaskClass) -> CardRequest:
        """Return what a task of a class asks for."""
        found: CardRequest = task_class.demands.get(self, self._nothing)
        return found

    def settle_on(self, task: Task) -> Shares:
        """Return what a placed task has; its own from the bind on."""
        node = self._nodes.get(task.node)
        assigned = node.pods.get(task.uid) if node else None
        if assigned is None or not assigned.shares:
            return ()
        self.journal.write(self._chosen, task.uid, (task.node, assigned.shares))
        return assigned.shares

    def scores(
        self, task_class: TaskClass, names: Sequence[str], extra: Sequence[int]
    ) -> list[float | None]:
        """Return, per node, the score of one more pod beyond `extra` others; None: no room."""
        nodes = [self._nodes.get(name) for name in names]
        key = self.key_of(task_class)
        if key is None:
            return [
                self._score(task_class, name, node or _BARE, more)
                for node, name, more in zip(nodes, names, extra, strict=True)
            ]
        table = self._tables.setdefault(key, {})
        found: list[float | None] = []
        for node, more in zip(nodes, extra, strict=True):
            there = node or _BARE
            state = (there.state(), more)
            if state not in table:
                steps, _ = self._look_ahead(there, task_class, more + 1)
                table[state] = steps[more] if more < len(steps) else None
            found.append(table[state])
        return found

    def _score(self, task_class: TaskClass, name: str, node: NodeCards, extra: int) -> float | None:
        version, steps, over = self._steps.get((task_class.id, name), (-1, [], False))
        if version != node.version:
            steps, over = [], False
        if len(steps) <= extra and not over:
            steps, over = self._look_ahead(node, task_class, extra + 1)
        self._steps[task_class.id, name] = (node.version, steps, over)
        return steps[extra] if extra < len(steps) else None

    def _look_ahead(
        self, node: NodeCards, task_class: TaskClass, count: int
    ) -> tuple[list[float], bool]:
        """Place pods of a class one after another; return their scores, and whether it is full."""
        rules, request = self.rules_of_class(task_class), self.request_of(task_class)
        group = self.group_of(request)
        usage, closed = node.usage(), node.closed_to(rules, group)
        steps: list[float] = []
        while len(steps) < count:
            found = self.choose(node, usage, request, closed)
            if found is None:
                return steps, True
            steps.append(found.score)
            for share in each(found.shares):
                usage[share.card] = usage[share.card].plus(share)
                if group or (rules and not node.cut):
                    closed.add(share.card)
        return steps, False


_BARE: Final = NodeCards()
"""A node without cards."""
