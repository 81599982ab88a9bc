"""Events, facts and a database of rows for tests of accounting's ledger."""

import datetime as dt

from pumice.events import CloudEvent, PodBound
from services.accounting.books.ledger import RowChanges, UsageLedger
from services.accounting.books.rows import Allocation, JobRow
from tests.support import world
from tests.support.world import stored_pod

DAY = 86_400.0
T = 100 * DAY
GROUP = "ns/train-uid-train"
MARKS = {
    "scheduling.k8s.io/group-name": "train-uid-train",
    "volcano.sh/job-name": "train",
    "pumice.dev/user": "ann",
}


def event(data, at_s):
    return CloudEvent(
        id=f"{data.topic}{at_s}",
        source="/test",
        type=data.topic,
        subject=data.key,
        time=dt.datetime.fromtimestamp(at_s, tz=dt.UTC),
        data=data,
    )


def bound(pod="ns/p0", at_s=T):
    return event(
        PodBound(
            pod=pod, uid=f"uid-{pod}", node="n0", gang=GROUP, queue="research", job="ns/train"
        ),
        at_s,
    )


def pod_fact(pod="ns/p0", *, node="n0", phase=""):
    meta = {"annotations": MARKS}
    body = stored_pod(pod, cpu="2", memory="1Gi", node=node, phase=phase, metadata=meta)
    return world.fact("pods", body)


class Database:
    """The rows that a ledger's changes make."""

    def __init__(self):
        self.allocations: dict[str, Allocation] = {}
        self.jobs: dict[str, JobRow] = {}
        self.usage: dict = {}

    def write(self, changes: RowChanges) -> None:
        self.allocations |= {row.pod_uid: row for row in changes.allocations}
        self.jobs |= {row.uid: row for row in changes.jobs}
        for key, amount in changes.usage.items():
            self.usage[key] = self.usage.get(key, 0.0) + amount

    def complete(self, ledger: UsageLedger, at_s: float = T + 400_000) -> None:
        ledger.complete(at_s)
        self.write(ledger.take_changes())

    def ledger(self, observed_s=T) -> UsageLedger:
        ledger = UsageLedger(["volcano"], observed_s=observed_s)
        allocations = [row for row in self.allocations.values() if row.ended is None]
        used = {row.job_uid for row in allocations}
        jobs = [row for row in self.jobs.values() if row.ended is None or row.uid in used]
        ledger.load(allocations, jobs)
        return ledger

    def feed(self, ledger, item) -> None:
        """Take an event, or a fact with its time, as the service does."""
        is_event = isinstance(item, CloudEvent)
        pods, jobs = ledger.unknown([item]) if is_event else ledger.unknown(facts=[item[0]])
        ledger.load(
            [self.allocations[uid] for uid in pods & self.allocations.keys()],
            [self.jobs[uid] for uid in jobs & self.jobs.keys()],
        )
        if is_event:
            ledger.apply(item, item.time.timestamp())
        else:
            ledger.observe(*item)
        self.write(ledger.take_changes())


def recorded(*items):
    database = Database()
    ledger = database.ledger()
    for item in items:
        database.feed(ledger, item)
    database.complete(ledger)
    return database
