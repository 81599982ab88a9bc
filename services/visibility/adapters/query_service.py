"""All queries, from the mirror, the leader's explanations, and the events.

One survey (a session's pending jobs and queues) serves all who ask within `SURVEY_S`. Explanations
and what-ifs, which take many sessions, have a process each; explanations go one at a time.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

from msgspec.structs import replace
from typing_extensions import override

from services.scheduler.config import SchedulerConfig
from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.state.cluster_state import ClusterState
from services.visibility.adapters.feeds import EventHistory, UsageFeed
from services.visibility.adapters.forked import ForkedQuery, ProcessLimits
from services.visibility.adapters.mirror_owner import MirrorOwner
from services.visibility.adapters.report_client import ReportClient
from services.visibility.interface import Queries
from services.visibility.queries.budgets import budgets_report
from services.visibility.queries.cluster_mirror import ClusterMirror
from services.visibility.queries.explaining import explain, subject_of
from services.visibility.queries.gangs import BadQuery
from services.visibility.queries.live import running_jobs, total_of
from services.visibility.queries.pending import Decisions, as_decided
from services.visibility.queries.shares import shares, shares_report
from services.visibility.queries.survey import DecisionPolicy, Survey, survey
from services.visibility.queries.whatif import what_if
from services.visibility.timelines import is_about, known_job, timeline
from services.visibility.usage_history import usage_history
from shared.api.usage_reports import BUDGETS, SHARES, UsageReportSpec, UsageReportStatus
from shared.api.visibility import (
    ExpectedStart,
    Explanation,
    PendingJob,
    QueueTree,
    Timeline,
    UsageHistory,
    WhatIfStatus,
)
from shared.api.whatifs import WhatIfSpec
from shared.runtime.clock import Clock
from shared.runtime.errors import Rejected

T = TypeVar("T")

SURVEY_S: Final = 1.0
"""A survey is as old as this at most when the cluster changes."""
UNCHANGED_SURVEY_S: Final = 30.0
"""As old as this where nothing has changed: a few gates open by the time alone."""
ANSWER_S: Final = 5.0
"""Seconds of one query after which no further rehearsal begins."""
PROCESSES: Final = 2
"""What-ifs that are decided at once."""


class Starts(Protocol):
    """Expected starts of jobs that wait, and of jobs that are imagined."""

    async def current(self) -> None:
        """Return when the expected starts are those of now."""

    def expected(self, key: str) -> ExpectedStart | None:
        """Return when a PodGroup is expected to start, None while nothing is known of it."""

    def end_of(self, job: Job) -> float | None:
        """Return when a running job is expected to end, in Unix seconds."""

    def forecast_for(
        self, state: ClusterState, keys: Collection[str], now: float
    ) -> Mapping[str, ExpectedStart]:
        """Return when PodGroups of an imagined cluster state would start, as far as is known."""


class _CachedSurvey(NamedTuple):
    """A survey, and the state that it was made of."""

    survey: Survey
    made_s: float
    """Monotonic seconds."""
    version: int
    of: tuple[int, SchedulerConfig]
    """How often the mirror had begun again, and the configuration."""


class UsageSources(NamedTuple):
    """Where past usage comes from: the events of the last hours, and accounting."""

    recent: UsageFeed
    recorded: ReportClient


class QueryService(Queries):
    """Queries on one mirror."""

    def __init__(
        self,
        owner: MirrorOwner,
        policy: Callable[[], DecisionPolicy],
        *,
        history: EventHistory,
        usage: UsageSources,
        decisions: Decisions,
        starts: Starts,
        clock: Clock,
        limits: ProcessLimits,
    ) -> None:
        self._owner = owner
        self._policy = policy
        self._history = history
        self._usage, self._reports = usage
        self._decisions = decisions
        self._starts = starts
        self._clock = clock
        self._cached: _CachedSurvey | None = None
        self._limits = limits
        self._one = asyncio.Lock()
        self._processes = asyncio.Semaphore(PROCESSES)

    @override
    async def pending_jobs(self, namespace: str = "", *, queue: str = "") -> Sequence[PendingJob]:
        jobs = await self._owner.query(lambda mirror: self._pending(mirror, namespace, queue))
        await self._starts.current()
        return [
            replace(
                job,
                expected_start=self._starts.expected(f"{job.metadata.namespace}/{job.pod_group}")
                or job.expected_start,
            )
            for job in jobs
        ]

    @override
    async def queue_trees(self) -> Sequence[QueueTree]:
        return (await self._owner.query(self._make_survey)).trees

    @override
    async def explanation(self, namespace: str, name: str) -> Explanation | None:
        async with self._one:
            found = await self._in_a_process(
                Explanation, lambda mirror: self._explaining(mirror, namespace, name)
            )
        if found is None or not found.pod_group:
            return found
        await self._starts.current()
        return replace(
            found, expected_start=self._starts.expected(f"{namespace}/{found.pod_group}")
        )

    @override
    async def what_if(self, namespace: str, spec: WhatIfSpec) -> WhatIfStatus:
        begun = self._clock.monotonic()
        async with self._processes:
            result = await self._in_a_process(
                WhatIfStatus, lambda mirror: lambda: self._imagine(mirror, namespace, spec)
            )
        assert result is not None, "a what-if always has work"
        took_ms = 1e3 * (self._clock.monotonic() - begun)
        return replace(result, decided_in_ms=round(took_ms, 1))

    async def _in_a_process(
        self, result: type[T], prepare: Callable[[ClusterMirror], Callable[[], T] | None]
    ) -> T | None:
        """Return what a process of its own finds in the cluster, None where there is no work.

        `prepare` is called in the mirror's thread. Raises Rejected, Retryable and Broken.
        """
        async with ForkedQuery(result, limits=self._limits, clock=self._clock) as query:

            def start(mirror: ClusterMirror) -> bool:
                work = prepare(mirror)
                if work is None:
                    return False
                mirror.request_devices()  # a fork evaluates no expression
                query.start(work)
                return True

            return await query.result() if await self._owner.query(start) else None

    @override
    async def timeline(self, namespace: str, name: str) -> Timeline | None:
        known = await self._owner.query(lambda mirror: known_job(mirror, namespace, name))
        key = f"{namespace}/{name}"
        events = await self._history.of(namespace, name, lambda event: is_about(event, key, known))
        return timeline(namespace, name, events, known, self._clock.now())

    @override
    async def usage_history(self) -> UsageHistory:
        runs = await self._usage.read()
        now_s = self._clock.now()
        return await self._owner.query(
            lambda mirror: usage_history(
                runs,
                waiting=self._make_survey(mirror).pending,
                running=running_jobs(mirror.state),
                total=total_of(mirror.state),
                now_s=now_s,
            )
        )

    @override
    async def usage_report(self, spec: UsageReportSpec) -> UsageReportStatus:
        if spec.report not in (SHARES, BUDGETS):
            return await self._reports.report(spec)
        published, now = self._reports.published(), self._clock.now()
        config = self._policy().config
        if spec.report == BUDGETS:
            return await self._owner.query(
                lambda mirror: budgets_report(
                    spec, mirror.state.jobs.queues, published, config, now=now
                )
            )
        rows = await self._owner.query(
            lambda mirror: shares(mirror.state.jobs.queues, published, config, now=now)
        )
        try:
            return shares_report(spec, rows, now)
        except BadQuery as error:
            raise Rejected(str(error), field=error.field) from error

    # --- in the mirror's thread --------------------------------------------------------------

    def end_of(self, job: Job) -> float | None:
        """Return when a running job is expected to end, in Unix seconds; None if not known."""
        return self._starts.end_of(job)

    def _explaining(
        self, mirror: ClusterMirror, namespace: str, name: str
    ) -> Callable[[], Explanation] | None:
        """Return what explains an object, None when there is none of that name."""
        subject = subject_of(mirror, namespace, name)
        if subject is None:
            return None
        latest, key = self._make_survey(mirror), subject.job.key if subject.job else ""
        policy, now = self._policy(), self._clock.now()
        decided = self._decisions.of(subject.job) if subject.job else None
        is_old = self._cached is not None and self._cached.version != mirror.version

        def work() -> Explanation:
            found = latest
            if is_old and decided is None and key not in latest.explanations:  # made before the job
                found = survey(mirror.state, policy, now=now)
            return explain(
                mirror,
                policy,
                subject,
                found.explanations.get(key),
                now=now,
                decided=decided,
                found_at=found.at,
                ends=self._starts.end_of,
                out_of_time=_time_limit(),
            )

        return work

    def _pending(self, mirror: ClusterMirror, namespace: str, queue: str) -> list[PendingJob]:
        """Return jobs that wait, with the leader's explanation where it has published one."""
        found, now = [], self._clock.now()
        for pending in self._make_survey(mirror).pending:
            if namespace in ("", pending.metadata.namespace) and queue in ("", pending.queue):
                key = f"{pending.metadata.namespace}/{pending.pod_group}"
                job = mirror.state.jobs.get(key)
                decided = self._decisions.of(job) if job is not None else None
                if decided is not None:
                    pending = as_decided(pending, decided, now=now)  # noqa: PLW2901
                found.append(pending)
        return found

    def _imagine(self, mirror: ClusterMirror, namespace: str, spec: WhatIfSpec) -> WhatIfStatus:
        """Decide in a process of its own. Raises Rejected."""
        policy, now = self._policy(), self._clock.now()
        mirror.review(policy.config, now=now)
        try:
            return what_if(
                mirror,
                policy,
                spec,
                namespace=namespace,
                now=now,
                out_of_time=_time_limit(),
                forecast_for=lambda keys: self._starts.forecast_for(mirror.state, keys, now),
            )
        except BadQuery as error:
            raise Rejected(str(error), field=error.field) from error

    def _make_survey(self, mirror: ClusterMirror) -> Survey:
        policy, now = self._policy(), self._clock.now()
        known, of = self._cached, (mirror.epoch, policy.config)
        if known is not None and known.of == of:
            age_s = self._clock.monotonic() - known.made_s
            if age_s < (UNCHANGED_SURVEY_S if known.version == mirror.version else SURVEY_S):
                return known.survey
        mirror.review(policy.config, now=now)
        found = survey(mirror.state, policy, now=now)
        self._cached = _CachedSurvey(found, self._clock.monotonic(), mirror.version, of)
        return found


def _time_limit() -> Callable[[], bool]:
    ends = time.process_time() + ANSWER_S  # of this process alone: no other makes it late
    return lambda: time.process_time() >= ends
