"""Phases of a flow: what the state of its jobs makes of each, as one table (F03).

A flow begins when one of its jobs does, fails with the first that fails or is stopped, and has
succeeded when all of them completed. Both ends are final; only its own deletion ends a flow
otherwise.
"""

import enum
from collections.abc import Mapping
from typing import Final

from shared.api.flow import FlowPhase


class Progress(enum.StrEnum):
    """What the jobs of a flow amount to."""

    WAITING = "waiting"
    """No job has begun."""
    UNDER_WAY = "under way"
    """A job has begun, and none has failed."""
    BROKEN = "broken"
    """A job has failed or was stopped."""
    WHOLE = "whole"
    """All jobs have completed."""
    DELETED = "deleted"
    """The flow itself is being deleted."""


_P, _R, _S, _F, _T = (
    FlowPhase.PENDING,
    FlowPhase.RUNNING,
    FlowPhase.SUCCEED,
    FlowPhase.FAILED,
    FlowPhase.TERMINATING,
)

NEXT: Final[Mapping[FlowPhase, Mapping[Progress, FlowPhase]]] = {
    _P: {Progress.UNDER_WAY: _R, Progress.BROKEN: _F, Progress.WHOLE: _S, Progress.DELETED: _T},
    _R: {Progress.BROKEN: _F, Progress.WHOLE: _S, Progress.DELETED: _T},
    _S: {Progress.DELETED: _T},
    _F: {Progress.DELETED: _T},
    _T: {},
}
"""Phase → what leads out of it. What is not named leaves the phase as it is."""


def next_phase(was: FlowPhase | None, progress: Progress) -> FlowPhase:
    """Return the phase of a flow; one without a phase begins as Pending."""
    before = was or FlowPhase.PENDING
    return NEXT[before].get(progress, before)
