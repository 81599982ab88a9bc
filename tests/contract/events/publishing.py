"""One event of each type, and a publisher of them as the services are."""

from pumice.events import (
    BudgetReached,
    ConfigurationRefused,
    GangAdmitted,
    GangPlaced,
    GangUnschedulable,
    JobPhaseChanged,
    LeaderChanged,
    PodBound,
    PodEvicted,
    QueueStateChanged,
    encode,
    source,
    subject,
)
from shared.contracts.streams import streams
from tests.support.wait import until

SOURCE = source(cluster="local", service="scheduler", instance="scheduler-1")
EVENTS = (
    JobPhaseChanged(job="ns/a", uid="u", phase="Running", previous="Pending", queue="default"),
    GangAdmitted(gang="ns/a-1", uid="u", queue="default", job="ns/a"),
    GangPlaced(gang="ns/a-1", uid="u", queue="default", job="ns/a", pods=3, nodes=("n1", "n2")),
    GangUnschedulable(gang="ns/b-1", gate="quota", message="m", reasons={"cpu": 2}, position=1),
    PodBound(pod="ns/a-0", uid="u", node="n1", gang="ns/a-1", job="ns/a"),
    PodEvicted(pod="other/c-0", uid="u", node="n1", by="preempt", preemptor="ns/a-0"),
    QueueStateChanged(queue="default", state="Closed", previous="Open"),
    BudgetReached(queue="default", budget="b", user="ann", percent=80, used_hours=8.0),
    LeaderChanged(service="scheduler", instance="scheduler-1", term=7),
    ConfigurationRefused(service="scheduler", instance="scheduler-1", file="f", reason="why"),
)


class Publisher:
    """Publishes as the services do."""

    def __init__(self, bus):
        self.bus = bus
        self.spec = streams("local").events
        self.publisher = bus.publisher(self.spec.name)
        self.count = 0

    async def publish(self, event):
        self.count += 1
        payload = encode(event, id=f"e{self.count}", time=1_700_000_000.0, source=SOURCE)
        return await self.publisher.publish(
            subject(event, cluster="local"), payload, msg_id=f"e{self.count}"
        )

    async def all(self):
        for event in EVENTS:
            await self.publish(event)

    async def publish_until(self, got):
        """Publish until a follower has got something: from then on it follows."""

        async def one():
            await self.publish(EVENTS[0])
            return got

        await until(one, describe="the follower follows", every_s=0.1)
