"""The last lines of the demo: a timeline of the gangs, and the totals.

Pure functions from a scene to lines; `story` prints them, with colours on a terminal. ASCII only.
"""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import astuple
from rich.text import Text

from pumice.demo.bars import FAINT, colours
from pumice.demo.model import GangRow, Scene, Stage
from shared.api.batch import ENDED, JobPhase
from shared.model.numbers import plural

_CREATED: Final = 8
_ADMITTED: Final = 9
_BOUND: Final = 13
_RUNNING: Final = 8
_ENDED: Final = 7
_PHASE: Final = 11
_FIXED: Final = _CREATED + _ADMITTED + _BOUND + _RUNNING + _ENDED + _PHASE + 3
_NAME_LEAST: Final = 12
_CHART_LEAST: Final = 20
_CHART_MOST: Final = 60
_WINDOW_S: Final = 1.0


def timeline(scene: Scene, width: int) -> list[Text]:
    """Return a line per gang with the seconds from the first job's creation to each step.

    With room to spare, a bar follows: dots while it waits, lines while its pods start, blocks
    while it runs.
    """
    gangs = scene.in_order()
    begin = _begin(gangs)
    end = _end(gangs)
    names = max((len(gang.name) for gang in gangs), default=3)
    names = min(names, max(width - _FIXED, _NAME_LEAST))
    head = Text(
        f" {'job':<{names}}{'created':>{_CREATED}}{'admitted':>{_ADMITTED}}"
        f"{'pods bound':>{_BOUND}}{'running':>{_RUNNING}}{'ended':>{_ENDED}}  {'phase':<{_PHASE}}",
        FAINT,
    )
    chart = min(width - head.cell_len - 1, _CHART_MOST)
    has_chart = chart >= _CHART_LEAST
    lines = [head.append(". waits - starts # runs") if has_chart else head]
    for key, colour in colours(gangs).items():
        gang = scene.gangs[key]
        line = _times(gang, begin, names, colour)
        if has_chart:
            line.append_text(_bar(gang, colour, (begin, end), chart))
        lines.append(line)
    return lines


def totals(scene: Scene) -> list[str]:
    """Return the totals: jobs by their end, pods, and how fast these were bound."""
    gangs = scene.in_order()
    completed = sum(gang.phase is JobPhase.COMPLETED for gang in gangs)
    members = [member for gang in gangs for member in gang.members.values()]
    bound = sorted(member.bound_s for member in members if member.bound_s is not None)
    succeeded = sum(gang.count(Stage.SUCCEEDED) for gang in gangs)
    begin = _begin(gangs)
    end = _end(gangs)
    removed = sum(gang.count(Stage.REMOVED) for gang in gangs)
    jobs = f"{completed} of {plural(len(gangs), 'job')} completed"
    pods = f"{plural(len(bound), 'pod')} bound to {plural(len(scene.nodes), 'node')}"
    lines = [
        f"{jobs} {end - begin:.1f} s after the first was submitted",
        f"{pods}, {succeeded} succeeded, {removed} removed with their completed job",
    ]
    if bound:
        busiest = max(
            sum(first <= at_s < first + _WINDOW_S for at_s in bound[i:])
            for i, first in enumerate(bound)
        )
        lines.append(f"at best {busiest} pods/s bound (most within one second)")
    return lines


def what_is_missing(scene: Scene, expected: Sequence[str]) -> list[str]:
    """Return one line per job that has not completed: how far it has come, and why if known."""
    lines = []
    for key in expected:
        gang = scene.gangs.get(key)
        if gang is None:
            lines.append(f"{key}: never seen")
        elif gang.phase is not JobPhase.COMPLETED:
            group = gang.group_phase.value if gang.group_phase else "none"
            phase = gang.phase.value if gang.phase else "none"
            counts = ", ".join(
                f"{gang.count(stage)} {stage.value}" for stage in Stage if gang.count(stage)
            )
            why = f"; {gang.waits_for}" if gang.waits_for else ""
            lines.append(
                f"{key}: job phase {phase}, group phase {group}, "
                f"pods: {counts or 'none'} of {gang.replicas}{why}"
            )
    return lines


def _begin(gangs: Sequence[GangRow]) -> float:
    created = [g.milestones.created_s for g in gangs if g.milestones.created_s is not None]
    return min(created, default=0.0)


def _end(gangs: Sequence[GangRow]) -> float:
    """Return the last time that is known of any gang."""
    times = [time for gang in gangs for time in astuple(gang.milestones) if time is not None]
    return max(times, default=0.0)


def _times(gang: GangRow, begin: float, names: int, colour: str) -> Text:
    milestones = gang.milestones
    first, last = _since(milestones.first_bound_s, begin), _since(milestones.last_bound_s, begin)
    bound = first if first == last else f"{first} - {last}"
    name = Text(gang.name, colour)
    name.truncate(names, overflow="ellipsis", pad=True)
    phase = gang.phase.value if gang.phase else "-"
    colour_of_phase = "green" if gang.phase is JobPhase.COMPLETED else "bold red"
    return Text.assemble(
        " ",
        name,
        f"{_since(milestones.created_s, begin):>{_CREATED}}",
        f"{_since(milestones.admitted_s, begin):>{_ADMITTED}}",
        f"{bound:>{_BOUND}}",
        f"{_since(milestones.running_s, begin):>{_RUNNING}}",
        f"{_since(milestones.ended_s, begin):>{_ENDED}}",
        "  ",
        (f"{phase:<{_PHASE}}", colour_of_phase if gang.phase in ENDED else "yellow"),
    )


def _since(at_s: float | None, begin: float) -> str:
    return "-" if at_s is None else f"{at_s - begin:.1f}"


def _bar(gang: GangRow, colour: str, span: tuple[float, float], width: int) -> Text:
    begin, end = span
    scale = width / max(end - begin, 0.1)

    def cell(at_s: float | None, otherwise: int) -> int:
        return otherwise if at_s is None else min(round((at_s - begin) * scale), width)

    created = cell(gang.milestones.created_s, 0)
    ended = cell(gang.milestones.ended_s, width)
    bound = cell(gang.milestones.first_bound_s, ended)
    running = max(cell(gang.milestones.running_s, ended), bound)
    return Text.assemble(
        " " * created,
        ("." * (bound - created), "yellow"),
        ("-" * (running - bound), colour),
        ("#" * max(ended - running, 0), f"{colour} reverse" if colour else ""),
    )
