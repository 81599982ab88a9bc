"""One screen of the demo: nodes, gangs and the last sentences, for any width and height.

`frame` is a pure function from a scene to lines; `Screen` hands rich what fits the terminal as it
is at that moment, so that a resize needs nothing. Nodes come first because their number does not
change: what grows and shrinks (reasons of waiting gangs, sentences) is below them and nothing
jumps.
"""

from collections.abc import Sequence
from itertools import zip_longest
from textwrap import wrap
from typing import Final

from msgspec import Struct
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from pumice.demo.bars import FAINT, colours, legend, node_bar, strip
from pumice.demo.model import GangRow, Machine, Scene
from pumice.demo.sentences import Sentence, Severity
from shared.api.batch import ENDED, JobPhase
from shared.model.numbers import plural
from shared.model.quantity import format_milli

_NAME_LEAST: Final = 12
_NAME_MOST: Final = 24
_PHASE: Final = 11
_GROUP: Final = 9
_PLACED: Final = 7
_TIME: Final = 7
_NODE_CELL: Final = 39
_INDENT: Final = "   "
_STRIP_LEAST: Final = 4
_LOG_LEAST: Final = 3
_LOG_GOOD: Final = 6
"""Reasons take a second line only while the sentences keep so many."""
_WIDE: Final = 110
"""From here on names may take more of the line."""

SEVERITY_COLOURS: Final = {
    Severity.NEUTRAL: "default",
    Severity.GOOD: "green",
    Severity.WAITING: "yellow",
    Severity.BAD: "bold red",
}


class DemoFrame(Struct, frozen=True, kw_only=True):
    """The contents of one frame."""

    scene: Scene
    log: Sequence[Sentence]
    """Oldest first."""
    expected: int
    """Number of jobs that the demo will submit."""
    now_s: float
    versions: str
    """The versions of the cluster's programs, for the title."""


class Screen:
    """A renderable of rich that draws a frame at the terminal's current size."""

    def __init__(self, model: DemoFrame) -> None:
        self.picture = model

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield one line after the other."""
        height = options.height or console.height
        yield Text("\n").join(frame(self.picture, options.max_width, height))


def frame(model: DemoFrame, width: int, height: int) -> list[Text]:
    """Return at most `height` lines, none wider than `width`.

    When it gets narrow, sentences give way first, then reasons, then nodes; jobs stay to the last.
    """
    scene = model.scene
    gangs = scene.in_order()
    palette = colours(gangs)
    head = [_title(model, width)]
    foot = [_foot(model, width)]
    room = height - len(head) - len(foot)
    nodes = _nodes(scene, palette, width)
    for reason_lines, log_lines in ((2, _LOG_GOOD), (1, 0), (0, 0)):
        jobs = _jobs(gangs, palette, model, width, reason_lines)
        if len(jobs) + len(nodes) + log_lines <= room:
            break
    jobs = _cut(jobs, room)
    nodes = _cut(nodes, room - len(jobs))
    room -= len(jobs) + len(nodes)
    log = _log(model, palette, width, room)
    return [_fit(line, width) for line in (*head, *nodes, *jobs, *log, *foot)][:height]


def _title(model: DemoFrame, width: int) -> Text:
    left = Text.assemble((" Pumice ", "bold reverse"), "  ", (model.versions, FAINT))
    return _spread(left, Text(f"{model.now_s:.1f} s ", "bold"), width)


def _foot(model: DemoFrame, width: int) -> Text:
    gangs = model.scene.gangs.values()
    ended = sum(gang.phase in ENDED for gang in gangs)
    placed = sum(gang.placed for gang in gangs)
    pods = sum(gang.replicas for gang in gangs)
    left = Text(
        f" {ended} of {plural(model.expected, 'job')} ended, {placed} of {pods} pods placed",
        style="bold",
    )
    return _spread(left, Text("Ctrl-C stops and removes everything ", FAINT), width)


def _nodes(scene: Scene, palette: dict[str, str], width: int) -> list[Text]:
    """Return the nodes in as many columns as fit, filled downwards."""
    machines = sorted(scene.nodes.values(), key=lambda node: (len(node.name), node.name))
    capacity = sum(machine.cpu_milli for machine in machines)
    used = sum(scene.load(machine.name).cpu_milli for machine in machines)
    note = Text(f" {format_milli(used)} of {format_milli(capacity)} cpu used", FAINT)
    lines = [_rule("Nodes", note if machines else Text(" none yet", FAINT), width)]
    if not machines:
        return lines
    columns = max(1, min(width // _NODE_CELL, len(machines)))
    rows = -(-len(machines) // columns)
    cell = width // columns
    names = max(len(machine.name) for machine in machines)
    for row in range(rows):
        line = Text()
        for machine in machines[row::rows]:
            line.append_text(_node(machine, scene, palette, min(names, cell // 3), cell))
        lines.append(line)
    return lines


def _node(machine: Machine, scene: Scene, palette: dict[str, str], names: int, width: int) -> Text:
    load = scene.load(machine.name)
    used, has = format_milli(load.cpu_milli), format_milli(machine.cpu_milli)
    label = f"{used}/{has} cpu" if machine.ready else "not ready"
    bar = width - names - 13
    text = Text(" ").append_text(_fit(Text(machine.name), names, pad=True)).append(" ")
    text.append_text(node_bar(machine, load, palette, max(bar, 1))).append(" ")
    return _fit(text.append(label, FAINT if machine.ready else "red"), width, pad=True)


def _jobs(
    gangs: Sequence[GangRow],
    palette: dict[str, str],
    model: DemoFrame,
    width: int,
    reason_lines: int,
) -> list[Text]:
    most = _NAME_MOST if width < _WIDE else _NAME_MOST * 2
    names = max([_NAME_LEAST, *(len(gang.name) for gang in gangs)])
    names = min(names, most)
    lines = [_rule("Jobs", legend(), width)]
    if gangs:
        lines.append(_job_head(names))
    for gang in gangs:
        lines.append(_job(gang, palette[gang.key], names, model.now_s, width))
        lines += _reason(gang, width, reason_lines)
    return lines


def _reason(gang: GangRow, width: int, most: int) -> list[Text]:
    """Return why a gang waits, in at most `most` lines; the caller cuts the last one."""
    text = f"waits: {gang.waits_for}"
    if not gang.waits_for or not most:
        return []
    lines = wrap(text, width - len(_INDENT) - 1) or [text]
    lines = [*lines[: most - 1], " ".join(lines[most - 1 :])]
    return [Text(f"{_INDENT}{line}", "yellow") for line in lines if line]


def _job_head(names: int) -> Text:
    titles = (
        f" {'job':<{names}} {'phase':<{_PHASE}} {'gang':<{_GROUP}}"
        f" {'placed':>{_PLACED}}{'time':>{_TIME}}  pods"
    )
    return Text(titles, FAINT)


def _job(gang: GangRow, colour: str, names: int, now_s: float, width: int) -> Text:
    phase = gang.phase.value if gang.phase else "-"
    group = gang.group_phase.value if gang.group_phase else "-"
    room = max(width - names - _PHASE - _GROUP - _PLACED - _TIME - 6, _STRIP_LEAST)
    began, ended = gang.milestones.created_s, gang.milestones.ended_s
    took = 0.0 if began is None else (now_s if ended is None else ended) - began
    return Text.assemble(
        " ",
        _fit(Text(gang.name, colour), names, pad=True),
        " ",
        (f"{phase:<{_PHASE}}", _phase_style(gang)),
        " ",
        (f"{group:<{_GROUP}}", FAINT),
        " ",
        f"{f'{gang.placed}/{gang.replicas}':>{_PLACED}}",
        f"{f'{took:.1f} s':>{_TIME}}",
        "  ",
        strip(gang, colour, room),
    )


def _phase_style(gang: GangRow) -> str:
    match gang.phase:
        case JobPhase.COMPLETED:
            return "green"
        case JobPhase.RUNNING | JobPhase.COMPLETING:
            return "bold"
        case JobPhase.FAILED | JobPhase.TERMINATED | JobPhase.ABORTED:
            return "bold red"
        case _:
            return "yellow"


def _log(model: DemoFrame, palette: dict[str, str], width: int, room: int) -> list[Text]:
    """Return the last sentences that fit; padded, so that the foot stays at the bottom."""
    if room < _LOG_LEAST:
        return [Text()] * max(room, 0)
    lines = [_rule("What happens", Text(), width)]
    rows = room - 1
    shown = list(model.log[-rows:])
    names = max((len(sentence.subject) for sentence in shown), default=0)
    names = min(names, _NAME_MOST)
    for sentence, _ in zip_longest(shown, range(rows)):
        lines.append(Text() if sentence is None else _line_of(sentence, palette, names))
    return lines


def _line_of(sentence: Sentence, palette: dict[str, str], names: int) -> Text:
    subject = Text(sentence.subject, palette.get(sentence.gang, "default"))
    return Text.assemble(
        (f"{sentence.at_s:7.1f}  ", FAINT),
        _fit(subject, names, pad=True),
        "  ",
        (sentence.text, SEVERITY_COLOURS[sentence.severity]),
    )


def _rule(title: str, note: Text, width: int) -> Text:
    line = Text.assemble(("─ ", FAINT), (title, "bold"), " ")
    dashes = width - line.cell_len - note.cell_len - (2 if note else 0)
    line.append("─" * max(dashes, 1), FAINT)
    return line.append_text(note).append(" ─" if note else "", FAINT)


def _spread(left: Text, right: Text, width: int) -> Text:
    """Return `left` and `right` at the two ends of a line; `right` gives way when it is narrow."""
    gap = width - left.cell_len - right.cell_len
    if gap < 1:
        return left
    return Text.assemble(left, " " * gap, right)


def _cut(lines: list[Text], room: int) -> list[Text]:
    """Return the lines that fit; the last of them counts those that do not."""
    if len(lines) <= room:
        return lines
    if room < 2:  # noqa: PLR2004 - a heading alone tells nothing
        return []
    hidden = len(lines) - room + 1
    return [*lines[: room - 1], Text(f"   … {plural(hidden, 'more line')}", FAINT)]


def _fit(text: Text, width: int, *, pad: bool = False) -> Text:
    """Return the text, cut to `width` with an ellipsis, and filled with blanks if `pad`."""
    result = text.copy()
    result.truncate(width, overflow="ellipsis", pad=pad)
    result.no_wrap = True
    return result
