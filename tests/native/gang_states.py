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


class DrawnVictims(msgspec.Struct, frozen=True, kw_only=True):
    """A group that runs and is less important."""

    min_count: int
    together: bool
    """Whether its pods are disrupted together."""
    pods: tuple[tuple[int, str], ...]
    """CPU and node of each."""


class PreemptionState(msgspec.Struct, frozen=True, kw_only=True):
    """Groups that run, and an important gang that comes."""

    groups: tuple[DrawnVictims, ...]
    cpus: tuple[int, ...]
    """What each pod of the gang requests."""


def draw_preemption(rng: Random) -> PreemptionState:
    """Draw groups that leave little room on the six nodes, and a gang of one to six pods."""
    free = dict.fromkeys(NODES, NODE_CPU)
    groups = []
    for _ in range(rng.randint(2, 5)):
        pods = []
        for _ in range(rng.randint(1, 6)):
            cpu = rng.randint(1, 5)
            open_ = [node for node in NODES if free[node] >= cpu]
            if open_:
                node = rng.choice(open_)
                free[node] -= cpu
                pods.append((cpu, node))
        if pods:
            least = rng.randint(1, len(pods))
            together = rng.random() < 0.6
            groups.append(DrawnVictims(min_count=least, together=together, pods=tuple(pods)))
    cpus = (rng.randint(2, NODE_CPU + 1),) * rng.randint(1, 6)
    return PreemptionState(groups=tuple(groups), cpus=cpus)


class ClaimState(msgspec.Struct, frozen=True, kw_only=True):
    """Devices of nodes, and a gang whose pods share one claim."""

    devices: dict[str, int]
    used: dict[str, int]
    """Node → CPU that other pods hold."""
    count: int
    """Devices of the claim."""
    cpus: tuple[int, ...]
    min_count: int


def draw_claims(rng: Random) -> ClaimState:
    """Draw a state in which the pods have to share the node of their devices."""
    pods = rng.randint(1, 4)
    return ClaimState(
        devices={node: rng.choice((0, 0, 0, 1, 2)) for node in NODES},
        used={node: rng.choice((2, 4, 6, 7)) for node in NODES},
        count=rng.randint(1, 2),
        cpus=(rng.randint(1, 3),) * pods,
        min_count=rng.randint(max(1, pods - 1), pods),
    )


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
