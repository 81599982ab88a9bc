"""Subgroups that come first: those that complete the minima of their policies (A02)."""

from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.jobs.subjobs import SubJob
from services.scheduler.engine.session.session import Session


def missing(session: Session, job: Job, sub: SubJob) -> int:
    """Return what a subgroup lacks; the job, when that is its only one."""
    has_policies = job.division is not None and bool(job.division.policies)
    return session.hooks.sub_job_ready(sub) if has_policies else session.hooks.job_ready(job)


def pipelined(session: Session, job: Job, sub: SubJob) -> bool:
    """Tell whether a subgroup may keep what it waits for; the job, when that is its only one."""
    has_policies = job.division is not None and bool(job.division.policies)
    return (
        session.hooks.sub_job_pipelined(sub) if has_policies else session.hooks.job_pipelined(job)
    )


def required(session: Session, job: Job) -> set[str]:
    """Return the subgroups that complete the minima of their policies, first come first."""
    if job.division is None:
        return set()
    minima = job.division.minima()
    lacking = []
    for sub in job.division.subs().values():
        if missing(session, job, sub):
            lacking.append(sub)
        elif sub.policy in minima:
            minima[sub.policy] -= 1
    wanted = set()
    for sub in sorted(lacking, key=session.hooks.sub_job_order):
        if minima.get(sub.policy, 0) > 0:
            minima[sub.policy] -= 1
            wanted.add(sub.id)
    return wanted
