"""Ascend NPUs of nodes and which pods have parts of them, as HAMi shares them (DV3)."""

from collections.abc import Mapping
from typing import ClassVar

from typing_extensions import override

from services.scheduler.policy.vendors.cards import CardChoice, CardUsage, Shares
from services.scheduler.policy.vendors.npu_cards import (
    NpuWant,
    cards_of,
    choose,
    is_part,
    shown_shares,
)
from services.scheduler.policy.vendors.npu_chips import KNOWN, ChipTable
from services.scheduler.policy.vendors.shared_cards import NodeCards, SharedCards
from shared.api.core import Node, Pod


class Npus(SharedCards[NpuWant]):
    """The NPUs of all nodes."""

    name: ClassVar[str] = "npus"

    def __init__(self) -> None:
        super().__init__(NpuWant())
        self._policy = ""
        self._table = KNOWN

    def choose_by(self, *, policy: str, table: ChipTable) -> None:
        """Say how cards are chosen, and into which parts they are cut."""
        self.set_choice_policy((policy, table))
        self._policy, self._table = policy, table

    @override
    def manages(self, resource: str) -> bool:
        """Count memory and cores of NPUs here alone: no node offers them (T07)."""
        return is_part(resource)

    @override
    def demand(self, pod: Pod) -> NpuWant | None:
        """Return what a pod asks for; one that only shows shares counts on its cards, too."""
        return NpuWant.of(pod)

    @override
    def register(self, found: NodeCards, node: Node) -> None:
        found.cards = cards_of(node)

    @override
    def shown_by(self, annotations: Mapping[str, str]) -> Shares:
        return shown_shares(annotations)

    @override
    def choose(
        self, node: NodeCards, usage: Mapping[str, CardUsage], request: NpuWant, closed: set[str]
    ) -> CardChoice | None:
        return choose(node.cards, usage, request, self._table, self._policy)
