"""resourcequota (PL12): a job enters its queue when its namespace's quotas leave room for it.

Only what a quota and the job's minResources both name is compared, as written by both: `cpu` is not
`requests.cpu`. Scopes of quotas are not looked at, as upstream.
"""

from pumice.plugins import PERMIT, Arguments, Hooks, Opinion, Vote
from services.scheduler.engine.quotas import Amounts
from services.scheduler.engine.records import Job
from services.scheduler.engine.session import Session


class ResourceQuota:
    """Quotas of namespaces at the gate of the queue."""

    name = "resourcequota"

    def __init__(self, _: Arguments) -> None:
        """Take no arguments."""

    def contribute(self, hooks: Hooks, cluster: Session) -> None:
        """Add the check, and the reservation of those who entered in this cycle."""
        quotas = cluster.replica.quotas
        entered: dict[str, dict[str, int]] = {}

        def enqueueable(job: Job) -> Opinion:
            request = job.min_listed
            for quota in quotas.of(job.namespace):
                short = _short(request, entered.get(job.namespace, {}), quota.used, quota.hard)
                if short:
                    names = ", ".join(short)
                    return Opinion(Vote.REJECT, f"resource quota insufficient: {names}")
            return PERMIT

        def enqueued(job: Job) -> None:
            mine = entered.setdefault(job.namespace, {})
            for name, amount in job.min_listed.items():
                mine[name] = mine.get(name, 0) + amount

        hooks.job_enqueueable(enqueueable)
        hooks.job_enqueued(enqueued)


def _short(request: Amounts, entered: Amounts, used: Amounts, hard: Amounts) -> list[str]:
    """Return the resources of which the quota has too little left."""
    return sorted(
        name
        for name, amount in request.items()
        if name in hard and amount + entered.get(name, 0) + used.get(name, 0) > hard[name]
    )
