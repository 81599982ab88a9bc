"""Results of `SchedulerState`: a decision with its messages, and facts and intents that failed."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from pumice.events.types import GangAdmitted
from services.scheduler import desired
from services.scheduler.budget_levels import BudgetReview
from services.scheduler.cycle_metrics import CycleSample, PlacedJob
from services.scheduler.engine.plan import JobExplanation, Plan
from services.scheduler.engine.session.exclusions import Exclusion
from shared.contracts import messages as m


class FoldFailure(msgspec.Struct, frozen=True):
    """A fact that could not be folded, and why."""

    kind: str
    key: str
    uid: str
    reason: Exception | str
    """The exception where it was an unexpected one."""


class UnstoredIntent(NamedTuple):
    """An intent that was not stored; `why` is empty if the same may be stored later."""

    command: m.Command
    why: str = ""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """A plan, and the messages in which it is published."""

    plan: Plan
    """The plan without the statuses that are held back (`status_writer`)."""
    full_plan: Plan
    """The plan with all statuses."""
    commands: list[m.Command]
    statuses: list[desired.DesiredStatus]
    """Statuses to publish: those of the plan, and earlier ones that no object shows yet."""
    admitted: Sequence[GangAdmitted] = ()
    waits: Sequence[JobExplanation] = ()
    """Waits that have lasted for a while and that no event has reported yet."""
    explained: Sequence[m.WaitExplained] = ()
    """Messages for the stream WAITING: explanations that have changed, and ends of waits."""
    expired_reservations: Sequence[str] = ()
    """Keys of Inqueue PodGroups that reserve nothing any more: their pods were created too late."""
    exclusions: Sequence[Exclusion] = ()
    """Jobs, queues and actions whose handling raised an unexpected error."""
    unschedulable: int = 0
    """Waiting jobs that the cycle did not visit, as nothing that they wait for has changed."""
    budgets: BudgetReview | None = None
    """The budgets, where something about them has changed."""
    sample: CycleSample = CycleSample()
    placements: Sequence[PlacedJob] = ()

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to publish."""
        return self.plan.is_empty and not self.statuses
