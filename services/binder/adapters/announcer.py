"""The binder's events for subscribers: pods bound and evicted.

Ids are made of intent and pod; a redelivered intent announces nothing twice.
"""

from pumice.events import PodBound, PodEvicted
from shared.bus.announcer import Announcer
from shared.contracts.messages import Bind, BindGang, Evict, Victim


class PodEvents:
    """Turns finished items of intents into events."""

    def __init__(self, announcer: Announcer) -> None:
        self._announcer = announcer

    def bound(self, gang: BindGang, item: Bind) -> None:
        """Announce that a pod is bound."""
        event = PodBound(
            pod=item.pod,
            uid=item.uid,
            node=item.node,
            gang=gang.job,
            queue=gang.queue,
            job=item.owner_job,
        )
        self._announcer.announce(event, f"{gang.id}/{item.uid}")

    def evicted(self, intent: Evict, victim: Victim) -> None:
        """Announce that a pod is being evicted, for whom and why."""
        preemptor = intent.preemptor.pod if intent.preemptor else ""
        event = PodEvicted(
            pod=victim.pod,
            uid=victim.uid,
            node=victim.node,
            gang=victim.job,
            queue=victim.queue,
            job=victim.owner_job,
            by=intent.reason,
            preemptor=preemptor,
            reason=f"to make room for {preemptor}" if preemptor else "to make room",
        )
        self._announcer.announce(event, f"{intent.id}/{victim.uid}")
