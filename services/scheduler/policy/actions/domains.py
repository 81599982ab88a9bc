"""allocate for gangs whose pods share a domain: nodes with one value of a label.

Such is the topology constraint of a native PodGroup. The domains are tried one after the other, on
idle nodes first; the first one in which the gang reaches its minimum is taken. Later pods of the
gang go to the same domain.
"""

from collections import deque

from msgspec.structs import replace

from pumice.plugins import BoolArray
from services.scheduler.engine.jobs.records import Job, Queue
from services.scheduler.engine.session.session import Session
from services.scheduler.policy.actions.job_attempt import JobAttempt, WholeJob, Worklist
from shared.model.status import TERMINAL


def domains(session: Session, job: Job) -> list[BoolArray]:
    """Return the nodes of each domain that a job may be in, in order of the label's values.

    A job that has nodes already stays in their domain; without one that they share it has none.
    """
    nodes = session.cluster_state.nodes
    values = nodes.attributes.values(job.domain_key)[: session.ledger.size]
    placed = (task for task in job.tasks.values() if task.node and not TERMINAL[task.status])
    columns = {nodes.column(task.node) for task in placed}
    there = {values[column] for column in columns if column >= 0}
    if not there:
        return [values == value for value in sorted(set(values) - {None})]
    return [] if len(there) > 1 or None in there else [values == there.pop()]


class DomainAttempt:
    """One attempt at one job."""

    def __init__(self, session: Session, queue: Queue, job: Job, tasks: Worklist) -> None:
        self._session = session
        self._queue = queue
        self._job = job
        self._tasks = tasks

    def run(self) -> bool:
        """Place tasks until the job is ready; return whether it was committed."""
        session, job = self._session, self._job
        found = domains(session, job)
        for at_once in (True, False):
            for within in found:
                session.failures(job).begin_again()
                session.explanations.pop(job.key, None)
                tasks = deque(self._tasks)
                goal = WholeJob(session, job, within)
                attempt = JobAttempt(session, self._queue, job, tasks, goal=goal, at_once=at_once)
                committed = attempt.run()
                if committed or job.waiting_count:
                    self._tasks.clear()
                    self._tasks.extend(tasks)
                    return committed
        self._explain(len(found))
        return False

    def _explain(self, count: int) -> None:
        """Record why the job fits nowhere, with what the last domain lacks."""
        session, job = self._session, self._job
        found = session.explanations.get(job.key)
        if found is not None and found.gate != "predicate":
            return
        message = f"none of {count} domains of label {job.domain_key} has room for the gang"
        if not count:
            message = f"no value of label {job.domain_key} is common to nodes for the gang"
        session.failures(job).begin_again()  # those of one domain are not the gang's
        session.explanations.pop(job.key, None)
        session.explain(job, "topology", message)
        if found is not None:
            message = f"{message}; in one that was tried: {found.message}"
            session.explanations[job.key] = replace(found, gate="topology", message=message)
