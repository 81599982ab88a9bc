"""Drawn states of nodes and native gangs, for a comparison with kube-scheduler."""

from random import Random
from typing import Final

import msgspec

NODES: Final = tuple(f"node-{number}" for number in range(6))
NODE_CPU: Final = 8
RACK: Final = "topology.example.com/rack"
ZONE: Final = "topology.example.com/zone"


class DrawnGang(msgspec.Struct, frozen=True, kw_only=True):
    """A gang: its PodGroup and the pods that come at once."""

    min_count: int
    """0: the basic policy."""
    key: str
    cpus: tuple[int, ...]
    """What each pod requests; 0 is a pod without requests."""
    labels: tuple[str, ...]
    """Rack that each pod selects, "" for none."""


class GangState(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes and gangs, which come one after the other."""

    labels: dict[str, dict[str, str | None]]
    used: dict[str, int]
    """Node → CPU that other pods hold."""
    closed: frozenset[str]
    """Nodes that are unschedulable."""
    gangs: tuple[DrawnGang, ...]


def draw(rng: Random) -> GangState:
    """Draw a state of six nodes and up to three gangs."""
    labels: dict[str, dict[str, str | None]] = {
        node: {
            RACK: rng.choice(("a", "b", "c", None)),
            ZONE: rng.choice(("x", "y")),
        }
        for node in NODES
    }
    return GangState(
        labels=labels,
        used={node: rng.choice((0, 0, 2, 4, 6, 7, 8)) for node in NODES},
        closed=frozenset(node for node in NODES if rng.random() < 0.1),
        gangs=tuple(_gang(rng) for _ in range(rng.randint(1, 3))),
    )


def _gang(rng: Random) -> DrawnGang:
    count = rng.randint(1, 8)
    sizes = (rng.randint(1, 4),) if rng.random() < 0.7 else (0, 1, 2, 3, 5)
    selects = rng.random() < 0.2
    return DrawnGang(
        min_count=0 if rng.random() < 0.15 else rng.randint(max(1, count - 2), count),
        key=rng.choice(("", "", RACK, ZONE)),
        cpus=tuple(rng.choice(sizes) for _ in range(count)),
        labels=tuple(rng.choice(("", "a", "b")) if selects else "" for _ in range(count)),
    )
