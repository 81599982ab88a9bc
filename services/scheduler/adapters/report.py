"""Reports cycles: metrics under Volcano's names, log lines, scheduling events.

A waiting job is reported once it has waited for a while, and once per cause (`waiting`).
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from prometheus_client import Histogram

from pumice.events import BudgetReached, GangAdmitted, GangPlaced, GangUnschedulable
from services.scheduler.adapters.figure_pages import FigurePages
from services.scheduler.budget_levels import BudgetFigures
from services.scheduler.decide import CyclePart
from services.scheduler.decision import Decision
from services.scheduler.engine.plan import GangBinds, JobExplanation, Plan
from services.scheduler.policy.budgets import BudgetLine
from shared.api.time import format_seconds
from shared.bus.event_publisher import EventPublisher
from shared.runtime.health import ReadinessGate
from shared.runtime.logs import Logger
from shared.runtime.metrics import Metrics, steps
from shared.runtime.spans import Spans

_CYCLE_MS: Final = steps(1, 5000, 20)
_TASK_MS: Final = steps(50, 60_000, 30)
_JOB_MS: Final = steps(100, 120_000, 30)
_OPENING: Final = "OnSessionOpen"
_ACTION_MS: Final = steps(1, 2000, 20)
_PLUGIN_MS: Final = steps(0.1, 100, 15)
_TRANSACTIONS: Final = ("preempt", "reclaim", "gangpreempt", "gangreclaim")
"""Actions whose evictions Volcano counts: shuffle has no preemptor."""


class GangEvents:
    """Turns parts of a plan into events and spans.

    The id of an admission is made of uid and version of the PodGroup, so that a successor which
    decides the same again announces nothing new; other ids are made of uid and cycle.
    """

    def __init__(self, event_publisher: EventPublisher, spans: Spans) -> None:
        self._event_publisher = event_publisher
        self._spans = spans

    def admitted(self, event: GangAdmitted, *, term: int, cycle: int, begun: float) -> None:
        """Announce that a gang has entered its queue, by a cycle that began at `begun`.

        Controllers make its pods on this word (ADR 35).
        """
        if self._spans.is_on:
            self._spans.add(event.gang, "admit gang", begun=begun, cycle=cycle, queue=event.queue)
        decided_on = event.resource_version or f"{term}-{cycle}"
        self._event_publisher.publish(event, f"admitted/{event.uid}/{decided_on}")

    def placed(self, gang: GangBinds, *, term: int, cycle: int, begun: float) -> None:
        """Announce that a gang was given nodes."""
        if self._spans.is_on:
            pods = len(gang.binds)
            self._spans.add(gang.job, "place gang", begun=begun, cycle=cycle, pods=pods)
        event = GangPlaced(
            gang=gang.job,
            uid=gang.job_uid,
            queue=gang.queue,
            job=gang.owner_job,
            pods=len(gang.binds),
            nodes=tuple(sorted({bind.node for bind in gang.binds})),
        )
        self._event_publisher.publish(event, f"placed/{gang.job_uid}/{term}-{cycle}")

    def unschedulable(self, why: JobExplanation, *, term: int, cycle: int, begun: float) -> None:
        """Announce why a job waits."""
        if self._spans.is_on:
            self._spans.add(
                why.job, "gang waits", begun=begun, cycle=cycle, gate=why.gate, reason=why.message
            )
        event = GangUnschedulable(
            gang=why.job,
            uid=why.job_uid,
            queue=why.queue,
            job=why.owner_job,
            gate=why.gate,
            message=why.message + why.details,
            reasons=dict(why.reasons),
            position=why.position,
        )
        self._event_publisher.publish(event, f"unschedulable/{why.job}/{term}-{cycle}")

    def budget_reached(self, line: BudgetLine) -> None:
        """Announce that a budget warns or is used up."""
        percent = round(100 * line.level)
        event = BudgetReached(
            queue=line.queue,
            budget=line.budget,
            user=line.holder.user,
            namespace=line.holder.namespace,
            resource=line.resource,
            percent=percent,
            used_hours=round(line.used_hours, 3),
            amount_hours=line.amount_hours,
            begin=format_seconds(line.span.begin),
            end=format_seconds(line.span.end),
            used_up="" if math.isinf(line.used_up_at) else format_seconds(line.used_up_at),
            message=line.text(),
        )
        names = (line.budget, *line.holder, line.resource, event.begin, str(percent))
        self._event_publisher.publish(event, "/".join(("budget", *names)))


class Report:
    """Metrics and events of one scheduler process."""

    def __init__(
        self, *, metrics: Metrics, events: GangEvents, gate: ReadinessGate, log: Logger
    ) -> None:
        self._events = events
        self._gate = gate
        self._log = log
        self._delay = ""
        self._leader = metrics.gauge("pumice_leader", "1 while this process leads")
        self._e2e = metrics.histogram(
            "volcano_e2e_scheduling_latency_milliseconds", "One whole cycle", buckets=_CYCLE_MS
        )
        self._decide = metrics.histogram("pumice_scheduler_decide_seconds", "Deciding one cycle")
        self._publish = metrics.histogram(
            "pumice_scheduler_publish_seconds", "Publishing one cycle's plan"
        )
        self._attempts = metrics.counter(
            "volcano_schedule_attempts", "Tasks by result of their cycle", ["result"]
        )
        self._victims = metrics.gauge(
            "volcano_pod_preemption_victims", "Victims of the last cycle that had any"
        )
        self._preemptions = metrics.named_counts(
            "volcano_total_preemption_attempts", "Placements for which preempt found enough victims"
        )
        self._transactions = metrics.counter(
            "volcano_eviction_transactions",
            "Evictions decided for one job or task",
            ["action"],
        )
        self._job_latency = metrics.histogram(
            "volcano_e2e_job_scheduling_latency_milliseconds",
            "From a job's creation to a cycle that gave it nodes, at each such cycle",
            buckets=_JOB_MS,
        )
        self._task_latency = metrics.histogram(
            "volcano_task_scheduling_latency_milliseconds",
            "From a pod's creation to the stage",
            ["stage"],
            buckets=_TASK_MS,
        )
        self._pages = FigurePages()
        metrics.registry.register(self._pages)
        self._waiting_jobs = metrics.gauge("volcano_unschedule_job_count", "Jobs that wait")
        self._facts = metrics.counter("pumice_scheduler_facts", "Facts folded")
        self._fold_failures = metrics.counter(
            "pumice_scheduler_unusable_facts", "Facts that cannot be folded"
        )
        self._skipped = metrics.counter(
            "pumice_scheduler_cycles_skipped", "Cycles that ended with an internal error"
        )
        self._assumed = metrics.gauge(
            "pumice_scheduler_assumed_pods", "Pods assumed: intent published, result not seen yet"
        )
        self._budget_ratio = metrics.gauge(
            "pumice_budget_used_ratio", "Used part of a budget, of who used most", ["budget"]
        )
        self._budgets_used_up = metrics.gauge(
            "pumice_budget_used_up", "How many have used up this budget", ["budget"]
        )
        self._budget_ends = metrics.gauge(
            "pumice_budget_used_up_timestamp_seconds",
            "When it is used up at the present rate; infinity: not in its period",
            ["budget"],
        )
        self._gate.set(ok=True)

    def leading(self, *, leads: bool) -> None:
        """Note the beginning or end of a term."""
        self._leader.set(1 if leads else 0)
        if not leads:
            self._pages.clear()
            self._show_budgets({})

    def delayed(self, reason: str) -> None:
        """Note why no cycle can run, or ("") that one could; logged once per reason."""
        if reason and reason != self._delay:
            self._log.warning("cycle_delayed", reason=reason)
        if reason != self._delay:
            self._gate.set(not reason, reason)
        self._delay = reason

    def skipped(self) -> None:
        """Note a cycle that ended with an error of ours, and decided nothing."""
        self._skipped.inc()

    def folded(self, facts: int, failures: int, assumed: int) -> None:
        """Note what was folded and how many pods are assumed now."""
        self._facts.inc(facts)
        self._fold_failures.inc(failures)
        self._assumed.set(assumed)

    def sample(self, decision: Decision, *, now: float) -> None:
        """Observe the metrics of a cycle at `now` (Unix seconds)."""
        sample = decision.sample
        self._preemptions.add(count=sample.preemption_attempts)
        for action in _TRANSACTIONS:
            if count := sample.eviction_transactions.get(action):
                self._transactions.labels(action).inc(count)
        for placed in decision.placements:
            if placed.since_s is not None:
                self._job_latency.observe(placed.since_s * 1000)
            self._observe_stage("Assumed", placed.tasks_since_s)
        self._observe_stage("Watched", sample.watched_s)
        self._observe_stage("Bound", sample.bound_s)
        self._pages.placed(decision.placements, now=now)
        self._pages.waited(why.job for why in decision.plan.explanations)
        if sample.figures is not None:
            self._pages.show(sample.figures)
        if decision.budgets is not None:
            self._show_budgets(decision.budgets.figures)

    def _show_budgets(self, figures: Mapping[str, BudgetFigures]) -> None:
        gauges = (self._budget_ratio, self._budgets_used_up, self._budget_ends)
        for at, gauge in enumerate(gauges):
            gauge.clear()
            for name, values in figures.items():
                gauge.labels(name).set(values[at])

    def _observe_stage(self, stage: str, ages_s: Iterable[float]) -> None:
        observe = self._task_latency.labels(stage).observe
        for age_s in ages_s:
            observe(age_s * 1000)

    def cycle(
        self, plan: Plan, *, decide_s: float, publish_s: float, unschedulable: int = 0
    ) -> None:
        """Note a finished cycle that did not visit `unschedulable` of the waiting jobs."""
        waiting = len(plan.explanations) + unschedulable
        self._decide.observe(decide_s)
        self._publish.observe(publish_s)
        self._e2e.observe((decide_s + publish_s) * 1000)
        self._waiting_jobs.set(waiting)
        binds = sum(len(gang.binds) for gang in plan.binds)
        self._attempts.labels("scheduled").inc(binds)
        self._attempts.labels("unschedulable").inc(waiting)
        if plan.evictions:
            self._victims.set(len(plan.evictions))
        if binds or plan.evictions:
            self._log.info(
                "cycle_decided",
                cycle=plan.cycle,
                gangs=len(plan.binds),
                binds=binds,
                evictions=len(plan.evictions),
                waiting=waiting,
                decide_ms=round(decide_s * 1000, 2),
                publish_ms=round(publish_s * 1000, 2),
            )

    def events(self, decision: Decision, *, term: int, begun: float) -> None:
        """Hand over what subscribers may wait for of a cycle that began at `begun`."""
        plan = decision.plan
        cycle = plan.cycle
        for admitted in decision.admitted:
            self._events.admitted(admitted, term=term, cycle=cycle, begun=begun)
        for gang in plan.binds:
            self._events.placed(gang, term=term, cycle=cycle, begun=begun)
        for wait in decision.waits:
            self._events.unschedulable(wait, term=term, cycle=cycle, begun=begun)
        for line in decision.budgets.reached if decision.budgets is not None else ():
            self._events.budget_reached(line)


class Timings:
    """A stopwatch for `decide`: durations of its parts (ME1); called in the worker thread.

    Plugins of ours do little when a session opens: their functions are asked by actions, and it
    is there that most of what they cost shows.
    """

    def __init__(self, metrics: Metrics, *, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._begun = self._last = 0.0
        self._open = metrics.histogram(
            "volcano_open_session_duration_milliseconds", "Opening a session", buckets=_CYCLE_MS
        )
        self._plugins = metrics.histogram(
            "volcano_plugin_scheduling_latency_milliseconds",
            "A plugin's part in opening a session",
            ["plugin", "OnSession"],
            buckets=_PLUGIN_MS,
        )
        self._actions = metrics.histogram(
            "volcano_action_scheduling_latency_milliseconds",
            "Running an action",
            ["action"],
            buckets=_ACTION_MS,
        )
        self._children: dict[tuple[CyclePart, str], Histogram] = {}

    def __call__(self, part: CyclePart, name: str) -> None:
        """Note the end of a part."""
        now = self._monotonic()
        since = self._begun if part is CyclePart.OPENED else self._last
        if part is CyclePart.BEGUN:
            self._begun = now
        else:
            self._histogram(part, name).observe((now - since) * 1000)
        self._last = now

    def _histogram(self, part: CyclePart, name: str) -> Histogram:
        if part is CyclePart.OPENED:
            return self._open
        found = self._children.get((part, name))
        if found is None:
            actions = part is CyclePart.ACTION
            found = self._actions.labels(name) if actions else self._plugins.labels(name, _OPENING)
            self._children[part, name] = found
        return found
