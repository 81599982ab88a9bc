"""Shared by actions: queues in their order, and the jobs of each in theirs."""

import heapq
from collections.abc import Iterable

from pumice.plugins.combining import OrderKey
from services.scheduler.engine.jobs.records import Job, Queue
from services.scheduler.engine.session.session import Session

QueueHeap = list[tuple[OrderKey, Queue]]
JobHeap = list[tuple[OrderKey, Job]]


def by_queue(session: Session, jobs: Iterable[Job]) -> tuple[QueueHeap, dict[str, JobHeap]]:
    """Return a heap of the queues that own these jobs, and a heap of jobs per queue name.

    Keys are total (they end in a unique name), so that heaps never compare records.
    """
    heaps: dict[str, JobHeap] = {}
    for job in jobs:
        with session.isolate("order", job):
            heaps.setdefault(job.queue, []).append((session.hooks.job_order(job), job))
    queues: QueueHeap = []
    for name, heap in heaps.items():
        heapq.heapify(heap)
        queue = session.queue(name)
        if queue is not None:
            with session.isolate("order", queue):
                queues.append((session.hooks.queue_order(queue), queue))
    heapq.heapify(queues)
    return queues, heaps
