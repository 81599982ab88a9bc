"""Arithmetic of virtual GPUs (DV2): what nodes register, what pods ask, which cards they get; pure.

Memory is in MiB and cores in percent of a card, as the device plugin counts them.
"""

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from services.scheduler.policy.vendors.cards import (
    SCORE,
    Card,
    CardChoice,
    CardPart,
    CardUsage,
    amount_of,
    fits,
    is_number,
)
from services.scheduler.policy.vendors.mig import Geometry, free_instance, memory_of
from shared.api import keys
from shared.api.core import Pod, PodSpec
from shared.model.numbers import parse_bool

NUMBER: Final = "volcano.sh/vgpu-number"
MEMORY: Final = "volcano.sh/vgpu-memory"
PERCENT: Final = "volcano.sh/vgpu-memory-percentage"
CORES: Final = "volcano.sh/vgpu-cores"
IDS: Final = "volcano.sh/vgpu-ids-new"
SPREAD_POLICY: Final = "volcano.sh/vgpu-podgroup-policy"
MODE: Final = "volcano.sh/vgpu-mode"
USE_UUID: Final = "volcano.sh/vgpu-use-gpuuuid"
NO_UUID: Final = "volcano.sh/vgpu-nouse-gpuuuid"
USE_TYPE: Final = "nvidia.com/use-gputype"
NO_TYPE: Final = "nvidia.com/nouse-gputype"
PREFERENCES: Final = (MODE, USE_UUID, NO_UUID, USE_TYPE, NO_TYPE, SPREAD_POLICY)
"""Annotations of pods that select cards."""
_WHOLE: Final = 100
MAKER: Final = "NVIDIA"
SHARED: Final = "hami-core"
CUT: Final = "mig"
"""Modes of cards: shared by software, or cut into instances as pods need them."""
_FIELDS: Final = 5
_SILENCE_S: Final = 60.0


class VGpuRequest(NamedTuple):
    """The request of one container."""

    number: int
    memory: int
    """0: by `percent`."""
    percent: int
    cores: int


def requests_of(spec: PodSpec) -> tuple[VGpuRequest, ...]:
    """Return what the containers ask for. Raises `BadQuantity`."""
    found = []
    for container in spec.containers:
        stated = {**container.resources.requests, **container.resources.limits}
        if NUMBER in stated or MEMORY in stated:
            memory = amount_of(stated, MEMORY, 0)
            percent = amount_of(stated, PERCENT, 0)
            found.append(
                VGpuRequest(
                    number=amount_of(stated, NUMBER, 1),
                    memory=memory,
                    percent=percent or _WHOLE,
                    cores=amount_of(stated, CORES, 0),
                )
            )
    return tuple(found)


class VGpuRequests(NamedTuple):
    """Requests of a pod, and the cards that it selects."""

    requests: tuple[VGpuRequest, ...] = ()
    preferences: Mapping[str, str] = {}
    group: str = ""
    """PodGroup of a pod that keeps off cards of its own group."""

    @classmethod
    def of(cls, pod: Pod) -> "VGpuRequests | None":
        """Return what a pod asks for or shows to have. Raises `BadQuantity`."""
        requests, annotations = requests_of(pod.spec), pod.metadata.annotations
        if not requests and not annotations.get(IDS):
            return None
        group = ""
        if annotations.get(SPREAD_POLICY) == "spread":
            group = annotations.get(keys.GROUP_NAME_VOLCANO) or annotations.get(keys.GROUP_NAME, "")
        return cls(
            requests,
            {key: annotations[key] for key in PREFERENCES if key in annotations},
            f"{pod.metadata.namespace}/{group}" if group else "",
        )

    @property
    def mode(self) -> str:
        """Return the mode in which its cards have to be; "": any."""
        return self.preferences.get(MODE, "")

    def takes(self, card: Card) -> bool:
        """Return whether a card is of a kind that the pod selects."""
        preferences = self.preferences
        kind = card.type.upper()
        if MAKER not in kind:
            return False
        if USE_UUID in preferences and card.uuid not in _listed(preferences[USE_UUID]):
            return False
        if NO_UUID in preferences and card.uuid in _listed(preferences[NO_UUID]):
            return False
        if USE_TYPE in preferences:
            return any(part.upper() in kind for part in preferences[USE_TYPE].split(","))
        return not any(part.upper() in kind for part in _listed(preferences.get(NO_TYPE, "")))


def choose(
    cards: Sequence[Card],
    usage: Mapping[str, CardUsage],
    requested: VGpuRequests,
    closed: Iterable[str],
    policy: str,
    *,
    geometries: Mapping[str, Sequence[Geometry]] | None = None,
) -> CardChoice | None:
    """Return cards for one pod, None when they do not suffice.

    Of cards with `geometries` (by type) it gets MIG instances.

    `closed` cards are not given. With `binpack` the fullest cards come first, with `spread` the
    least shared, else the last ones. The score sums over cards: their part of memory in use, or
    a constant for each card that no other pod has.
    """
    used = dict(usage)
    if geometries is not None:
        for card in cards:
            of_card, taken = geometries.get(card.type, ()), used[card.uuid]
            used[card.uuid] = taken._replace(memory=memory_of(of_card, taken.instances))
    shut = set(closed)
    score = 0.0
    chosen = []
    for request in requested.requests:
        shares: list[CardPart] = []
        for at in _order(cards, used, policy):
            if len(shares) == request.number:
                break
            card = cards[at]
            share = _share(card, used[card.uuid], request)
            if share is not None and geometries is not None:
                share = _instance(geometries.get(card.type, ()), used[card.uuid], share)
            if share is not None and card.uuid not in shut and requested.takes(card):
                used[card.uuid] = used[card.uuid].plus(share)
                shares.append(share)
                score += _points(card, used[card.uuid], policy)
        if len(shares) < request.number:
            return None
        chosen.append(tuple(shares))
    return CardChoice(tuple(chosen), score)


def _order(cards: Sequence[Card], used: Mapping[str, CardUsage], policy: str) -> list[int]:
    places = range(len(cards))
    if policy == "binpack":
        return sorted(places, key=lambda at: (-used[cards[at].uuid].memory, at))
    if policy == "spread":
        return sorted(places, key=lambda at: (used[cards[at].uuid].slots, at))
    return list(reversed(places))


def _share(card: Card, used: CardUsage, request: VGpuRequest) -> CardPart | None:
    memory = request.memory or card.memory * request.percent // _WHOLE
    if not fits(card, used, memory=memory, cores=request.cores, most_cores=_WHOLE):
        return None
    return CardPart(card.uuid, MAKER, memory, request.cores)


def _instance(geometries: Sequence[Geometry], used: CardUsage, share: CardPart) -> CardPart | None:
    """Return the instance of a card that serves a share of it."""
    found = free_instance(geometries, used.instances, share.memory)
    if found is None:
        return None
    group, position = found.place
    return share._replace(uuid=f"{share.uuid}[{group}-{position}]")


def _points(card: Card, used: CardUsage, policy: str) -> float:
    if policy == "binpack":
        return SCORE * used.memory / card.memory if card.memory else 0.0
    return SCORE if policy == "spread" and used.slots == 1 else 0.0


# --- annotations ---------------------------------------------------------------------------------


def cards_of(text: str) -> tuple[Card, ...]:
    """Return the healthy cards that a node registers; none when the text cannot be read.

    Cards are separated by `:`, their fields by `,`: uuid, slots, memory, type, healthy, mode.
    """
    cards = []
    for part in text.split(":"):
        fields = part.split(",")
        if len(fields) < _FIELDS:
            if part.strip():
                return ()
            continue
        uuid, slots, memory, kind, healthy = (field.strip() for field in fields[:_FIELDS])
        if not (is_number(slots) and is_number(memory)):
            return ()
        if parse_bool(healthy.lower()):
            cards.append(Card(uuid, int(slots), int(memory), kind))
    return tuple(cards)


def are_cut(text: str) -> bool:
    """Tell whether a node registers cards in MIG mode."""
    parts = (part.split(",") for part in text.split(":"))
    return any(len(fields) > _FIELDS and fields[_FIELDS].strip() == CUT for fields in parts)


def is_present(handshake: str, now: float) -> bool:
    """Tell whether the device plugin answers: not deleted, and not silent for a minute."""
    if "Deleted" in handshake:
        return False
    if "Requesting" not in handshake:
        return True
    try:
        written = handshake.partition("_")[2] + " +0000"
        reported_at = dt.datetime.strptime(written, "%Y.%m.%d %H:%M:%S %z")
    except ValueError:
        return False
    return now - reported_at.timestamp() <= _SILENCE_S


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
