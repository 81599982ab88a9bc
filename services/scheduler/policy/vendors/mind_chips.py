"""Arithmetic of Ascend 310P NPUs as MindCluster cuts them (DV3): cores, CPUs, video units; pure.

A pod asks for AI cores. A multiple of a chip's cores is whole chips; one, two or four cores are a
template, chosen by the labels `vnpu-level` and `vnpu-dvpp` (the video units of a chip, which one of
its parts may have). Cores are those of a card (`cards.Card`), AI CPUs stand in its memory, and the
type of a share is its template, "" for a whole chip.
"""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct, field

from pumice.plugins import POD_MAX
from services.scheduler.policy.vendors.cards import (
    Card,
    CardChoice,
    CardPart,
    CardUsage,
    Shares,
    each,
)
from shared.api.core import Node, Pod
from shared.model.numbers import whole
from shared.model.quantity import BadQuantity, units

CORES: Final = "huawei.com/npu-core"
"""The resource, and the annotation of a pod with the chips that it has."""
REAL: Final = "huawei.com/AscendReal"
"""Annotation of a pod: the part that the device plugin has made for it."""
CHIP: Final = "Ascend310P"
_CHIPS: Final = f"huawei.com/{CHIP}"
_KIND: Final = ("ring-controller.atlas", "ascend-310P")
_BASE: Final = "baseDeviceInfos"
_CPUS: Final = {8: 7, 10: 7}
"""Cores of a chip → its AI CPUs."""
_YES, _NO, _NULL = "yes", "no", "null"
_SCORE: Final = 8.0


class _Part(NamedTuple):
    cores: int
    cpus: int
    video: str


_PARTS: Final = {
    "vir01": _Part(1, 1, _NULL),
    "vir02": _Part(2, 2, _NULL),
    "vir02_1c": _Part(2, 1, _NULL),
    "vir04": _Part(4, 4, _NULL),
    "vir04_3c": _Part(4, 3, _NULL),
    "vir04_3c_ndvpp": _Part(4, 3, _NO),
    "vir04_4c_dvpp": _Part(4, 4, _YES),
}
_SMALLER: Final = {"vir02": "vir02_1c", "vir04": "vir04_3c"}
"""Templates that give way to one with fewer CPUs where a node has no room for them."""


class ChipWant(NamedTuple):
    """AI cores that a pod asks for, and the template for less than a chip."""

    cores: int = 0
    template: str = ""
    """"": none has so many cores, or the labels say what no template is."""

    @classmethod
    def of(cls, pod: Pod) -> "ChipWant | None":
        """Return what a pod asks for or shows to have. Raises `BadQuantity`."""
        cores = _asked(pod)
        if cores:
            return cls(cores, _template(cores, pod.metadata.labels))
        return cls() if shown_chips(pod.metadata.annotations) else None


def _asked(pod: Pod) -> int:
    label, value = _KIND
    limited = any(CORES in container.resources.limits for container in pod.spec.containers)
    if pod.metadata.labels.get(label) != value or not limited:
        return 0
    for container in pod.spec.containers:
        stated = {**container.resources.limits, **container.resources.requests}
        amount = units(stated.get(CORES, 0))
        if amount < 0:
            raise BadQuantity(f"{CORES}: {stated[CORES]} is below 0")
        if amount:
            return min(amount, POD_MAX)
    return 0


def _template(cores: int, labels: Mapping[str, str]) -> str:
    video, high = labels.get("vnpu-dvpp", _NULL), labels.get("vnpu-level") == "high"
    if video not in {_YES, _NO, _NULL}:
        return ""
    of_four = {_YES: "vir04_4c_dvpp", _NO: "vir04_3c_ndvpp"}
    names = {
        1: "vir01",
        2: "vir02" if high else "vir02_1c",
        4: of_four.get(video, "vir04" if high else "vir04_3c"),
    }
    return names.get(cores, "")


# --- choice --------------------------------------------------------------------------------------


class PluginWork(NamedTuple):
    """Unfinished work of the device plugin of a node."""

    templates: AbstractSet[str] = frozenset()
    """Of pods whose part is not made yet: it makes parts of one template at a time."""
    changing: AbstractSet[str] = frozenset()
    """Chips with such a pod of an earlier session: no other part is cut from them meanwhile."""
    groups: Mapping[str, int] = {}
    """Chip → groups of parts that it is cut into."""


def choose(
    cards: Sequence[Card], usage: Mapping[str, CardUsage], request: ChipWant, work: PluginWork
) -> CardChoice | None:
    """Return chips for one pod, None when they do not suffice.

    Of the chips with room that with the least of it is taken, and whole ones in their order. The
    score is higher the fuller a node is, and where a template need not give way to a smaller one.
    """
    if not cards or not request.cores:
        return None
    if request.cores % cards[0].cores == 0:
        return _whole(cards, usage, request, work)
    for template in (request.template, _SMALLER.get(request.template, "")):
        card = _with_room(cards, usage, template, work) if template else None
        if card is not None:
            if work.templates - {template}:
                return None
            part = _PARTS[template]
            share = CardPart(card.uuid, template, part.cpus, part.cores)
            bonus = _SCORE if template == request.template else 0.0
            return CardChoice(((share,),), bonus + _fullness(cards, usage))
    return None


def _whole(
    cards: Sequence[Card], usage: Mapping[str, CardUsage], request: ChipWant, work: PluginWork
) -> CardChoice | None:
    number = request.cores // cards[0].cores
    free = [card for card in cards if not usage[card.uuid].slots]
    if len(free) < number or work.templates - {""}:
        return None
    shares = tuple(CardPart(card.uuid, "", card.memory, card.cores) for card in free[:number])
    return CardChoice((shares,), _SCORE + _fullness(cards, usage))


def _with_room(
    cards: Sequence[Card], usage: Mapping[str, CardUsage], template: str, work: PluginWork
) -> Card | None:
    found = [card for card in cards if _has_room(card, usage[card.uuid], _PARTS[template], work)]
    return min(found, key=lambda card: _room(card, usage[card.uuid]), default=None)


def _has_room(card: Card, used: CardUsage, part: _Part, work: PluginWork) -> bool:
    cores, cpus = _room(card, used)
    groups = work.groups.get(card.uuid, 0)
    return (
        card.uuid not in work.changing
        and cores >= part.cores
        and cpus >= part.cpus
        and not (groups == 3 and part.cores >= 4)  # noqa: PLR2004 - a fourth group has two cores
        and not (groups == 4 and part.cores >= 2)  # noqa: PLR2004 - what is left has one core
        and _suits(part.video, used)
    )


def _room(card: Card, used: CardUsage) -> tuple[int, int]:
    if "" in used.types:
        return 0, 0
    return card.cores - used.cores, card.memory - used.memory


def _suits(video: str, used: CardUsage) -> bool:
    """Return whether a chip has the free video units that a part needs.

    A part without a word does not know, so it is let onto no chip whose units a part has.
    """
    video_modes = {_PARTS[template].video for template in used.types if template in _PARTS}
    if video == _YES:
        return not video_modes & {_YES, _NULL}
    return video == _NO or _YES not in video_modes


def _fullness(cards: Sequence[Card], usage: Mapping[str, CardUsage]) -> float:
    free = sum(_room(card, usage[card.uuid])[0] for card in cards)
    return _SCORE * (1 - free / sum(card.cores for card in cards))


# --- annotations ---------------------------------------------------------------------------------


def shown_chips(annotations: Mapping[str, str]) -> Shares:
    """Return the chips that a pod's annotations say it has.

    `0,1` are whole ones, `0-vir04` is a part; `Ascend310P-0` is a chip that the device plugin gave
    out by number.
    """
    stated = annotations.get(CORES, "")
    number, dash, template = stated.partition("-")
    if dash:
        part = _PARTS.get(template)
        known = part is not None and whole(number) is not None
        return ((CardPart(number, template, part.cpus, part.cores),),) if part and known else ()
    ids = stated.split(",") if stated else list(_ids(annotations.get(_CHIPS, "").split(",")))
    shares = tuple(CardPart(each, "", 0, 0) for each in ids if whole(each) is not None)
    return (shares,) if shares else ()


def annotations_of(shares: Shares, now_s: float) -> Mapping[str, str]:
    """Return what the device plugin of a node reads of a pod that is bound to it."""
    assigned = list(each(shares))
    parts = [f"{share.uuid}-{share.type}" if share.type else share.uuid for share in assigned]
    return {"predicate-time": str(int(now_s * 1e9)), CORES: ",".join(parts)}


def groups_in(real: str) -> str:
    """Return the group in the name of a part, `Ascend310P-2c.1cpu-105-0_3`; "": none."""
    _, mark, group = real.rpartition("_")
    return group if mark and whole(group) is not None else ""


# --- nodes ---------------------------------------------------------------------------------------


class DeviceList(Struct, frozen=True):
    """A node's chips in a ConfigMap of MindCluster."""

    devices: Mapping[str, str] = field(name="DeviceList", default_factory=dict)


class MindNodeStatus(Struct, frozen=True):
    """A node's status in a ConfigMap of MindCluster."""

    status: str = field(name="NodeStatus", default="")


APART: Final = "PreSeparate"
"""Status of a node that gets no NPU pods."""


def chips_of(node: Node, reported: DeviceList | None) -> tuple[Card, ...]:
    """Return the sound chips of a node; none of a node that is not labelled as one with 310Ps."""
    cores = _cores_per_chip(node)
    if not cores:
        return ()
    listed = reported.devices if reported else {}
    annotations = node.metadata.annotations
    names = _base(annotations.get(_BASE, "")) if _CHIPS in listed else _names(annotations, _CHIPS)
    broken = {
        name
        for suffix in ("-Unhealthy", "-Recovering")
        for name in (*_names(listed, _CHIPS + suffix), *_names(annotations, _CHIPS + suffix))
    }
    ids = sorted(set(map(int, _ids(set(names) - broken))))
    return tuple(Card(str(at), cores, _CPUS[cores], CHIP, cores) for at in ids)


def _cores_per_chip(node: Node) -> int:
    """Return the cores of each chip; 0 of a node that this is not known of."""
    labels = node.metadata.labels
    maker = labels.get("accelerator", "").split("-")
    server = labels.get("servertype", "").split("-")
    if maker[1:2] != [CHIP] or "node.kubernetes.io/npu.chip.name" not in labels:
        return 0
    cores = whole(server[1]) if len(server) > 1 else None
    try:
        total = units(node.status.capacity.get(CORES, 0))
    except BadQuantity:
        return 0
    return cores if cores in _CPUS and total > 0 and total % cores == 0 else 0


def _base(text: str) -> list[str]:
    try:
        return list(msgspec.json.decode(text, type=dict[str, msgspec.Raw]))
    except (ValueError, RecursionError):
        return []


def _names(listed: Mapping[str, Any], key: str) -> list[str]:
    return [name.strip() for name in str(listed.get(key, "")).split(",") if name.strip()]


def _ids(names: AbstractSet[str] | Sequence[str]) -> Iterator[str]:
    """Yield the numbers of whole chips: `Ascend310P-3`, and not `Ascend310P-2c-100-3`."""
    for name in names:
        number = name.removeprefix(f"{CHIP}-")
        if number != name and whole(number) is not None:
            yield number
