"""Cards of a node that pods share by slots, memory and cores, of any vendor; pure.

A kind of card adds registration, requests and the choice of a card (`vgpu_cards`, `npu_cards`).
Memory is in MiB, cores in the unit of the card's device plugin.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from pumice.plugins import POD_MAX
from shared.model.quantity import BadQuantity, units

SCORE: Final = 100.0
"""Score of a card that is full, or that no other pod uses."""
_DIGITS_MAX: Final = 15
_FIELDS: Final = 4


class Card(NamedTuple):
    """A card that may be assigned."""

    uuid: str
    slots: int
    """Number of containers that may share it."""
    memory: int
    type: str
    cores: int = 100
    network: int | None = None
    """Number of the network; cards of one network are connected."""
    sliced: bool | None = None
    """Whether the node's device plugin slices its cards by software; None: unknown."""


class CardPart(NamedTuple):
    """A container's part of a card."""

    uuid: str
    """The card; an instance of a card in MIG mode is `<card>[<geometry>-<position>]`."""
    type: str
    memory: int
    cores: int

    @property
    def card(self) -> str:
        """Return the card."""
        return self.uuid.partition("[")[0]

    @property
    def place(self) -> tuple[str, int] | None:
        """Return geometry and position of an instance, None for a part of the whole card."""
        group, _, position = self.uuid.partition("[")[2].removesuffix("]").rpartition("-")
        return (group, int(position)) if group and is_number(position) else None


Shares = Sequence[Sequence[CardPart]]
"""Parts of cards of each container that has some."""


class CardUsage(NamedTuple):
    """Used slots, memory and cores of a card, and the types and MIG instances of its shares."""

    slots: int = 0
    memory: int = 0
    cores: int = 0
    types: frozenset[str] = frozenset()
    instances: frozenset[tuple[str, int]] = frozenset()

    def plus(self, share: CardPart) -> "CardUsage":
        """Return the usage with one more share."""
        types = self.types if share.type in self.types else self.types | {share.type}
        place = share.place
        return CardUsage(
            self.slots + 1,
            self.memory + share.memory,
            self.cores + share.cores,
            types,
            self.instances if place is None else self.instances | {place},
        )


class CardChoice(NamedTuple):
    """The cards for one pod."""

    shares: tuple[tuple[CardPart, ...], ...]
    """Per container that asks for some."""
    score: float


def fits(card: Card, used: CardUsage, *, memory: int, cores: int, most_cores: int) -> bool:
    """Tell whether one more container fits on a card with a number of cores to assign.

    A container that requests all cores in percent gets the card alone. A card without free cores is
    full, even if it has free memory.
    """
    if used.slots >= card.slots or card.memory - used.memory < memory:
        return False
    if most_cores - used.cores < cores or (cores == most_cores == _PERCENT and used.slots):
        return False
    return bool(cores) or not most_cores or used.cores != most_cores


_PERCENT: Final = 100


def each(shares: Shares) -> Iterator[CardPart]:
    """Yield the parts of all containers."""
    return (share for container in shares for share in container)


def read_shares(text: str) -> tuple[tuple[CardPart, ...], ...]:
    """Return the shares that a pod's annotation names; none when it cannot be read."""
    containers = [
        tuple(share for part in container.split(":") if (share := _read(part)) is not None)
        for container in (text.split(";") if text else ())
    ]
    return tuple(containers) if any(containers) else ()


def _read(text: str) -> CardPart | None:
    fields = text.split(",")
    if len(fields) < _FIELDS or not (is_number(fields[2]) and is_number(fields[3])):
        return None
    return CardPart(fields[0], fields[1], int(fields[2]), int(fields[3]))


def show(container: Sequence[CardPart]) -> str:
    """Return the shares of one container as device plugins read them."""
    return "".join(f"{s.uuid},{s.type},{s.memory},{s.cores}:" for s in container)


def show_shares(containers: Shares) -> str:
    """Return shares as the device plugin of virtual GPUs reads them."""
    return ";".join(map(show, containers))


def is_number(text: str) -> bool:
    """Tell whether a text is digits, and not absurdly many."""
    return text.isdecimal() and len(text) <= _DIGITS_MAX


def amount_of(stated: Mapping[str, str | float], key: str, default: int) -> int:
    """Return a container's request of a resource. Raises `BadQuantity`."""
    if key not in stated:
        return default
    amount = units(stated[key])
    if amount < 0:
        raise BadQuantity(f"{key}: {stated[key]} is below 0")
    return min(amount, POD_MAX)
