"""Compares replays of the same jobs, per queue and user."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from pumice.replays.engine import ReplayedJob
from pumice.replays.records import Recorded

_GPU: Final = "nvidia.com/gpu"
_HOUR_S: Final = 3_600.0
_HEAD: Final = (
    "QUEUE",
    "USER",
    "JOBS",
    "GPU-HOURS",
    "RECORDED",
    "BASELINE",
    "CHANGED",
    "UNSTARTED",
)


class ReplayRow(NamedTuple):
    """What one user of a queue, or a whole queue (user ""), used and waited."""

    queue: str
    user: str
    jobs: int
    gpu_hours: float
    recorded_h: float
    """90th percentile of the waits in the cluster, in hours."""
    baseline_h: float
    """The same in the replay with the configuration to compare with."""
    changed_h: float
    """The same in the replay with the new configuration."""
    unstarted: int
    """Jobs that do not start with the new configuration."""


def compare(
    found: Recorded, baseline: Mapping[str, float], changed: Mapping[str, float]
) -> list[ReplayRow]:
    """Return a row per queue and then per user of it; of waits in seconds by `ns/NAME`."""
    groups: dict[tuple[str, str], list[ReplayedJob]] = defaultdict(list)
    for job in found.jobs:
        groups[job.queue, ""].append(job)
        groups[job.queue, job.user].append(job)
    rows = []
    for (queue, user), jobs in sorted(groups.items()):
        keys = [f"ns/{job.name}" for job in jobs]
        used = sum(job.pods * job.requests.get(_GPU, 0) * job.seconds for job in jobs)
        rows.append(
            ReplayRow(
                queue=queue,
                user=user,
                jobs=len(jobs),
                gpu_hours=round(used / 1000 / _HOUR_S, 1),
                recorded_h=_p90([found.waits[job.name] for job in jobs]),
                baseline_h=_p90([baseline[key] for key in keys if key in baseline]),
                changed_h=_p90([changed[key] for key in keys if key in changed]),
                unstarted=sum(key not in changed for key in keys),
            )
        )
    return rows


def table(rows: Sequence[ReplayRow]) -> str:
    """Return the rows as text; waits are 90th percentiles in hours."""
    texts = [_HEAD, *(tuple(map(str, row._replace(user=row.user or "*"))) for row in rows)]
    widths = [max(len(text[at]) for text in texts) for at in range(len(_HEAD))]
    return "\n".join(
        "  ".join(part.ljust(width) for part, width in zip(text, widths, strict=True)).rstrip()
        for text in texts
    )


def _p90(waits_s: Sequence[float]) -> float:
    return round(float(np.percentile(waits_s, 90)) / _HOUR_S, 2) if waits_s else 0.0
