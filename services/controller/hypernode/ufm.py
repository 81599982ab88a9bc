"""HyperNodes that NVIDIA's fabric manager UFM tells of (H03).

UFM lists the ports of an InfiniBand fabric (`GET /ufmRest/resources/ports`). A port of a computer,
which says so in its description, tells which computer it belongs to (`system_name`) and which
switch is at its other end (`peer_node_name`). Computers that share a switch, directly or through
others that do, are one leaf of tier 1: with several rails a computer is at several switches, which
then count as one. Above all leaves is one spine of tier 2.

⚠ Computers that are no nodes of the cluster are left out: storage that is at every switch would
make one leaf of all. Leaves are numbered in the order of their switches, as in Volcano.
"""

from collections.abc import Collection, Iterable
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

SOURCE: Final = "ufm"
PORTS_PATH: Final = "/ufmRest/resources/ports"
_COMPUTER: Final = "Computer"
_SPINE: Final = "spine-hn"


class Port(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a computer's port that are read; UFM sends many more."""

    description: str = ""
    system_name: str = ""
    peer_node_name: str = ""


def ports(body: bytes) -> list[Port]:
    """Return the ports of computers in UFM's answer; DecodeError when it is none."""
    found = msgspec.json.decode(body, type=list[Port])
    return [port for port in found if _COMPUTER in port.description and port.peer_node_name]


def discovered(found: Iterable[Port], nodes: Collection[str]) -> dict[str, HyperNode]:
    """Return the HyperNodes of a fabric by name, over the nodes that there are."""
    made = {}
    names = []
    for number, members in enumerate(_leaves(found, nodes)):
        name = f"leaf-hn-{number}"
        names.append(name)
        made[name] = _hypernode(name, 1, MemberType.NODE, members)
    if names:
        made[_SPINE] = _hypernode(_SPINE, 2, MemberType.HYPERNODE, names)
    return made


def _leaves(found: Iterable[Port], nodes: Collection[str]) -> list[list[str]]:
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


def _hypernode(name: str, tier: int, kind: MemberType, members: Iterable[str]) -> HyperNode:
    return HyperNode(
        metadata=ObjectMeta(name=name, labels={keys.TOPOLOGY_SOURCE: SOURCE}),
        spec=HyperNodeSpec(
            tier=tier,
            members=tuple(
                Member(type=kind, selector=MemberSelector(exact_match=ExactMatch(name=member)))
                for member in members
            ),
        ),
    )
