"""Rows that tests write into a database."""

from collections.abc import Sequence

from services.accounting.adapters.store import StreamPosition
from services.accounting.books.ledger import RowChanges
from services.accounting.books.rows import Allocation, JobRow, usage_of

DAY = 86_400.0
T = 100 * DAY
AT = StreamPosition(stream="EVENTS", created="then", sequence=7, time=T)
JOB = JobRow(uid="j", namespace="ns", name="train", kind="Job", submitted=T, waits={"quota": 2.5})


def allocation(name: str, **fields) -> Allocation:
    given = {"pod_uid": name, "pod": name, "namespace": "ns", "started": T, "cpu_milli": 2000}
    return Allocation(**{**given, "queue": "research", "user": "ann", **fields})


def changes(*rows: Allocation, jobs: Sequence[JobRow] = (JOB,)) -> RowChanges:
    usage: dict = {}
    for row in rows:
        for key, amount in usage_of(row):
            usage[key] = usage.get(key, 0.0) + amount
    return RowChanges(allocations=list(rows), jobs=list(jobs), usage=usage)
