"""Moments as text: one sentence per gang and kind of moment within one refresh.

The view and the plain lines show the same sentences. Twenty pods that are bound within a tenth of a
second are one sentence with their nodes, not twenty. Pure; ASCII only, for logs of any encoding.
"""

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from msgspec import Struct

from pumice.demo.model import OVER, GangRow, Moment, MomentKind, Scene, Stage
from shared.api.batch import ENDED, JobPhase
from shared.model.numbers import plural
from shared.model.quantity import format_milli

_NODES_NAMED: Final = 4
"""So many nodes are named in a sentence; the rest are counted."""


class Severity(enum.StrEnum):
    """Whether a sentence reports something good or bad; the view shows it by a colour."""

    NEUTRAL = "neutral"
    GOOD = "good"
    WAITING = "waiting"
    BAD = "bad"


class Sentence(Struct, frozen=True, kw_only=True):
    """One line for a person."""

    at_s: float
    subject: str
    """The first word of the line: the name of a job, `cluster`, `setup`."""
    text: str
    severity: Severity = Severity.NEUTRAL
    gang: str = ""
    """Key of the gang it is about, if it is about one."""


def sentences_of(moments: Iterable[Moment], scene: Scene) -> list[Sentence]:
    """Return the sentences of moments that belong to one refresh, in the order of their last.

    Pods are bound before they run in it, whichever watch was faster. `scene` is the state after
    the moments: it has the totals.
    """
    groups: dict[tuple[MomentKind, str, str], list[Moment]] = {}
    for moment in moments:
        # each phase gets its own sentence, even if several fall into one refresh
        apart = moment.detail if moment.kind is MomentKind.JOB_PHASE else ""
        key = (moment.kind, moment.gang, apart)
        groups[key] = [*groups.pop(key, []), moment]
    return [_sentence(group, scene) for group in groups.values()]


def _sentence(group: Sequence[Moment], scene: Scene) -> Sentence:
    last = group[-1]
    gang = scene.gangs.get(last.gang, GangRow(key=last.gang))
    text, severity = _PHRASES[last.kind](group, gang, scene)
    subject = gang.name or "cluster"
    return Sentence(at_s=last.at_s, subject=subject, text=text, severity=severity, gang=last.gang)


_Phrase = tuple[str, Severity]


def _node_ready(group: Sequence[Moment], _: GangRow, scene: Scene) -> _Phrase:
    cpu = sum(node.cpu_milli for node in scene.nodes.values() if node.ready)
    ready = sum(node.ready for node in scene.nodes.values())
    who = group[0].subject if len(group) == 1 else plural(len(group), "node")
    return f"{who} ready ({plural(ready, 'node')}, {format_milli(cpu)} cpu)", Severity.NEUTRAL


def _node_lost(group: Sequence[Moment], _: GangRow, __: Scene) -> _Phrase:
    return f"lost {_names(moment.subject for moment in group)}", Severity.BAD


def _job_created(_: Sequence[Moment], gang: GangRow, __: Scene) -> _Phrase:
    together = "all" if gang.minimum >= gang.replicas else f"at least {gang.minimum}"
    return f"submitted: {plural(gang.replicas, 'pod')}, {together} together", Severity.NEUTRAL


def _job_phase(group: Sequence[Moment], gang: GangRow, _: Scene) -> _Phrase:
    phase = JobPhase(group[-1].detail)
    if phase not in ENDED:
        return f"job {phase.value}", Severity.NEUTRAL
    started = gang.milestones.created_s
    after = "" if started is None else f" after {group[-1].at_s - started:.1f} s"
    severity = Severity.GOOD if phase is JobPhase.COMPLETED else Severity.BAD
    return f"job {phase.value}{after}", severity


def _gang_admitted(group: Sequence[Moment], _: GangRow, __: Scene) -> _Phrase:
    return f"gang admitted by queue {group[-1].detail}", Severity.NEUTRAL


def _gang_waits(group: Sequence[Moment], _: GangRow, __: Scene) -> _Phrase:
    return f"gang waits: {group[-1].detail}", Severity.WAITING


def _pod_created(group: Sequence[Moment], gang: GangRow, _: Scene) -> _Phrase:
    return f"{_pods(group, gang)} created", Severity.NEUTRAL


def _pod_bound(group: Sequence[Moment], gang: GangRow, _: Scene) -> _Phrase:
    nodes = _names(moment.detail for moment in group)
    return f"{_pods(group, gang)} bound ({_of(gang.placed, gang)}): {nodes}", Severity.NEUTRAL


def _pod_running(group: Sequence[Moment], gang: GangRow, _: Scene) -> _Phrase:
    started = gang.count(Stage.RUNNING, *OVER)
    return f"{_pods(group, gang)} running ({_of(started, gang)})", Severity.NEUTRAL


def _pod_succeeded(group: Sequence[Moment], gang: GangRow, _: Scene) -> _Phrase:
    done = gang.count(Stage.SUCCEEDED)
    return f"{_pods(group, gang)} succeeded ({_of(done, gang)})", Severity.NEUTRAL


def _pod_failed(group: Sequence[Moment], gang: GangRow, _: Scene) -> _Phrase:
    return f"{_pods(group, gang)} failed", Severity.BAD


def _pod_removed(group: Sequence[Moment], gang: GangRow, _: Scene) -> _Phrase:
    return f"{_pods(group, gang)} removed", Severity.NEUTRAL


_PHRASES: Final[dict[MomentKind, Callable[[Sequence[Moment], GangRow, Scene], _Phrase]]] = {
    MomentKind.NODE_READY: _node_ready,
    MomentKind.NODE_LOST: _node_lost,
    MomentKind.JOB_CREATED: _job_created,
    MomentKind.JOB_PHASE: _job_phase,
    MomentKind.GANG_ADMITTED: _gang_admitted,
    MomentKind.GANG_WAITS: _gang_waits,
    MomentKind.POD_CREATED: _pod_created,
    MomentKind.POD_BOUND: _pod_bound,
    MomentKind.POD_RUNNING: _pod_running,
    MomentKind.POD_SUCCEEDED: _pod_succeeded,
    MomentKind.POD_FAILED: _pod_failed,
    MomentKind.POD_REMOVED: _pod_removed,
}


def _pods(group: Sequence[Moment], gang: GangRow) -> str:
    if len(group) == 1:
        return group[0].subject.removeprefix(f"{gang.name}-")
    return plural(len(group), "pod")


def _of(count: int, gang: GangRow) -> str:
    return f"{count} of {gang.replicas}" if gang.replicas else str(count)


def _names(names: Iterable[str]) -> str:
    """Return names with their counts, the most frequent first: `node-1 x3, node-0`."""
    counts = sorted(Counter(names).items(), key=lambda item: (-item[1], item[0]))
    shown = [name if count == 1 else f"{name} x{count}" for name, count in counts[:_NODES_NAMED]]
    rest = len(counts) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest else "")
