"""resourcequota (PL12): admits a job if its namespace's quotas leave room for it.

Only names in both the quota and the job's minResources are compared, literally: `cpu` is not
`requests.cpu`. Scopes of quotas are not looked at, as in Volcano.
"""

from pumice.plugins import PERMIT, Arguments, Cluster, Hooks, Job, Opinion, Vote
from services.scheduler.engine.resources.dimensions import is_in_bytes
from services.scheduler.policy.states.namespace_limits import Amounts, Quotas
from shared.model.resources import PODS


class ResourceQuotaPlugin:
    """Checks quotas of namespaces when a job enters its queue."""

    name = "resourcequota"

    def __init__(self, _: Arguments) -> None:
        """Take no arguments."""

    def contribute(self, hooks: Hooks, cluster: Cluster) -> None:
        """Add the check, and the reservation of jobs that entered in this cycle."""
        quotas = cluster.store(Quotas)
        entered: dict[str, dict[str, int]] = {}

        def enqueueable(job: Job) -> Opinion:
            request = job.min_listed
            in_namespace = entered.get(job.namespace, {})
            for _, quota in sorted(quotas.of(job.namespace).items()):
                short = _short(request, in_namespace, quota.used, quota.hard)
                if short:
                    return Opinion(
                        Vote.REJECT,
                        f"resource quota insufficient: {', '.join(name for name, _, _ in short)}",
                        tuple(short),
                    )
            return PERMIT

        def enqueued(job: Job) -> None:
            in_namespace = entered.setdefault(job.namespace, {})
            for name, amount in job.min_listed.items():
                in_namespace[name] = in_namespace.get(name, 0) + amount

        hooks.job_enqueueable(enqueueable)
        hooks.job_enqueued(enqueued)


def _per(name: str) -> int:
    """Return the divisor from thousandths to the unit in which a resource is shown."""
    return 1000 if name == PODS or is_in_bytes(name) else 1


def _short(
    request: Amounts, entered: Amounts, used: Amounts, hard: Amounts
) -> list[tuple[str, int, int]]:
    """Return the resources of which the quota has too little: name, requested, left."""
    left = {name: hard[name] - used.get(name, 0) - entered.get(name, 0) for name in hard}
    return sorted(
        (name, amount // _per(name), max(0, left[name]) // _per(name))
        for name, amount in request.items()
        if name in hard and amount > left[name]
    )
