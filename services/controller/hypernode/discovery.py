"""HyperNodes that labels of nodes tell of (H04).

Nodes that agree in the labels of a level and of all levels above it are one HyperNode. The lowest
level has tier 1 and selects its nodes by those labels, so that a node that joins later is in it at
once; the levels above name the HyperNodes below them.

⚠ A name ends in five letters as in Volcano, but they follow from the labels instead of being
random: who discovers the same network again, after a restart too, finds the same names.
"""

import hashlib
from base64 import b32encode
from collections.abc import Iterable, Mapping
from typing import Final

from shared.api import keys
from shared.api.meta import ObjectMeta
from shared.api.selectors import LabelSelector
from shared.api.topology import (
    ExactMatch,
    HyperNode,
    HyperNodeSpec,
    Member,
    MemberSelector,
    MemberType,
)
from shared.model.hypernodes import Labels

SOURCE: Final = "label"

_Place = tuple[tuple[str, str], ...]
"""The labels of one part of a network with their values, from the top down to it."""


def discovered(
    types: Mapping[str, tuple[str, ...]], nodes: Mapping[str, Labels]
) -> dict[str, HyperNode]:
    """Return the HyperNodes of all networks by name; `types` as in config.Discovery."""
    found: dict[str, HyperNode] = {}
    for network, labels in sorted(types.items()):
        places = {place for have in nodes.values() for place in _places(labels, have)}
        for place in sorted(places):
            one = _hypernode(network, labels, place, places)
            found[one.metadata.name] = one
    return found


def changes(
    wanted: Mapping[str, HyperNode], there: Iterable[HyperNode], *, source: str = SOURCE
) -> tuple[list[HyperNode], list[tuple[HyperNode, HyperNodeSpec]], list[HyperNode]]:
    """Return what to create, what to change to which spec, and what to delete.

    From the bottom up, deletions from the top down, so that no HyperNode names one that is not
    there. Only HyperNodes of `source` are touched.
    """
    ours = {
        one.metadata.name: one
        for one in there
        if one.metadata.labels.get(keys.TOPOLOGY_SOURCE) == source
    }
    create = [one for name, one in wanted.items() if name not in ours]
    change = [
        (ours[name], one.spec)
        for name, one in wanted.items()
        if name in ours and ours[name].spec != one.spec
    ]
    delete = [one for name, one in ours.items() if name not in wanted]
    return (
        sorted(create, key=_height),
        sorted(change, key=lambda pair: _height(pair[0])),
        sorted(delete, key=_height, reverse=True),
    )


def _height(one: HyperNode) -> tuple[int, str]:
    return (one.spec.tier, one.metadata.name)


def _places(labels: tuple[str, ...], have: Labels) -> Iterable[_Place]:
    """Yield the places of a node, from the lowest up to where a label is missing.

    A node without the lowest label is in none.
    """
    values = [(label, have.get(label, "")) for label in labels]
    known = len(values)
    while known > 0 and values[known - 1][1]:
        known -= 1
    line = values[known:]
    for depth in range(len(line), 0, -1):
        yield tuple(line[:depth])


def _hypernode(
    network: str, labels: tuple[str, ...], place: _Place, places: Iterable[_Place]
) -> HyperNode:
    tier = _tier(labels, place)
    if tier == 1:
        match = LabelSelector(match_labels=dict(place))
        members = [Member(type=MemberType.NODE, selector=MemberSelector(label_match=match))]
    else:
        below = sorted(_name(network, labels, p) for p in places if p[:-1] == place)
        members = [
            Member(
                type=MemberType.HYPERNODE,
                selector=MemberSelector(exact_match=ExactMatch(name=name)),
            )
            for name in below
        ]
    return HyperNode(
        metadata=ObjectMeta(
            name=_name(network, labels, place), labels={keys.TOPOLOGY_SOURCE: SOURCE}
        ),
        spec=HyperNodeSpec(tier=tier, members=tuple(members)),
    )


def _tier(labels: tuple[str, ...], place: _Place) -> int:
    return len(labels) - labels.index(place[-1][0])


def _name(network: str, labels: tuple[str, ...], place: _Place) -> str:
    text = repr((network, place)).encode()
    suffix = b32encode(hashlib.blake2b(text, digest_size=5).digest()).decode().lower()[:5]
    return f"hypernode-{network.lower()}-tier{_tier(labels, place)}-{suffix}"
