"""Reads recorded jobs from accounting's database, for a replay.

The pods of a job count as alike: each asks for the mean of what its pods had, and runs from the
first start to the last end. A job that was started anew counts with the pods of all its runs. Jobs
that never started are left out: their run time is unknown.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from pumice.replays.engine import Amounts, ReplayedJob
from services.accounting.adapters.store import AccountingDatabase
from services.accounting.books.rows import Allocation, amounts_of
from shared.api.kinds import NODE, QUEUE, Kind

_BY_TOKEN: Final = {"Node": NODE, "Queue": QUEUE}


class Recorded(NamedTuple):
    """Jobs of a period, in the order of submission."""

    jobs: Sequence[ReplayedJob]
    waits: dict[str, float]
    """Job → seconds that it waited in the cluster."""
    cut_off: bool
    """Whether the period has more jobs than were requested."""


async def recorded_jobs(
    store: AccountingDatabase, *, since: float, until: float, most: int
) -> Recorded:
    """Return the first jobs that were submitted in a period (Unix seconds) and started.

    A job that still runs counts as ended at `until`. Raises errors of SQLAlchemy.
    """
    found, allocations = await store.submitted(since=since, until=until, most=most + 1)
    pods: dict[str, list[Allocation]] = {}
    for pod in allocations:
        pods.setdefault(pod.job_uid, []).append(pod)
    replayed, waits = [], {}
    begin = found[0].submitted if found else since
    for number, job in enumerate(found[:most]):
        if own := pods.get(job.uid):
            name = f"{number}-{job.name}"
            start = min(pod.started for pod in own)
            end = max(until if pod.ended is None else pod.ended for pod in own)
            waits[name] = start - job.submitted
            replayed.append(
                ReplayedJob(
                    name,
                    job.submitted - begin,
                    max(1.0, end - start),
                    len(own),
                    _mean(own),
                    user=job.user or job.namespace,
                    queue=job.queue,
                )
            )
    return Recorded(replayed, waits, cut_off=len(found) > most)


def _mean(pods: Sequence[Allocation]) -> Amounts:
    total: dict[str, int] = {}
    for pod in pods:
        for name, amount in amounts_of(pod.cpu_milli, pod.memory_bytes, pod.scalars):
            total[name] = total.get(name, 0) + amount
    return {name: -(-amount // len(pods)) for name, amount in total.items()}


def cluster_objects(text: bytes) -> list[tuple[Kind, dict[str, Any]]]:
    """Return the nodes and queues of a list as `kubectl get nodes,queues -o json` prints it.

    Raises ValueError if it is none.
    """
    try:
        items = msgspec.json.decode(text)["items"]
        return list(_known(items))
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise ValueError("the file is no list of nodes and queues in JSON") from error


def _known(items: Iterable[Any]) -> Iterable[tuple[Kind, dict[str, Any]]]:
    for item in items:
        kind = _BY_TOKEN.get(item["kind"])
        if kind is not None:
            yield kind, item
