"""Amounts of resources that nodes have by the states of policy, where their objects list none."""

from collections.abc import Iterable, Mapping

import numpy as np

from pumice.plugins import NODE_MAX, IntArray, PolicyState
from services.scheduler.engine.nodes.attributes import NodeAttributes
from services.scheduler.engine.resources.dimensions import Dimensions

Offer = Mapping[str, Mapping[str, int]]
"""Node → resource → amount."""


class NodeOffers:
    """The offers of all states of policy."""

    def __init__(self, dimensions: Dimensions) -> None:
        self._dimensions = dimensions
        self._by_state: dict[int, Offer] = {}
        """Position of a state → its offer."""
        self._by_node: dict[str, dict[str, int]] = {}
        self._listed: dict[str, IntArray] = {}
        """Node with an offer → what its object lists."""

    def take(self, states: Iterable[PolicyState], attributes: NodeAttributes) -> set[str]:
        """Take new offers; return the nodes whose offer has changed."""
        found = (
            (at, state.node_resources(attributes, self._dimensions.names))
            for at, state in enumerate(states)
        )
        news = {at: offer for at, offer in found if offer is not None}
        if not news:
            return set()
        self._by_state |= news
        before, self._by_node = self._by_node, {}
        for offer in self._by_state.values():
            for name, amounts in offer.items():
                self._by_node.setdefault(name, {}).update(amounts)
        names = before.keys() | self._by_node.keys()
        return {name for name in names if before.get(name) != self._by_node.get(name)}

    def applied(self, name: str, listed: IntArray) -> IntArray:
        """Return what a node has whose object lists these amounts."""
        listed = self._dimensions.fitted(listed)
        offer = self._by_node.get(name)
        if offer is None:
            self._listed.pop(name, None)
            return listed
        self._listed[name] = listed
        extra = self._dimensions.parse(offer, NODE_MAX)
        return np.where(self._dimensions.fitted(listed) > 0, self._dimensions.fitted(listed), extra)

    def listed(self, name: str) -> IntArray | None:
        """Return what the object of a node lists, None if nothing is offered beside it."""
        return self._listed.get(name)

    def forget(self, name: str) -> None:
        """Forget the object of a node."""
        self._listed.pop(name, None)
