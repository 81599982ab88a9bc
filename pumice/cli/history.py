"""Show jobs that ran or waited, also those that are deleted; of one JOB its pods.

The jobs come from accounting. You see your own jobs; those of others take a right. See
docs/usage-reports.md.
"""

import argparse
import time

import msgspec

from pumice.queries.client import QueryClient
from pumice.queries.output import add_target, connected
from pumice.queries.reports import Row, add_period, fetch, number, spec_of, write
from pumice.queries.text import span
from shared.api.time import read
from shared.api.usage_reports import HISTORY, RecordedJob, RecordedPod

_HEADS = (
    *("namespace", "name", "user", "queue", "phase", "submitted", "waited", "ran", "pods"),
    "usedHours",
)
_POD_HEADS = ("name", "node", "started", "ran", "reason", "resources")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    parser.add_argument("job", nargs="?", default="", metavar="JOB", help="[NAMESPACE/]NAME")
    add_period(parser)
    add_target(parser)


async def run(args: argparse.Namespace) -> int:
    """Print the jobs."""
    namespace, _, name = args.job.rpartition("/")
    args.namespace = namespace or args.namespace
    return await connected(args, lambda client: _print(args, client, name))


async def _print(args: argparse.Namespace, client: QueryClient, name: str) -> int:
    status = await fetch(client, spec_of(args, HISTORY, job=name))
    now_s = time.time()  # noqa: TID251 - how long a job has waited, for a person
    if args.output == "json":
        write((), [msgspec.to_builtins(job) for job in status.jobs], args.output)
        return 0
    write(_HEADS, [_row(job, now_s) for job in status.jobs], args.output)
    pods = [_pod(pod, now_s) for job in status.jobs for pod in job.pods]
    if pods and args.output == "table":
        print()
        write(_POD_HEADS, pods, args.output)
    return 0


def _row(job: RecordedJob, now_s: float) -> Row:
    return {
        "namespace": job.namespace,
        "name": job.name,
        "user": job.user,
        "queue": job.queue,
        "phase": job.phase,
        "submitted": job.submitted,
        "waited": elapsed(job.submitted, job.started or job.ended, now_s),
        "ran": elapsed(job.started, job.ended, now_s),
        "pods": job.pod_count,
        "usedHours": amounts(job.used),
    }


def _pod(pod: RecordedPod, now_s: float) -> Row:
    return {
        "name": pod.name,
        "node": pod.node,
        "started": pod.started or "",
        "ran": elapsed(pod.started, pod.ended, now_s),
        "reason": pod.reason,
        "resources": amounts(pod.resources),
    }


def elapsed(begin: str | None, end: str | None, now_s: float) -> str:
    """Return the time from a begin to an end, or until now, "" without a begin."""
    begin_s, end_s = read(begin), read(end)
    return "" if begin_s is None else span(max(0.0, (end_s or now_s) - begin_s))


def amounts(found: dict[str, float]) -> str:
    """Return amounts by resource as text."""
    return ",".join(f"{name}={number(amount)}" for name, amount in sorted(found.items()))
