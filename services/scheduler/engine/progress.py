"""The current step of a decision, for the watchdog thread."""

from collections.abc import Callable
from typing import Final, NamedTuple


class Step(NamedTuple):
    """One step of folding or deciding, and the object that it handles."""

    stage: str = ""
    """`fold`, the name of an action, `status`, or `open PLUGIN`; empty: nothing is being done."""
    kind: str = ""
    """Token of the kind of the object, empty for a step that handles none."""
    key: str = ""
    uid: str = ""


IDLE: Final = Step()


def unmarked(_: Step) -> None:
    """Record nothing."""


class Progress:
    """The current step. Only the deciding thread writes it; any thread may read it.

    `mark` is called with each step, in the deciding thread: it leaves a mark that survives the
    process, and has to be cheap.
    """

    __slots__ = ("_mark", "step")

    def __init__(self, mark: Callable[[Step], None] = unmarked) -> None:
        self._mark = mark
        self.step = IDLE

    def begin(self, step: Step) -> Step:
        """Begin a step, and return the one that it interrupts."""
        before = self.step
        self.step = step
        self._mark(step)
        return before
