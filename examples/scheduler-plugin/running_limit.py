"""At most N jobs of a queue run at a time; the others wait outside of the queue, as Pending."""

from pumice.plugins import ABSTAIN, Arguments, Cluster, Hooks, Job, Opinion, Vote

RUNNING = {"Inqueue", "Running", "Unknown"}


class RunningLimit:
    name = "running-limit"

    def __init__(self, arguments: Arguments) -> None:
        self.most = arguments.get("jobs", 1)
        if not isinstance(self.most, int) or self.most < 0:
            raise ValueError(f"jobs: {self.most!r} is no number of jobs")

    def contribute(self, hooks: Hooks, cluster: Cluster) -> None:
        def may_enter(job: Job) -> Opinion:
            running = sum(other.phase in RUNNING for other in cluster.jobs_of(job.queue))
            if running < self.most:
                return ABSTAIN
            return Opinion(Vote.REJECT, f"{running} of {self.most} jobs of the queue are running")

        hooks.job_enqueueable(may_enter)
