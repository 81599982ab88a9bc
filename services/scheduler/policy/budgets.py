"""Budgets of jobs against eviction (T05, KY2): how many pods may go at once; pure arithmetic."""

import math
import re
from typing import Final

from pumice.plugins import Job
from shared.api import keys
from shared.model.status import TaskStatus

_DEFAULT: Final = 1
_PERCENT: Final = re.compile(r"(\d+)%")


def evictable_number(job: Job) -> int:
    """Return how many running tasks of a job may be evicted now.

    `jdb-min-available` comes before `jdb-max-unavailable`; both are numbers or percentages of the
    job's tasks, rounded up. Without a budget it is one task, as it is ⚠ when fewer run than have to
    be available.
    """
    running = len(job.by_status[TaskStatus.RUNNING])
    least = job.annotations.get(keys.JDB_MIN_AVAILABLE)
    most = None if least is not None else job.annotations.get(keys.JDB_MAX_UNAVAILABLE)
    if most:
        ended = len(job.by_status[TaskStatus.SUCCEEDED]) + len(job.by_status[TaskStatus.FAILED])
        unavailable = job.task_count - ended - running
        return max(0, amount(most, job.task_count) - unavailable)
    if least:
        available = amount(least, job.task_count)
        if running >= available:
            return running - available
    return _DEFAULT


def amount(text: str, whole: int) -> int:
    """Return a number, or a percentage of `whole` rounded up; 0 when it is neither."""
    match = _PERCENT.fullmatch(text)
    if match is not None:
        return math.ceil(int(match[1]) * whole / 100)
    try:
        return int(text)
    except ValueError:
        return 0
