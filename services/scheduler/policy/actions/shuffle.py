"""shuffle (A10): evicts the running tasks that plugins name, without a preemptor."""

from pumice.plugins import Arguments
from pumice.plugins.points import Points
from services.scheduler.engine.session.session import Session
from services.scheduler.policy.bundles import is_whole
from shared.model.status import TaskStatus


def execute(session: Session, arguments: Arguments) -> None:  # noqa: ARG001 - it has none
    """Evict without trial or commit rule. Visits jobs only if a plugin names victims."""
    if not session.hooks.of(Points.victim_tasks):
        return
    jobs = session.cluster_state.jobs
    running = [
        task
        for job in sorted(jobs.all(), key=lambda job: job.key)
        if jobs.takes_part(job)
        for task in sorted(job.by_status[TaskStatus.RUNNING].values(), key=session.hooks.task_order)
        if not task.backoff_reason
    ]
    position = session.journal.position
    named = session.hooks.victim_tasks(running)
    uids = {task.uid for task in named}
    for task in named:
        job = session.job_of(task)
        if job is None or not job.disrupted_together or is_whole(job, uids):
            session.evict(task, reason="shuffle")
    session.commit_evictions(position)
