"""Gates of queues in allocate (CA14): which gated pods are admitted, and what the others wait for.

A gated task is never placed. One that waits for its queue alone is asked for room in the queue's
share, and its gate is lifted when there is; whether a node has room is not looked at.
"""

from collections.abc import Sequence

from services.scheduler.engine.jobs.records import Job, Queue
from services.scheduler.engine.session.session import Session
from services.scheduler.engine.tasks.task import Task
from services.scheduler.policy.states.queue_gates import QueueGates


def admit(session: Session, queue: Queue, job: Job, tasks: Sequence[Task]) -> int:
    """Have the gates of gated tasks of one class lifted as far as their queue has room for them.

    Returns how many wait for their queue, the last ones of all; 0 when they wait for others.
    """
    head, gates = tasks[0], session.store(QueueGates)
    if not gates.may_lift(head):
        session.explain(job, "gang", f"pod {head.name} has scheduling gates")
        return 0
    allowed = session.hooks.allocatable(queue, head.task_class, len(tasks))
    gates.lift(queue.name, tasks[:allowed])
    if allowed:
        session.explain(job, "gang", f"pod {head.name} is admitted, its gate is being lifted")
    return len(tasks) - allowed
