"""Messages of the stream USAGE: what accounting publishes of past usage."""

import msgspec

from shared.contracts.versions import CURRENT


class PeriodUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What was used in one queue since a time, without decay."""

    begin: float
    """Unix seconds."""
    users: dict[str, dict[str, dict[str, float]]]
    """User → namespace → resource → amount·hours, in the units of `QueueUsage`; "" for no user."""


class QueueUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What the users of one queue have used, with exponential decay (stream USAGE).

    The last one per queue counts. `shared.model.decayed_usage` says what the amounts are.
    """

    v: int = CURRENT
    queue: str
    at: float
    """Unix seconds that the amounts are decayed to."""
    half_life_s: float
    users: dict[str, dict[str, float]]
    """User → resource → amount·seconds: `cpu` in cores, memory in bytes, others as numbers."""
    periods: tuple[PeriodUsage, ...] = ()
    """Sums up to `at` for the resources and periods of the budgets that accounting knows."""
