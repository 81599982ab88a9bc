"""Arithmetic of Ascend NPUs as HAMi shares them (DV3): what nodes register, what pods ask; pure.

A pod gets parts of NPUs in one of two ways. Without a word it gets templates: memory is rounded up
to the next of its chip's templates, and a container that asks for several NPUs gets whole ones.
With the annotation `huawei.com/vnpu-mode: hami-core` it gets the memory and the percentage of cores
that it asks for, on nodes whose device plugin slices its cards by software.
"""

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from msgspec import Meta, Struct

from services.scheduler.policy.vendors.cards import (
    SCORE,
    Card,
    CardChoice,
    CardPart,
    CardUsage,
    Shares,
    amount_of,
    fits,
    read_shares,
    show,
)
from services.scheduler.policy.vendors.npu_chips import (
    CORES_SUFFIX,
    FAMILY,
    HUAWEI,
    MEMORY_SUFFIX,
    Chip,
    ChipTable,
)
from shared.api.core import Node, Pod, PodSpec
from shared.model.quantity import BadQuantity, units

MODE: Final = "huawei.com/vnpu-mode"
SLICED: Final = "hami-core"
_SLICING: Final = "hami-vnpu-core"
"""Annotation of a node: whether its device plugin slices its cards by software."""
_REGISTER: Final = "hami.io/node-register-"
_ALLOCATED: Final = "-devices-allocated"
_PREFIX: Final = "hami.io/"
_PREFIX_OF_CHIPS: Final = _PREFIX + FAMILY
_OF_CHIPS: Final = HUAWEI + FAMILY
_WIRED: Final = "Ascend910"
"""Chips whose cards are wired to each other in networks."""
_WIRED_SCORE: Final = 10.0
_WHOLE: Final = 100

_Int32 = Annotated[int, Meta(ge=0, le=2**31 - 1)]


# --- requests ------------------------------------------------------------------------------------


class NpuRequest(NamedTuple):
    """The request of one container for NPUs of one kind."""

    chip: str
    number: int
    memory: int
    """0: whole cards."""
    cores: int
    counted: bool
    """Whether the number is stated, and so looked at where a node offers such a resource."""


class NpuWant(NamedTuple):
    """Requests of a pod, in the order of kinds and containers."""

    requests: tuple[NpuRequest, ...] = ()
    sliced: bool = False

    @classmethod
    def of(cls, pod: Pod) -> "NpuWant | None":
        """Return what a pod asks for or shows to have. Raises `BadQuantity`."""
        requests, annotations = requests_of(pod.spec), pod.metadata.annotations
        if not requests and not _shares_annotations(annotations):
            return None
        return cls(requests, annotations.get(MODE) == SLICED)


def is_part(resource: str) -> bool:
    """Tell whether a resource is memory or cores of NPUs, which no node offers."""
    return resource.startswith(_OF_CHIPS) and resource.endswith((MEMORY_SUFFIX, CORES_SUFFIX))


def requests_of(spec: PodSpec) -> tuple[NpuRequest, ...]:
    """Return what the containers ask for. Raises `BadQuantity`."""
    found = []
    for container in spec.containers:
        requests, limits = container.resources.requests, container.resources.limits
        names = [name for name in (*requests, *limits) if name.startswith(_OF_CHIPS)]
        if not names:  # most pods ask for none, and each pod is looked at
            continue
        stated = {**requests, **limits}
        for chip in _chips_in(names):
            resource = HUAWEI + chip
            request = NpuRequest(
                chip=chip,
                number=amount_of(stated, resource, 1),
                memory=amount_of(stated, resource + MEMORY_SUFFIX, 0),
                cores=amount_of(stated, resource + CORES_SUFFIX, 0),
                counted=resource in stated,
            )
            if request.number:
                found.append(request)
    found.sort(key=attrgetter("chip"))
    return tuple(found)


def _chips_in(names: Sequence[str]) -> set[str]:
    whole = {name for name in names if not is_part(name)}
    memory = {name.removesuffix(MEMORY_SUFFIX) for name in names if name.endswith(MEMORY_SUFFIX)}
    return {name.removeprefix(HUAWEI) for name in whole | memory}


# --- choice --------------------------------------------------------------------------------------


def refuses(table: ChipTable, wanted_chips: NpuWant) -> bool:
    """Tell whether no node can ever give a pod what it asks for.

    By templates a container gets several NPUs only whole, and none of more memory than one has.
    """
    return not wanted_chips.sliced and any(
        chip is not None and request.memory and not _is_given(chip, request)
        for request in wanted_chips.requests
        for chip in (table.chip(request.chip),)
    )


def _is_given(chip: Chip, request: NpuRequest) -> bool:
    rounded = chip.rounded(request.memory)
    return rounded is not None and (request.number == 1 or rounded[0] == chip.memory_allocatable)


def choose(
    cards: Sequence[Card],
    usage: Mapping[str, CardUsage],
    wanted_chips: NpuWant,
    table: ChipTable,
    policy: str,
) -> CardChoice | None:
    """Return cards for one pod, None when they do not suffice.

    No two containers of a pod share a card. A kind of which the node has registered no card, and
    one that the table does not have, is given by the number that the node offers.
    """
    chosen: list[tuple[CardPart, ...]] = []
    score = 0.0
    for chip_name in dict.fromkeys(request.chip for request in wanted_chips.requests):
        requests = [request for request in wanted_chips.requests if request.chip == chip_name]
        chip, own = table.chip(chip_name), [card for card in cards if card.type == chip_name]
        if chip is None or not own:
            if all(request.counted for request in requests):
                continue
            return None
        found = _of_one_kind(
            own, usage, requests, _CardRules(chip, table, wanted_chips.sliced, policy)
        )
        if found is None:
            return None
        chosen += found.shares
        score += found.score
    return CardChoice(tuple(chosen), score)


class _CardRules(NamedTuple):
    """How NPUs of one kind are given to a pod."""

    chip: Chip
    table: ChipTable
    sliced: bool
    policy: str

    def share(self, card: Card, used: CardUsage, request: NpuRequest) -> CardPart | None:
        """Return a part of a card, None when the card has no room for it."""
        if self.sliced and not (self.table.sliced if card.sliced is None else card.sliced):
            return None
        memory = request.memory or card.memory
        if not self.sliced:
            rounded = self.chip.rounded(memory)
            memory = rounded[0] if rounded else 0
            if not rounded or (request.number > 1 and memory != self.chip.memory_allocatable):
                return None
        most = _WHOLE if self.sliced else card.cores
        if not fits(card, used, memory=memory, cores=request.cores, most_cores=most):
            return None
        return CardPart(card.uuid, card.type, memory, request.cores)

    def points(self, card: Card, used: CardUsage) -> float:
        """Return the points of a card as it is before it is given."""
        if self.policy == "binpack":
            return SCORE * used.memory / card.memory if card.memory else 0.0
        return SCORE if self.policy == "spread" and card.memory and not used.slots else 0.0


def _of_one_kind(
    cards: Sequence[Card],
    usage: Mapping[str, CardUsage],
    requests: Sequence[NpuRequest],
    rules: _CardRules,
) -> CardChoice | None:
    order = sorted(cards, key=lambda card: -rules.points(card, usage[card.uuid]))
    wired = requests[0].chip.startswith(_WIRED) and all(c.network is not None for c in cards)
    chosen: list[tuple[CardPart, ...]] = []
    given: list[Card] = []
    score = 0.0
    for request in requests:
        rest = [card for card in order if card not in given]
        free = [(c, s) for c in rest if (s := rules.share(c, usage[c.uuid], request)) is not None]
        if len(free) < request.number:
            return None
        taken = (_by_network(free) if wired else free)[: request.number]
        score += rules.points(taken[0][0], usage[taken[0][0].uuid])
        given += [card for card, _ in taken]
        chosen.append(tuple(share for _, share in taken))
    return CardChoice(tuple(chosen), score + (_togetherness(given) if wired else 0.0))


def _by_network(free: Sequence[tuple[Card, CardPart]]) -> list[tuple[Card, CardPart]]:
    """Return cards with those first whose network has the most of them."""
    networks = [card.network for card, _ in free]
    first = {network: networks.index(network) for network in networks}
    return sorted(free, key=lambda at: (-networks.count(at[0].network), first[at[0].network]))


def _togetherness(cards: Sequence[Card]) -> float:
    """Return points for the part of the cards that is in one network."""
    networks = [card.network for card in cards]
    return _WIRED_SCORE * max(map(networks.count, networks)) / len(networks)


# --- annotations ---------------------------------------------------------------------------------


class _CardTopology(Struct):
    network: Any = msgspec.field(name="NetworkID", default=None)


class _Registered(Struct):
    id: str = ""
    count: _Int32 = 0
    devmem: _Int32 = 0
    devcore: _Int32 = 0
    custominfo: _CardTopology | None = None


_DECODER: Final = msgspec.json.Decoder(list[_Registered])


def cards_of(node: Node) -> tuple[Card, ...]:
    """Return the NPUs that a node registers and offers; a list that cannot be read has none."""
    annotations = node.metadata.annotations
    slicing = annotations.get(_SLICING)
    cards: list[Card] = []
    for key in sorted(annotations):
        chip = key.removeprefix(_REGISTER)
        if key.startswith(_REGISTER + FAMILY) and _offers(node, HUAWEI + chip):
            sliced = None if slicing is None else slicing == "true"
            cards += _cards_in(annotations[key], chip, sliced)
    return tuple(cards)


def _offers(node: Node, resource: str) -> bool:
    try:
        return units(node.status.allocatable.get(resource, 0)) > 0
    except BadQuantity:
        return False


def _cards_in(text: str, chip: str, sliced: bool | None) -> Iterator[Card]:
    try:
        listed = _DECODER.decode(text)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return
    for found in {each.id: each for each in listed}.values():
        yield Card(
            found.id, found.count, found.devmem, chip, found.devcore, _network(found), sliced
        )


def _network(found: _Registered) -> int | None:
    number = found.custominfo.network if found.custominfo else None
    return int(number) if isinstance(number, int | float) else None


def _shares_annotations(annotations: Mapping[str, str]) -> list[str]:
    named = [key for key in annotations if key.startswith(_PREFIX_OF_CHIPS)]
    return sorted(key for key in named if key.endswith(_ALLOCATED)) if named else named


def shown_shares(annotations: Mapping[str, str]) -> Shares:
    """Return the NPUs that a pod's annotations say it has."""
    return tuple(
        container
        for key in _shares_annotations(annotations)
        for container in read_shares(annotations[key])
        if container
    )


class _Slice(Struct, omit_defaults=True):
    uuid: str = msgspec.field(name="UUID")
    temp: str = ""
    memory: int = 0
    core: int = 0


def annotations_of(
    shares: Shares, node: str, now_s: float, table: ChipTable, *, sliced: bool
) -> Mapping[str, str]:
    """Return what the device plugin of a node reads of a pod that is bound to it."""
    seconds = str(int(now_s))
    annotations = {
        "hami.io/vgpu-node": node,
        "hami.io/vgpu-time": seconds,
        "hami.io/bind-phase": "allocating",
        "hami.io/bind-time": seconds,
        "predicate-time": seconds,
    }
    for chip_name in dict.fromkeys(share.type for container in shares for share in container):
        own = [container for container in shares if container and container[0].type == chip_name]
        shown = "".join(f"{show(container)};" for container in own)
        annotations[f"{_PREFIX}{chip_name}-devices-to-allocate"] = shown
        annotations[f"{_PREFIX}{chip_name}{_ALLOCATED}"] = shown
        slices = [_slice(share, table, sliced=sliced) for each in own for share in each]
        annotations[HUAWEI + chip_name] = msgspec.json.encode(slices).decode()
    return annotations


def _slice(share: CardPart, table: ChipTable, *, sliced: bool) -> _Slice:
    if sliced:
        return _Slice(share.uuid, memory=share.memory, core=share.cores)
    chip = table.chip(share.type)
    rounded = chip.rounded(share.memory) if chip else None
    return _Slice(share.uuid, temp=rounded[1] if rounded else "")
