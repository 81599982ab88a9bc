"""Pods and nodes as coloured characters: the strip of a gang, the bar of a node.

Every gang has one colour, so that its pods can be found on the nodes; a stage is shown by
shape too, for those who see no colours.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from rich.text import Text

from pumice.demo.model import GangRow, Load, Machine, Stage

GANG_COLOURS: Final = (
    "cyan",
    "magenta",
    "yellow",
    "bright_blue",
    "green",
    "bright_red",
    "bright_cyan",
    "bright_magenta",
)
FAINT: Final = "bright_black"

GLYPHS: Final[Mapping[Stage, str]] = {
    Stage.SUCCEEDED: "✓",
    Stage.FAILED: "✗",
    Stage.REMOVED: "-",
    Stage.RUNNING: "●",
    Stage.BOUND: "○",
    Stage.WAITING: "·",
}
"""In the order of the strip: pods that are over come first, those without a node last."""

_USED: Final = "█"
_FREE: Final = "░"


def colours(gangs: Sequence[GangRow]) -> dict[str, str]:
    """Return the colour of each gang by key; they repeat when there are many."""
    return {gang.key: GANG_COLOURS[i % len(GANG_COLOURS)] for i, gang in enumerate(gangs)}


def strip(gang: GangRow, colour: str, width: int) -> Text:
    """Return one character per pod, or per share of the pods when there are more than `width`.

    Pods that do not exist yet (an admitted gang has none for a moment, J23) count as waiting.
    """
    counts = {stage: gang.count(stage) for stage in GLYPHS}
    missing = gang.replicas - sum(counts.values())
    counts[Stage.WAITING] += max(missing, 0)
    cells = shares(list(counts.values()), min(sum(counts.values()), width))
    text = Text()
    for stage, cell in zip(counts, cells, strict=True):
        text.append(GLYPHS[stage] * cell, style=_style(stage, colour))
    return text


def legend() -> Text:
    """Return the legend of the strips."""
    text = Text(style=FAINT)
    names = {
        Stage.WAITING: "waiting",
        Stage.BOUND: "bound",
        Stage.RUNNING: "running",
        Stage.SUCCEEDED: "done",
    }
    for stage, name in names.items():
        text.append(f" {GLYPHS[stage]} ", style="default").append(name)
    return text


def node_bar(machine: Machine, load: Load, palette: Mapping[str, str], width: int) -> Text:
    """Return the CPU of a node as `width` characters, in the colours of the gangs that hold it."""
    by_gang = load.cpu_milli_by_gang
    used, free = shares([load.cpu_milli, max(machine.cpu_milli - load.cpu_milli, 0)], width)
    text = Text()
    # divided twice, so that equal loads are equally long for all gangs
    for key, cell in zip(by_gang, shares(list(by_gang.values()), used), strict=True):
        text.append(_USED * cell, style=palette.get(key, "default"))
    return text.append(_FREE * free, style=FAINT)


def shares(amounts: Sequence[int], cells: int) -> list[int]:
    """Divide `cells` in proportion to `amounts` by largest remainder.

    An amount above zero gets a cell of its own as long as the larger ones can spare it.
    """
    total = sum(amounts)
    if not total:
        return [0] * (len(amounts) - 1) + [cells] if amounts else []
    result = [amount * cells // total for amount in amounts]
    by_rest = sorted(range(len(amounts)), key=lambda i: (-(amounts[i] * cells % total), i))
    for i in by_rest[: cells - sum(result)]:
        result[i] += 1
    for i, amount in enumerate(amounts):
        largest = max(range(len(result)), key=result.__getitem__)
        if amount and not result[i] and result[largest] > 1:
            result[largest] -= 1
            result[i] = 1
    return result


def _style(stage: Stage, colour: str) -> str:
    match stage:
        case Stage.RUNNING:
            return f"bold {colour}"
        case Stage.BOUND | Stage.SUCCEEDED:
            return colour
        case Stage.FAILED:
            return "bold red"
        case Stage.WAITING | Stage.REMOVED:
            return FAINT
