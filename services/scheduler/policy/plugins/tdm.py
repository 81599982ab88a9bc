"""tdm (PL16): time-division multiplexing: nodes usable at certain hours (revocable zones).

A node of a zone (label `volcano.sh/revocable-zone`) takes pods only during its hours, and only pods
that opt in. Afterwards preemptable pods are evicted, a few per period, within the budget of their
job. Hours are those of the time zone `tdm.time-zone`, UTC unless it is given; Volcano uses the
local time of the scheduler's machine, which may differ between replicas.
"""

import math
import re
from collections.abc import Sequence
from datetime import datetime, tzinfo
from typing import Final

import numpy as np

from pumice.plugins import (
    Arguments,
    Cluster,
    CodeArray,
    FloatArray,
    Hooks,
    Job,
    NodeRows,
    Reason,
    Task,
    TaskClass,
    Vote,
)
from services.scheduler.engine.tasks.from_pod import REVOCABLE
from services.scheduler.policy.arguments import BadArgument, text
from shared.api import keys
from shared.model import durations, schedules
from shared.model.status import TaskStatus

_PREFIX: Final = "tdm.revocable-zone."
_PERIOD: Final = "tdm.evict.period"
_TIME_ZONE: Final = "tdm.time-zone"
_HOURS: Final = re.compile(r"(\d{1,2}):(\d{2})-(\d{1,2}):(\d{2})")
_DAY_S: Final = 86400
_MAX: Final = 100.0
_CLOSED = Reason("current time beyond revocable zone", resolvable=False)
_NOT_AGREED = Reason("not allow to dispatch to revocable node", resolvable=False)


class Tdm:
    """Time-division multiplexing of nodes."""

    name = "tdm"

    def __init__(self, arguments: Arguments) -> None:
        """Take `tdm.revocable-zone.<zone>` (`HH:MM-HH:MM`), `tdm.evict.period`, `tdm.time-zone`."""
        self._zones = {
            key.replace(_PREFIX, "", 1): str(arguments[key]) for key in arguments if _PREFIX in key
        }
        period = durations.parse(str(arguments.get(_PERIOD, "")))
        self._period_s = 60.0 if period is None else period
        self._time_zone = _time_zone(arguments)

    def contribute(self, hooks: Hooks, cluster: Cluster) -> None:
        """Add the rules."""
        self._cluster = cluster
        local = datetime.fromtimestamp(cluster.now, self._time_zone)
        self._open = {zone for zone, hours in self._zones.items() if is_open(hours, local)}
        zones = cluster.nodes.label(keys.REVOCABLE_ZONE)
        codes = [0 if not zone else 1 + (zone in self._open) for zone in zones]
        self._codes = np.array(codes, dtype=np.uint8)
        """Per node 0 outside of zones, 1 in a closed one, 2 in an open one."""
        hooks.predicate(self._predicate, reasons=[_CLOSED, _NOT_AGREED])
        hooks.node_score(self._score)
        hooks.preemptable(self._preemptable)
        hooks.victim_tasks(self._overdue)
        hooks.job_order(_fixed_first)
        hooks.job_pipelined(_pipelined)
        hooks.job_starving(_starving)

    # --- nodes -------------------------------------------------------------------------------

    def _predicate(self, task_class: TaskClass, rows: NodeRows) -> CodeArray:
        verdicts = [0, 1, 0] if REVOCABLE in task_class.traits else [0, 1, 2]
        return np.array(verdicts, dtype=np.uint8)[rows.pick(self._codes)]

    def _score(self, task_class: TaskClass, rows: NodeRows) -> FloatArray:
        if REVOCABLE not in task_class.traits:
            return np.zeros(len(rows), dtype=np.float64)
        return np.array([0.0, 0.0, _MAX])[rows.pick(self._codes)]

    # --- victims -----------------------------------------------------------------------------

    def _preemptable(self, preemptor: Task, candidates: Sequence[Task]) -> list[Task]:
        """Let fixed workloads preempt preemptable tasks on nodes outside of zones."""
        if preemptor.preemptable or REVOCABLE in preemptor.task_class.traits:
            return []
        found = [
            task
            for task in candidates
            if task.preemptable
            and task.status == TaskStatus.RUNNING
            and self._is_ordinary(task.node)
        ]
        return self._within_budgets(found)

    def _is_ordinary(self, node: str) -> bool:
        """Tell whether a node exists and is in no zone."""
        column = self._cluster.nodes.column(node)
        return column >= 0 and not self._codes[column]

    def _overdue(self, _: Sequence[Task]) -> list[Task]:
        """Return tasks to evict from nodes of closed zones, once per period."""
        last = self._cluster.memory.get(self.name)
        if last is not None and last + self._period_s > self._cluster.now:
            return []
        self._cluster.memory[self.name] = self._cluster.now
        cluster = self._cluster
        found = [
            task
            for column, zone in enumerate(cluster.nodes.label(keys.REVOCABLE_ZONE))
            if zone in self._zones and zone not in self._open
            for task in cluster.tasks_on(cluster.node_names[column])
            if task.preemptable and task.status == TaskStatus.RUNNING
        ]
        return self._within_budgets(sorted(found, key=lambda task: task.order()))

    def _within_budgets(self, tasks: Sequence[Task]) -> list[Task]:
        by_job: dict[str, list[Task]] = {}
        for task in tasks:
            by_job.setdefault(task.job_key, []).append(task)
        victims = []
        for key, of_job in by_job.items():
            job = self._cluster.job(key)
            if job is not None:
                victims += of_job[: evictable_number(job)]
        return victims


def _time_zone(arguments: Arguments) -> tzinfo:
    try:
        return schedules.zone(text(arguments, _TIME_ZONE))
    except ValueError as error:
        raise BadArgument(f"{_TIME_ZONE}: {error}") from error


def is_open(hours: str, local: datetime) -> bool:
    """Tell whether a local time is within hours such as `22:00-06:00`; unreadable are never open.

    ⚠ Hours over midnight begin today: at 05:00 they are not open yet.
    """
    match = _HOURS.fullmatch(hours.strip())
    if match is None:
        return False
    start_h, start_m, end_h, end_m = map(int, match.groups())
    if max(start_h, end_h) >= 24 or max(start_m, end_m) >= 60:  # noqa: PLR2004 - of a clock
        return False
    start, end = start_h * 3600 + start_m * 60, end_h * 3600 + end_m * 60
    into_day = local.hour * 3600 + local.minute * 60 + local.second
    return start <= into_day <= (end if end > start else end + _DAY_S)


def _fixed_first(job: Job) -> bool:
    return job.preemptable


def _pipelined(job: Job) -> Vote:
    counted = job.waiting_count + job.ready_count + job.pending_best_effort
    return Vote.PERMIT if counted >= job.min_available else Vote.REJECT


def _starving(job: Job) -> bool:
    return not job.preemptable and bool(job.by_status[TaskStatus.PENDING])


_DEFAULT: Final = 1
_PERCENT: Final = re.compile(r"(\d+)%")


def evictable_number(job: Job) -> int:
    """Return how many running tasks of a job may be evicted now.

    `jdb-min-available` comes before `jdb-max-unavailable`; both are numbers or percentages of the
    job's tasks, rounded up. Without a budget it is one task; ⚠ also if fewer run than have to be
    available.
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
