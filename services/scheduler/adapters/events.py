"""The scheduler's events for subscribers: gangs admitted, placed and waiting, and who leads."""

from pumice.events import GangAdmitted, GangPlaced, GangUnschedulable
from services.scheduler.engine.plan import Explanation, GangBinds, PodGroupStatusWanted
from shared.bus.announcer import Announcer


class GangEvents:
    """Turns parts of a plan into events; ids are made of uid and cycle."""

    def __init__(self, announcer: Announcer) -> None:
        self._announcer = announcer

    def admitted(self, group: PodGroupStatusWanted, *, term: int, cycle: int) -> None:
        """Announce that a gang has entered its queue."""
        event = GangAdmitted(gang=group.key, uid=group.uid, queue=group.queue, job=group.owner_job)
        self._announcer.announce(event, f"admitted/{group.uid}/{term}-{cycle}")

    def placed(self, gang: GangBinds, *, term: int, cycle: int) -> None:
        """Announce that a gang was given nodes."""
        event = GangPlaced(
            gang=gang.job,
            uid=gang.job_uid,
            queue=gang.queue,
            job=gang.owner_job,
            pods=len(gang.binds),
            nodes=tuple(sorted({bind.node for bind in gang.binds})),
        )
        self._announcer.announce(event, f"placed/{gang.job_uid}/{term}-{cycle}")

    def unschedulable(self, why: Explanation, *, term: int, cycle: int) -> None:
        """Announce why a job waits."""
        event = GangUnschedulable(
            gang=why.job,
            uid=why.job_uid,
            queue=why.queue,
            job=why.owner_job,
            gate=why.gate,
            message=why.message + why.details,
            reasons=dict(why.reasons),
            position=why.position,
        )
        self._announcer.announce(event, f"unschedulable/{why.job}/{term}-{cycle}")
