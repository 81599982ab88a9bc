"""Show jobs as Slurm's sacct does: partition and account are the queue, steps are pods.

A job is named NAMESPACE/NAME. Times are in UTC. Pods are shown with -j, unless -X is given. The
same without Slurm's names: pumice history. See docs/from-slurm.md.
"""

import argparse
import time
from typing import Final, NamedTuple

from pumice.queries import slurm
from pumice.queries.client import QueryClient
from pumice.queries.output import connected
from pumice.queries.reports import fetch, moment_of, number
from pumice.queries.slurm import SlurmColumn
from shared.api.usage_reports import HISTORY, LIMIT_MAX, RecordedJob, RecordedPod, UsageReportSpec

_DEFAULT: Final = "JobID%30,JobName,Partition,Account,ReqCPUS,State,Elapsed"


class _Line(NamedTuple):
    job: RecordedJob
    pod: RecordedPod | None
    now_s: float

    @property
    def key(self) -> str:
        return f"{self.job.namespace}/{self.job.name}"

    @property
    def seconds(self) -> int:
        about = self.pod or self.job
        return slurm.seconds_between(about.started, about.ended, self.now_s)

    @property
    def waited(self) -> int:
        end = self.job.started or self.job.ended
        return slurm.seconds_between(self.job.submitted, end, self.now_s)

    @property
    def amounts(self) -> dict[str, float]:
        return self.pod.resources if self.pod else self.job.requested

    @property
    def cpu_seconds(self) -> float:
        hours = self.job.used.get("cpu", 0.0)
        return self.pod.resources.get("cpu", 0.0) * self.seconds if self.pod else hours * 3600


COLUMNS: Final = (
    SlurmColumn("JobID", lambda line: f"{line.key}.{line.pod.name}" if line.pod else line.key, 30),
    SlurmColumn("JobName", lambda line: line.pod.name if line.pod else line.job.name, 20),
    SlurmColumn("User", lambda line: "" if line.pod else line.job.user),
    SlurmColumn("Account", lambda line: line.job.queue),
    SlurmColumn("Partition", lambda line: "" if line.pod else line.job.queue),
    SlurmColumn(
        "State",
        lambda line: slurm.state_of_pod(line.pod) if line.pod else slurm.state_of(line.job),
    ),
    SlurmColumn("Submit", lambda line: slurm.moment(line.job.submitted), 19),
    SlurmColumn("Eligible", lambda line: slurm.moment(line.job.admitted), 19),
    SlurmColumn("Start", lambda line: slurm.moment((line.pod or line.job).started), 19),
    SlurmColumn("End", lambda line: slurm.moment((line.pod or line.job).ended), 19),
    SlurmColumn("Elapsed", lambda line: slurm.duration(line.seconds)),
    SlurmColumn("ElapsedRaw", lambda line: str(line.seconds)),
    SlurmColumn("Planned", lambda line: slurm.duration(line.waited)),
    SlurmColumn("ReqCPUS", lambda line: number(line.amounts.get("cpu", 0.0))),
    SlurmColumn("ReqTRES", lambda line: slurm.tres(line.amounts), 30),
    SlurmColumn("CPUTimeRAW", lambda line: str(round(line.cpu_seconds))),
    SlurmColumn("NTasks", lambda line: "1" if line.pod else str(line.job.pod_count)),
    SlurmColumn("NodeList", lambda line: line.pod.node if line.pod else "", 20),
    SlurmColumn("Reason", lambda line: (line.pod or line.job).reason, 20),
    SlurmColumn("Restarts", lambda line: str(line.job.restarts)),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    parser.add_argument("-a", "--allusers", action="store_true", help="jobs of all users")
    parser.add_argument("-u", "--user", default="", help="jobs of this user (default: mine)")
    parser.add_argument("-A", "--accounts", default="", metavar="QUEUE", help="jobs in this queue")
    parser.add_argument("-r", "--partition", default="", metavar="QUEUE", help="the same")
    parser.add_argument("-j", "--jobs", default="", metavar="JOB", help="[NAMESPACE/]NAME")
    parser.add_argument("-s", "--state", default="", metavar="STATES", help="COMPLETED,FAILED,…")
    time_ = "2026-11-01, 2026-11-01T12:00:00 or now-7days"
    parser.add_argument("-S", "--starttime", type=moment_of, default=None, help=time_)
    parser.add_argument("-E", "--endtime", type=moment_of, default=None, help=time_)
    parser.add_argument("-X", "--allocations", action="store_true", help="no pods")
    names = ",".join(column.name for column in COLUMNS)
    parser.add_argument("-o", "--format", default=_DEFAULT, help=names.replace("%", "%%"))
    slurm.add_layout(parser)


async def run(args: argparse.Namespace) -> int:
    """Print the jobs."""
    columns = slurm.chosen(args.format, COLUMNS)
    return await connected(args, lambda client: _print(args, client, columns))


async def _print(args: argparse.Namespace, client: QueryClient, columns: list[SlurmColumn]) -> int:
    now_s = time.time()  # noqa: TID251 - how long a job has run, for a person
    namespace, _, name = args.jobs.rpartition("/")
    queue = args.accounts or args.partition
    midnight = f"{time.strftime('%Y-%m-%d', time.gmtime(now_s))}T00:00:00Z"
    spec = UsageReportSpec(
        report=HISTORY,
        since=args.starttime or (None if name else midnight),
        until=args.endtime,
        mine=not (args.allusers or args.user or queue or name),
        user=args.user,
        queue=queue,
        namespace=namespace,
        job=name,
        limit=LIMIT_MAX,
    )
    states = set(filter(None, args.state.upper().split(",")))
    lines: list[_Line] = []
    for job in reversed((await fetch(client, spec)).jobs):
        if not states or slurm.state_of(job) in states:
            lines.append(_Line(job, None, now_s))
            lines += [_Line(job, pod, now_s) for pod in job.pods if not args.allocations]
    slurm.write(args, columns, lines)
    return 0
