"""HyperNodes that labels of nodes tell of (H04).

Nodes that agree in the labels of a level and of all levels above it are one HyperNode. The lowest
level has tier 1 and names its nodes, those above name the HyperNodes below them. Each carries the
label that it stands for, and the key of it as the name of its tier, by which jobs may ask for it.

⚠ A name ends in five letters as in Volcano, but they follow from the labels instead of being
random: another discovery of the same network, after a restart too, finds the same names.
"""

import hashlib
import re
from base64 import b32encode
from collections.abc import Iterable, Mapping
from typing import Final

from shared.api import keys
from shared.api.meta import ObjectMeta
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
_NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9.-]")

_Place = tuple[tuple[str, str], ...]
"""The labels of one part of a network with their values, from the top down to it."""


def discovered(
    types: Mapping[str, tuple[str, ...]], nodes: Mapping[str, Labels]
) -> dict[str, HyperNode]:
    """Return the HyperNodes of all networks by name; `types` as in config.Discovery."""
    found: dict[str, HyperNode] = {}
    for network, labels in sorted(types.items()):
        members: dict[_Place, set[str]] = {}
        for node, have in nodes.items():
            below = node
            for place in _places(labels, have):
                members.setdefault(place, set()).add(below)
                below = _name(network, labels, place)
        for place in sorted(members):
            one = _hypernode(network, labels, place, members[place])
            found[one.metadata.name] = one
    return found


def changes(
    wanted: Mapping[str, HyperNode], there: Iterable[HyperNode], *, source: str = SOURCE
) -> tuple[list[HyperNode], list[tuple[HyperNode, HyperNode]], list[HyperNode]]:
    """Return what to create, what to change into what, and what to delete.

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
        (ours[name], one)
        for name, one in wanted.items()
        if name in ours and not _is_as(ours[name], one)
    ]
    delete = [one for name, one in ours.items() if name not in wanted]
    return (
        sorted(create, key=_height),
        sorted(change, key=lambda pair: _height(pair[0])),
        sorted(delete, key=_height, reverse=True),
    )


def _is_as(there: HyperNode, wanted: HyperNode) -> bool:
    """Whether a HyperNode is what it should be; labels of others are theirs."""
    return (
        there.spec == wanted.spec
        and wanted.metadata.labels.items() <= there.metadata.labels.items()
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
    network: str, labels: tuple[str, ...], place: _Place, members: Iterable[str]
) -> HyperNode:
    tier = _tier(labels, place)
    label, value = place[-1]
    kind = MemberType.NODE if tier == 1 else MemberType.HYPERNODE
    return HyperNode(
        metadata=ObjectMeta(
            name=_name(network, labels, place),
            labels={label: value, keys.TOPOLOGY_SOURCE: SOURCE},
        ),
        spec=HyperNodeSpec(
            tier=tier,
            tier_name=label,
            members=tuple(
                Member(type=kind, selector=MemberSelector(exact_match=ExactMatch(name=name)))
                for name in sorted(members)
            ),
        ),
    )


def _tier(labels: tuple[str, ...], place: _Place) -> int:
    return len(labels) - labels.index(place[-1][0])


def _name(network: str, labels: tuple[str, ...], place: _Place) -> str:
    text = repr((network, place)).encode()
    suffix = b32encode(hashlib.blake2b(text, digest_size=5).digest()).decode().lower()[:5]
    return f"hypernode-{clean(network)}-tier{_tier(labels, place)}-{suffix}"


def clean(network: str) -> str:
    """Return the name of a network as it stands in names of objects, as Volcano writes it."""
    return _NOT_IN_NAMES.sub("-", network.lower())
