"""The extension points of turns: whether a job may start although nodes have room for it.

Rows of the table in `pumice.plugins.points`. Rules that reserve room, or keep an order, are made of
these.
"""

from collections.abc import Callable

from pumice.plugins import combining, guarding
from pumice.plugins.guarding import guarded_results
from pumice.plugins.interface import Job
from pumice.plugins.point import Plain
from pumice.plugins.values import StartBlock

_Holds = Callable[[Job], StartBlock | None]


class TurnPoints:
    """Points that a job passes at its turn in `allocate`."""

    job_turn: Plain[_Holds, _Holds] = Plain(
        "",
        "",
        "why a job has to wait before nodes are looked at: a `StartBlock`, or None",
        together=combining.first_objection,
        guarded=guarded_results(guarding.hold, made=guarding.blocked_by_failure),
        failing="it waits",
    )
    job_start: Plain[_Holds, _Holds] = Plain(
        "",
        "",
        "why a job may not keep the places that it has just got: a `StartBlock`, or None",
        together=combining.first_objection,
        guarded=guarded_results(guarding.hold, made=guarding.blocked_by_failure),
        failing="it may not",
    )
    job_waits: Plain[Callable[[Job], None], Callable[[Job], None]] = Plain(
        "",
        "",
        "nothing; called when a turn of a job found no room for it, or a `StartBlock`",
        together=combining.notified,
        guarded=guarded_results(guarding.nothing),
        failing="",
    )
    job_watched: Plain[Callable[[Job], bool], Callable[[Job], bool]] = Plain(
        "",
        "",
        "whether a waiting job needs a turn in each cycle, because time alone may let it go",
        together=combining.any_of,
        guarded=guarded_results(guarding.flag, instead=True),
        failing="it does",
    )
    waiting_reason: Plain[Callable[[Job], str | None], Callable[[Job], str | None]] = Plain(
        "",
        "",
        "the reason of PodScheduled for pods of a job that wait for nodes; its other waiting pods "
        "show `NotWaitingForNodes`; None: as in Volcano",
        together=combining.first_objection,
        guarded=guarded_results(guarding.optional_text),
        failing="None",
    )
    job_outlook: Plain[Callable[[Job], str | None], Callable[[Job], list[str]]] = Plain(
        "",
        "",
        "words about when a waiting job is expected to start, to go with why it waits; or None",
        together=combining.collected,
        guarded=guarded_results(guarding.optional_text),
        failing="None",
    )
