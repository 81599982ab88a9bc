"""What deserves a look after facts or answers to own writes: said by the replica, for workers."""

import msgspec

from services.controller.adapters.holdings import Place


class Touched(msgspec.Struct):
    """What deserves a look after some facts."""

    jobs: dict[str, bool] = msgspec.field(default_factory=dict)
    """Job key → whether a policy may have an answer to it (else a short wait does no harm)."""
    bare_groups: dict[str, None] = msgspec.field(default_factory=dict)
    """Keys of groups of bare pods."""
    queues: bool = False
    others: dict[Place, None] = msgspec.field(default_factory=dict)
    """Objects among the holdings that changed, or whose jobs did."""

    def __bool__(self) -> bool:
        """Tell whether there is anything to look at."""
        return bool(self.jobs or self.bare_groups or self.queues or self.others)

    def job(self, key: str, *, urgent: bool) -> None:
        """Add a job."""
        self.jobs[key] = self.jobs.get(key, False) or urgent
