"""The state that one scheduler keeps between cycles, with the two operations fold and decide.

Both operations are synchronous and may take long, so the leader's loop (`cycle.Scheduler`) calls
them in a thread of their own (ADR 6). Only that thread uses the cluster state, so it needs no lock.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from services.scheduler import desired, messages
from services.scheduler.budget_levels import BudgetLevels
from services.scheduler.config import SchedulerConfig
from services.scheduler.cycle_metrics import CycleMetrics, placements
from services.scheduler.decide import NO_QUARANTINE, Stopwatch, decide, untimed
from services.scheduler.decision import Decision, FoldFailure, UnstoredIntent
from services.scheduler.decision_settings import DecisionSettings
from services.scheduler.engine.jobs.reservation_timeouts import ReservationTimeouts, WaitingGroup
from services.scheduler.engine.journal import BrokenOff
from services.scheduler.engine.plan import Plan
from services.scheduler.engine.progress import Progress
from services.scheduler.engine.session.activation import UnschedulableJob, unschedulable_jobs
from services.scheduler.engine.session.session import Session
from services.scheduler.engine.state.cluster_state import BadFact, ClusterState
from services.scheduler.engine.state.memory import (
    SchedulerMemory,
    memory_of,
    prepare_replay,
    restore,
)
from services.scheduler.policy.actions.enqueue import inqueue_timeout_s
from services.scheduler.policy.catalog import PLUGINS, Plugins, foreign_states, states
from services.scheduler.policy.devices.selectors import Evaluator
from services.scheduler.policy.plugins.fairshare import FairShare
from services.scheduler.policy.states.past_usage import PastUsage
from services.scheduler.policy.states.usage import NodeUsage, UsageTable
from services.scheduler.policy.unschedulable_policy import UnschedulablePolicy, unschedulable_policy
from services.scheduler.status_writer import StatusWriter
from services.scheduler.waiting import WaitReports
from shared.api.kinds import KINDS, NATIVEPODGROUP, POD, PODGROUP
from shared.contracts import messages as m
from shared.contracts.subjects import SINGLE_PODS
from shared.contracts.usage import QueueUsage

_GROUPS: Final = frozenset({PODGROUP.token, NATIVEPODGROUP.token})


class Measurements(NamedTuple):
    """Sources of what no object of the API server states; each returns its latest values."""

    nodes: Callable[[], Mapping[str, NodeUsage] | None] = lambda: None
    """Node → its load; None if none was measured yet."""
    past_usage: Callable[[], Mapping[str, QueueUsage]] = dict
    """Queue → the last message about its usage."""


_NONE: Final = Measurements()


class SchedulerState:
    """The cluster state, and what the scheduler remembers from cycle to cycle.

    Order of calls: `fold` and `outcomes` as facts arrive, `recover` once after a change of leader,
    then per cycle `decide`, and `assume_statuses` and `withdraw` after publishing.
    """

    def __init__(
        self,
        settings: DecisionSettings,
        *,
        gang_message: int,
        settle_s: float,
        plugins: Plugins = PLUGINS,
        measured: Measurements = _NONE,
        ended: Stopwatch = untimed,
        evaluator: Evaluator | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Start with an empty cluster state.

        Args:
            settings: What decisions depend on.
            gang_message: Most pods of one intent.
            settle_s: Seconds for which a status has to be desired unchanged.
            plugins: The plugins that a configuration may name.
            measured: Sources of what no object of the API server states.
            ended: Is called at the end of each part of a cycle.
            evaluator: Evaluates expressions of device classes; None: they match nothing.
            progress: Receives the job that the cycle works on.
        """
        chosen = states(
            queue_gates=settings.queue_gates,
            csi_storage=settings.csi_storage,
            mindcluster=settings.mindcluster,
            evaluator=evaluator,
        )
        self._empty: Final = partial(
            ClusterState,
            settings.scheduler_names,
            (*chosen, *foreign_states(plugins)),
            settings.node_labels,
            single_pods=settings.single_pods,
        )
        role = SINGLE_PODS if settings.single_pods else ""
        self._commands: Final = partial(messages.commands, gang_message=gang_message, role=role)
        self._settings = settings
        self._plugins = plugins
        self._status_writer = StatusWriter(settle_s, settings.sharding)
        self._measured = measured
        self._ended = ended
        self._progress = progress
        self._metrics = CycleMetrics()
        self._budget_levels = BudgetLevels()
        self._config: SchedulerConfig | None = None
        self._usage_time = 0.0
        self._wait_reports = WaitReports(settle_s, explains=not settings.single_pods)
        self._unschedulable_policy = UnschedulablePolicy()
        self._unschedulable: list[UnschedulableJob] = []
        self._reservation_timeouts = ReservationTimeouts()
        self._cluster_state = self._empty()
        self._quarantined_objects: dict[tuple[str, str], tuple[bytes, Exception]] = {}
        """(Kind, key) of an object whose fold raised an unexpected error → its digest and error."""
        self._quarantined_jobs: dict[str, str] = {}
        """Key of a job whose handling aborted a session → uid of its PodGroup.

        An aborted session costs a cycle and a resync. The job is skipped until this PodGroup is
        deleted."""
        self._decoders: Final[dict[str, msgspec.json.Decoder[Any]]] = {
            kind: msgspec.json.Decoder(KINDS[kind].type)
            for kind in sorted(self._cluster_state.kinds)
        }

    @property
    def kinds(self) -> frozenset[str]:
        """Return the tokens of the kinds that scheduling reads."""
        return self._cluster_state.kinds

    @property
    def cluster_state(self) -> ClusterState:
        """Return the cluster state; `forget` replaces it by another object."""
        return self._cluster_state

    @property
    def is_consistent(self) -> bool:
        """Return whether the cluster state agrees with its facts; if not, it needs a resync."""
        return self._cluster_state.is_consistent

    @property
    def assumed(self) -> int:
        """Return how many pods are assumed to be bound or evicted."""
        return self._cluster_state.assumed

    def forget(self) -> None:
        """Start again with an empty cluster state, before STATE is replayed."""
        self._metrics.mark_stale()
        self._status_writer.forget()
        self._wait_reports.begin_resync()
        self._cluster_state = self._status_writer.carried_over(self._cluster_state, self._empty())

    def fold(self, facts: Sequence[m.Fact]) -> list[FoldFailure]:
        """Apply facts in order, the latest samples of node usage, and past usage.

        Returns one failure per object whose last fact could not be folded. Such an object is
        quarantined: removed from the cluster state until its content changes.
        """
        if (samples := self._measured.nodes()) is not None:
            self._cluster_state.store(UsageTable).replace(samples)
        if usage := self._measured.past_usage():
            self._cluster_state.store(PastUsage).replace(usage)
        failures: dict[tuple[str, str], FoldFailure] = {}
        if facts:
            self._metrics.mark_stale()
        for fact in facts:
            if failures:
                failures.pop((fact.kind, fact.key), None)  # the last fact of an object counts
            if (failure := self._try_to_fold(fact)) is not None:
                failures[fact.kind, fact.key] = failure
        for failure in failures.values():
            self._status_writer.quarantine(failure.kind, failure.key, failure.uid, failure.reason)
        return list(failures.values())

    def _try_to_fold(self, fact: m.Fact) -> FoldFailure | None:
        """Fold a fact; on an error quarantine its object and return why.

        After an unexpected error the object stays quarantined while its digest is the same.
        Otherwise a fold that fails half-way would cause one resync after the other.
        """
        if self._quarantined_objects:
            at = (fact.kind, fact.key)
            known = self._quarantined_objects.pop(at, None)
            if known is not None and fact.op is m.Op.PUT and known[0] == desired.digest(fact):
                self._quarantined_objects[at] = known
                return FoldFailure(fact.kind, fact.key, fact.uid, known[1])
        try:
            self._fold(fact)
        except (BadFact, msgspec.DecodeError) as error:
            return FoldFailure(fact.kind, fact.key, fact.uid, str(error))
        except Exception as error:  # noqa: BLE001 - one object costs no other (ADR 19)
            self._quarantined_objects[fact.kind, fact.key] = (desired.digest(fact), error)
            try:
                self._cluster_state.quarantine(fact.kind, fact.key, fact.uid)
            except Exception:  # noqa: BLE001 - a resync follows
                self._cluster_state.mark_inconsistent()
            return FoldFailure(fact.kind, fact.key, fact.uid, error)
        return None

    def _fold(self, fact: m.Fact) -> None:
        decoder = self._decoders.get(fact.kind)
        if decoder is None:
            return
        if fact.kind in _GROUPS and self._quarantined_jobs.get(fact.key, fact.uid) != fact.uid:
            del self._quarantined_jobs[fact.key]
        if fact.op is m.Op.PUT:
            try:
                obj = decoder.decode(fact.body)
            except msgspec.DecodeError:
                self._cluster_state.quarantine(fact.kind, fact.key, fact.uid)
                raise
            known = fact.kind != POD.token or self._cluster_state.task(fact.uid) is not None
            self._cluster_state.put(fact.kind, fact.key, fact.uid, obj)
            if not known and (task := self._cluster_state.task(fact.uid)) is not None:
                self._metrics.new_pod(task)
            return
        is_deleted = fact.op is m.Op.DELETE
        if is_deleted:
            self._cluster_state.delete(fact.kind, fact.key, fact.uid)
        else:
            self._cluster_state.quarantine(fact.kind, fact.key, fact.uid)
        if fact.kind in _GROUPS:
            self._quarantined_jobs.pop(fact.key, None)
        if not is_deleted:
            raise BadFact(f"{fact.kind} {fact.key} is too large to be published")

    def outcomes(self, outcomes: Sequence[m.Outcome]) -> None:
        """Apply outcomes of intents: a pod whose bind or eviction failed is no longer assumed."""
        if outcomes:
            self._metrics.mark_stale()
        for outcome in outcomes:
            self._cluster_state.outcome(
                outcome.intent, [(item.uid, item.result) for item in outcome.items]
            )
            self._cluster_state.refusals.take(outcome)
            for item in outcome.items:
                task = self._cluster_state.task(item.uid) if item.result is m.Result.BOUND else None
                if task is not None:
                    self._metrics.bound(task, outcome.time)

    def recover(self, unfinished: Sequence[m.Command], recent: Sequence[m.Outcome]) -> int:
        """Rebuild the assumptions of the previous leader from the bus.

        Args:
            unfinished: Intents that COMMAND still holds. Read them before `recent`.
            recent: Outcomes of the last minutes, oldest first. A pod with a successful bind counts
                on its node even if STATE does not show it yet.

        Returns the number of assumed pods. Assumptions of this process are dropped: an intent that
        is not on the bus was never stored, and another leader may have written statuses since.
        """
        self._metrics.begin()
        self._status_writer.forget()
        self._wait_reports.forget()
        self._cluster_state.jobs.activate_all()
        self._cluster_state.forget_desired()
        self._cluster_state.drop_assumptions()
        self._cluster_state.refusals.clear()
        for command in unfinished:
            self._assume(command)
        for outcome in recent:
            self._replay_outcome(outcome)
        return self._cluster_state.assumed

    def _replay_outcome(self, outcome: m.Outcome) -> None:
        self._cluster_state.refusals.take(outcome)
        for item in outcome.items:
            if item.result is m.Result.BOUND and item.node:
                self._cluster_state.assume(outcome.intent, [item])
            elif item.result is m.Result.EVICTED:
                self._cluster_state.assume_evictions(outcome.intent, [item])
            else:
                self._cluster_state.outcome(outcome.intent, [(item.uid, item.result)])

    def set_leadership_term(self, leadership_term: str) -> None:
        """Claim nodes of shards in this term of the Lease from now on; "": none is needed."""
        self._cluster_state.shards.leadership_term = leadership_term

    def decide(
        self,
        config: SchedulerConfig,
        *,
        now: float,
        cycle: int,
        token: int,
        quarantined: Mapping[str, str] = NO_QUARANTINE,
    ) -> Decision:
        """Run one scheduling cycle and assume its intents at once.

        Args:
            config: The scheduler configuration; a new object activates all unschedulable jobs.
            now: Unix seconds.
            cycle: Number of the cycle, for logs and messages.
            token: The leader's fencing token.
            quarantined: Key of a job that exceeded its time budget → reason; such jobs are skipped.

        Raises `BrokenOff` if a session had to be aborted; the state is inconsistent afterwards.
        """
        timeout_s = inqueue_timeout_s(config.arguments.get("enqueue", {}))
        self._cluster_state.review_refusals(now)
        expired_reservations = self._reservation_timeouts.review(
            self._cluster_state.jobs, now=now, timeout_s=timeout_s
        )
        if config is not self._config:
            self._config = config
            self._unschedulable_policy = unschedulable_policy(
                config, self._plugins, contending=True
            )
            self._cluster_state.jobs.activate_all()
            self._metrics.mark_stale()
        self._activate_if_reordered(config, now)
        full_plan = self._plan(config, now=now, cycle=cycle, quarantined=quarantined)
        unschedulable = len(self._cluster_state.jobs.unschedulable)
        plan = self._status_writer.due(full_plan, self._cluster_state, now=now)
        commands = self._commands(plan, token=token)
        for command in commands:
            self._assume(command)
        statuses = self._status_writer.messages(plan, self._cluster_state, now=now)
        waits, explained = self._wait_reports.review(
            full_plan, self._cluster_state.jobs, self._unschedulable, now=now, term=token
        )
        self._unschedulable = []
        return Decision(
            plan=plan,
            full_plan=full_plan,
            commands=commands,
            statuses=statuses,
            admitted=messages.admissions(plan, self._cluster_state),
            waits=waits,
            explained=explained,
            unschedulable=unschedulable,
            expired_reservations=expired_reservations,
            budgets=self._budget_levels.review(config, self._cluster_state, now=now),
            exclusions=self._metrics.exclusions,
            sample=self._metrics.sample,
            placements=list(placements(plan, self._cluster_state, now=now)),
        )

    def _activate_if_reordered(self, config: SchedulerConfig, now: float) -> None:
        """Activate all unschedulable jobs if the order by past usage is another one."""
        time = self._cluster_state.store(PastUsage).time(now)
        if time != self._usage_time and any(
            option.name == FairShare.name for tier in config.tiers for option in tier.plugins
        ):
            self._usage_time = time
            self._cluster_state.jobs.activate_all()

    def _inspect(self, session: Session, plan: Plan) -> None:
        """Measure the session, and find the jobs that may enter the unschedulable pool."""
        self._metrics.observe(session)
        self._unschedulable = []
        if (
            len(plan.explanations) + len(self._cluster_state.jobs.unschedulable)
            > self._settings.min_waiting_for_pool
        ):
            gates = self._unschedulable_policy._asdict()
            self._unschedulable = unschedulable_jobs(
                session, plan, self._wait_reports.is_reported, **gates
            )

    def _plan(
        self, config: SchedulerConfig, *, now: float, cycle: int, quarantined: Mapping[str, str]
    ) -> Plan:
        try:
            plan = decide(
                self._cluster_state,
                config,
                now=now,
                seed=self._settings.seed,
                cycle=cycle,
                plugins=self._plugins,
                sharding=self._settings.sharding,
                ended=self._ended,
                inspect=self._inspect,
                without=self._quarantined_jobs,
                quarantined=quarantined,
                progress=self._progress,
            )
        except BrokenOff as error:
            self._cluster_state.mark_inconsistent()
            job = self._cluster_state.jobs.get(error.job)
            self._quarantined_jobs[error.job] = job.uid if job is not None else ""
            raise
        self._metrics.settle(self._cluster_state.jobs)
        return plan

    def _assume(self, command: m.Command) -> None:
        self._metrics.mark_stale()
        if isinstance(command, m.BindGang):
            self._cluster_state.assume(command.id, command.binds)
        else:
            self._cluster_state.assume_evictions(command.id, command.victims)
            if command.preemptor is not None:
                preemptor = command.preemptor
                self._cluster_state.assume_nomination(command.id, preemptor.uid, preemptor.node)

    def withdraw(self, refused: Sequence[UnstoredIntent]) -> None:
        """Undo the assumptions of intents that NATS refused to store.

        Pods of an intent that can never be stored back off as if the binder had refused them.
        """
        self._metrics.mark_stale()
        for command, why in refused:
            is_bind = isinstance(command, m.BindGang)
            items = command.binds if isinstance(command, m.BindGang) else command.victims
            self._cluster_state.outcome(command.id, [(item.uid, m.Result.FAILED) for item in items])
            for item in items if why else ():
                self._cluster_state.refusals.note(
                    item.uid, command.id, why, is_bind=is_bind, by="NATS"
                )

    def assume_statuses(self, plan: Plan) -> None:
        """Assume the statuses of a published plan until the objects show them."""
        self._metrics.mark_stale()
        self._status_writer.assume(plan, self._cluster_state)

    # --- recorded cycles ---------------------------------------------------------------------

    def memory(self) -> tuple[SchedulerMemory, dict[str, WaitingGroup]]:
        """Return the state that is not in facts but decides the next cycle, for a recorded cycle.

        All unschedulable jobs are activated, so that a replay visits the same jobs.
        """
        self._cluster_state.jobs.activate_all()
        return memory_of(self._cluster_state), self._reservation_timeouts.waiting_groups

    def prepare_replay(self, memory: SchedulerMemory) -> None:
        """Prepare an empty cluster state for the facts of a recorded cycle."""
        prepare_replay(self._cluster_state, memory)

    def restore(self, memory: SchedulerMemory, waiting_groups: dict[str, WaitingGroup]) -> None:
        """Restore the memory of a recorded cycle, after its facts were folded."""
        restore(self._cluster_state, memory)
        self._reservation_timeouts.restore(waiting_groups)

    def audit(self) -> list[str]:
        """Recompute node usage from the pods; repair and return the differences."""
        return [str(drift) for drift in self._cluster_state.audit()]
