"""A survey: the result of one session of the scheduler, cached for queries at about that time.

A session at the size of a large cluster takes long enough that it must not run once per query.
"""

from collections.abc import Collection, Mapping
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from services.scheduler.config import SchedulerConfig
from services.scheduler.decide import Inspect, decide
from services.scheduler.engine.plan import JobExplanation, Plan
from services.scheduler.engine.session.session import Session
from services.scheduler.engine.state.cluster_state import ClusterState
from services.scheduler.engine.state.imagined import Imagined
from services.scheduler.engine.state.shards import UNSHARDED, Sharding
from services.scheduler.policy.actions.defrag import REASON
from services.scheduler.policy.catalog import PLUGINS, Plugins
from services.visibility.queries.pending import pending_jobs
from services.visibility.queries.queues import queue_trees
from shared.api.visibility import PendingJob, QueueTree

EVICTING: Final = frozenset({"preempt", "reclaim", "shuffle", "gangpreempt", "gangreclaim"})


class DecisionPolicy(Struct, frozen=True, kw_only=True):
    """The settings that decisions depend on beside the facts: those of the scheduler."""

    config: SchedulerConfig
    plugins: Plugins = field(default_factory=lambda: PLUGINS)
    seed: int = 0
    sharding: Sharding = UNSHARDED
    makes_moves: bool = False
    """Whether the scheduler's configuration has the action defrag, which `config` is without."""

    @classmethod
    def of(
        cls,
        config: SchedulerConfig,
        *,
        plugins: Plugins = PLUGINS,
        seed: int = 0,
        sharding: Sharding = UNSHARDED,
    ) -> "DecisionPolicy":
        """Return the settings of a scheduler; moves are decided for queries about moves alone."""
        actions = tuple(action for action in config.actions if action != REASON)
        return cls(
            config=replace(config, actions=actions),
            plugins=plugins,
            seed=seed,
            sharding=sharding,
            makes_moves=actions != config.actions,
        )


def without_evictions(config: SchedulerConfig) -> SchedulerConfig:
    """Return a configuration without the actions that evict."""
    return replace(config, actions=tuple(a for a in config.actions if a not in EVICTING))


class Survey(Struct, frozen=True, kw_only=True):
    """The results of one session."""

    at: float
    """Unix seconds that the session went by."""
    plan: Plan
    pending: tuple[PendingJob, ...]
    trees: tuple[QueueTree, ...]
    explanations: Mapping[str, JobExplanation]
    """By the key of the PodGroup."""


def decided(
    state: ClusterState,
    policy: DecisionPolicy,
    *,
    now: float,
    inspect: Inspect | None = None,
    without: Collection[str] = (),
) -> Plan:
    """Return the plan of one session. Jobs of the keys `without` have no turn.

    Plugins may note what they have chosen, as if it were acted on: call it within `Imagined`.
    """
    return decide(
        state,
        policy.config,
        now=now,
        seed=policy.seed,
        plugins=policy.plugins,
        sharding=policy.sharding,
        inspect=inspect,
        without=without,
    )


def survey(state: ClusterState, policy: DecisionPolicy, *, now: float) -> Survey:
    """Return what a session finds at `now`, in Unix seconds; it leaves nothing behind.

    Actions that evict are left out: what stops a job is known before, and a search for victims for
    each waiting job takes many times as long.
    """
    quiet = replace(policy, config=without_evictions(policy.config))
    found: list[Survey] = []

    def read(session: Session, plan: Plan) -> None:
        found.append(
            Survey(
                at=now,
                plan=plan,
                pending=pending_jobs(session, plan),
                trees=queue_trees(session, policy.config),
                explanations={why.job: why for why in plan.explanations},
            )
        )

    with Imagined(state):
        decided(state, quiet, now=now, inspect=read)
    return found[0]
