"""HyperNodes by discovery: from labels of nodes (H04), or from the fabric manager UFM (H03).

By labels: nodes that agree in the labels of a level and of all levels above it are one HyperNode.
The lowest level has tier 1 and names its nodes, those above name the HyperNodes below them. Each
carries the label that it stands for, and the key of it as the name of its tier, by which jobs may
ask for it.

⚠ A name ends in five letters as in Volcano, but they follow from the labels instead of being
random: another discovery of the same network, after a restart too, finds the same names.

By NVIDIA's UFM: it lists the ports of an InfiniBand fabric (`GET /ufmRest/resources/ports`). A port
of a computer, which says so in its description, tells which computer it belongs to (`system_name`)
and which switch is at its other end (`peer_node_name`). Computers that share a switch, directly or
through others that do, are one leaf of tier 1: with several rails a computer is at several
switches, which then count as one. Above all leaves is one spine of tier 2.

⚠ Computers that are not nodes of the cluster are ignored: storage that is connected to every switch
would merge all leaves. Leaves are numbered in the order of their switches, as in Volcano.
"""

import hashlib
import re
from base64 import b32encode
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

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

LABEL_SOURCE: Final = "label"
UFM_SOURCE: Final = "ufm"
_NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9.-]")

_Place = tuple[tuple[str, str], ...]
"""The labels of one part of a network with their values, from the top down to it."""


def from_labels(
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
            name, tier = _name(network, labels, place), _tier(labels, place)
            found[name] = _hypernode(name, tier, sorted(members[place]), LABEL_SOURCE, place[-1])
    return found


def changes(
    desired: Mapping[str, HyperNode], there: Iterable[HyperNode], *, source: str = LABEL_SOURCE
) -> tuple[list[HyperNode], list[tuple[HyperNode, HyperNode]], list[HyperNode]]:
    """Return the HyperNodes to create, to change and to delete.

    Sorted bottom up, deletions top down, so that no HyperNode names a missing one. Only HyperNodes
    of `source` are touched.
    """
    ours = {
        one.metadata.name: one
        for one in there
        if one.metadata.labels.get(keys.TOPOLOGY_SOURCE) == source
    }
    create = [one for name, one in desired.items() if name not in ours]
    change = [
        (ours[name], one)
        for name, one in desired.items()
        if name in ours and not _is_as(ours[name], one)
    ]
    delete = [one for name, one in ours.items() if name not in desired]
    return (
        sorted(create, key=_height),
        sorted(change, key=lambda pair: _height(pair[0])),
        sorted(delete, key=_height, reverse=True),
    )


def _is_as(there: HyperNode, desired: HyperNode) -> bool:
    """Whether a HyperNode is as desired, ignoring labels of other writers."""
    return (
        there.spec == desired.spec
        and desired.metadata.labels.items() <= there.metadata.labels.items()
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
    name: str,
    tier: int,
    members: Iterable[str],
    source: str,
    label: tuple[str, str] | None = None,
) -> HyperNode:
    """Return a HyperNode of nodes (tier 1) or of HyperNodes; `label` is its label."""
    kind = MemberType.NODE if tier == 1 else MemberType.HYPERNODE
    return HyperNode(
        metadata=ObjectMeta(
            name=name,
            labels={**dict([label] if label else []), keys.TOPOLOGY_SOURCE: source},
        ),
        spec=HyperNodeSpec(
            tier=tier,
            tier_name=label[0] if label else "",
            members=tuple(
                Member(type=kind, selector=MemberSelector(exact_match=ExactMatch(name=member)))
                for member in members
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
    """Return the name of a network as Volcano writes it into names of objects."""
    return _NOT_IN_NAMES.sub("-", network.lower())


PORTS_PATH: Final = "/ufmRest/resources/ports"
_COMPUTER: Final = "Computer"
_SPINE: Final = "spine-hn"


class FabricPort(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a computer's port that are read; UFM sends many more."""

    description: str = ""
    system_name: str = ""
    peer_node_name: str = ""


def ports(body: bytes) -> list[FabricPort]:
    """Return the ports of computers in UFM's answer; DecodeError when it is none."""
    found = msgspec.json.decode(body, type=list[FabricPort])
    return [port for port in found if _COMPUTER in port.description and port.peer_node_name]


def from_ports(found: Iterable[FabricPort], nodes: Collection[str]) -> dict[str, HyperNode]:
    """Return the HyperNodes of a fabric by name, over the existing nodes."""
    made = {}
    names = []
    for number, members in enumerate(_leaves(found, nodes)):
        name = f"leaf-hn-{number}"
        names.append(name)
        made[name] = _hypernode(name, 1, members, UFM_SOURCE)
    if names:
        made[_SPINE] = _hypernode(_SPINE, 2, names, UFM_SOURCE)
    return made


def _leaves(found: Iterable[FabricPort], nodes: Collection[str]) -> list[list[str]]:
    """Return the nodes of each leaf in their order; leaves in the order of their first switch."""
    switches: dict[str, dict[str, None]] = {}
    for port in found:
        if port.system_name in nodes:
            switches.setdefault(port.peer_node_name, {})[port.system_name] = None
    leaf_of: dict[str, set[str]] = {}
    for hosts in switches.values():
        together = set(hosts).union(*(leaf_of.get(host, ()) for host in hosts))
        leaf_of.update(dict.fromkeys(together, together))
    leaves = [leaf_of[next(iter(hosts))] for _, hosts in sorted(switches.items())]
    return list({id(leaf): sorted(leaf) for leaf in leaves}.values())
