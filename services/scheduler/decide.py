"""`decide`: one scheduling cycle from cluster state and configuration to plan.

The composition of engine and policy: the only module that knows both a session and the catalogue.
Pure and synchronous; the shell runs it in a worker thread and publishes the plan.
"""

import enum
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from services.scheduler.config import DEFAULT_TEXT, BadConfig, SchedulerConfig, hint, parse
from services.scheduler.engine.placement.hooks import Registrar
from services.scheduler.engine.plan import (
    DesiredPodCondition,
    DesiredPodGroupStatus,
    GateLifted,
    JobExplanation,
    Plan,
    QueueAllocated,
)
from services.scheduler.engine.progress import Progress, Step
from services.scheduler.engine.session.activation import activate
from services.scheduler.engine.session.exclusions import Quarantined
from services.scheduler.engine.session.session import Session
from services.scheduler.engine.state.cluster_state import ClusterState
from services.scheduler.engine.state.shards import UNSHARDED, Sharding, ShardMode
from services.scheduler.engine.status.messages import Wording
from services.scheduler.engine.status.pod_conditions import pod_conditions, stray_pod_conditions
from services.scheduler.engine.status.statuses import (
    explanation_of,
    group_status,
    queue_statuses,
    stray_group_statuses,
    with_exclusions,
)
from services.scheduler.foreign import ForeignPlugin
from services.scheduler.policy.actions.claimants import take_first_turns
from services.scheduler.policy.arguments import (
    HARMLESS,
    HARMLESS_OF_ACTIONS,
    BadArgument,
    ReadArguments,
)
from services.scheduler.policy.catalog import ACTIONS, ARGUMENTS, PLUGINS, Plugins
from services.scheduler.policy.states.queue_gates import QueueGates
from services.scheduler.policy.unschedulable_policy import decides_by_amounts

_STATUS: Final = "status"
NO_QUARANTINE: Final[Mapping[str, str]] = MappingProxyType({})


class CyclePart(enum.Enum):
    """A part of a cycle whose duration is measured."""

    BEGUN = "begun"
    """Nothing yet: what follows is measured from here."""
    PLUGIN = "plugin"
    """One plugin has contributed, since the part before it."""
    OPENED = "opened"
    """The session is open, since the beginning."""
    ACTION = "action"
    """One action has run, since the part before it."""


Stopwatch = Callable[[CyclePart, str], None]
"""Called at the end of each part with the name of its plugin or action; it has its own clock."""
Inspect = Callable[[Session, Plan], None]
"""Called with the session after its actions, and with the plan; changes nothing."""


def untimed(_: CyclePart, __: str) -> None:
    """Take no time."""


def configure(text: str = DEFAULT_TEXT, *, plugins: Plugins = PLUGINS) -> SchedulerConfig:
    """Return a configuration that `decide` accepts. Raises `BadConfig` naming the place."""
    config = parse(text, actions=ACTIONS.keys(), plugins=plugins.keys())
    if config.volcano_evictions and "defrag" in config.actions:
        raise BadConfig("actions: with volcanoEvictions, defrag cannot keep the room that it makes")
    warnings = list(config.warnings)
    for number, tier in enumerate(config.tiers):
        for option in tier.plugins:
            place = f"tiers[{number}], plugin {option.name}"
            build = plugins[option.name]
            try:
                if isinstance(build, ForeignPlugin):
                    build.check(option.arguments)
                    continue
                arguments = ReadArguments(option.arguments)
                build(arguments)
            except BadArgument as error:
                raise BadConfig(f"{place}: {error}") from error
            harmless = HARMLESS.get(option.name, frozenset())
            warnings += _unread(arguments, place, harmless)
    for action in {**ARGUMENTS, **config.arguments}:
        arguments = ReadArguments(config.arguments.get(action, {}))
        place = f"configurations, action {action}"
        try:
            if action in ARGUMENTS:
                ARGUMENTS[action](arguments)
        except BadArgument as error:
            raise BadConfig(f"{place}: {error}") from error
        warnings += _unread(arguments, place, HARMLESS_OF_ACTIONS)
    return replace(config, warnings=tuple(warnings))


def _unread(arguments: ReadArguments, place: str, harmless: Collection[str]) -> Iterator[str]:
    """Yield a warning for each argument that nothing reads."""
    for key, known in arguments.unread():
        if key not in harmless:
            yield f"{place}: there is no argument {key!r}, so it has no effect{hint(key, known)}"


def open_session(
    cluster_state: ClusterState,
    config: SchedulerConfig,
    *,
    now: float,
    seed: int = 0,
    cycle: int = 0,
    plugins: Plugins = PLUGINS,
    ended: Stopwatch = untimed,
    without: Collection[str] = (),
    progress: Progress | None = None,
) -> Session:
    """Return a session with all plugins' contributions. The caller closes it."""
    ended(CyclePart.BEGUN, "")
    progress = progress or Progress()
    session = Session(
        cluster_state,
        now=now,
        seed=seed,
        cycle=cycle,
        actions=config.actions,
        without=without,
        equal_jobs_fail_equally=decides_by_amounts(config, plugins),
        progress=progress,
    )
    session.volcano_evictions = config.volcano_evictions
    session.grow(config.autoscaler_limits)
    for number, tier in enumerate(config.tiers):
        for option in tier.plugins:
            identity = f"{option.name}{sorted(option.arguments.items(), key=str)}"
            hooks = Registrar(session.hooks, tier=number, flags=option.flags, identity=identity)
            before = progress.begin(Step(f"open {option.name}"))
            plugins[option.name](option.arguments).contribute(hooks, session)
            progress.begin(before)
            ended(CyclePart.PLUGIN, option.name)
    session.add_traits()
    ended(CyclePart.OPENED, "")
    return session


def keep_to_shard(session: Session, sharding: Sharding) -> None:
    """Have a session use, or prefer, the nodes of its scheduler's shard (CA12)."""
    if sharding.mode is not ShardMode.NONE:
        hard, shards = sharding.mode is ShardMode.HARD, session.cluster_state.shards
        names = shards.usable(sharding.name) if hard else shards.claimed(sharding.name)
        session.join_shard(names, hard=hard)


def run_actions(session: Session, config: SchedulerConfig, *, ended: Stopwatch = untimed) -> None:
    """Run the configured actions in order (SS01).

    Jobs for which others were evicted are placed before all else (`policy.actions.claimants`).
    """
    claim_room = "allocate" in config.actions and not config.volcano_evictions
    for action in config.actions:
        if claim_room and action != "enqueue":
            claim_room = False
            with session.isolate("allocate"):
                take_first_turns(session)
        with session.isolate(action):
            ACTIONS[action](session, config.arguments.get(action, {}))
        ended(CyclePart.ACTION, action)


def decide(
    cluster_state: ClusterState,
    config: SchedulerConfig,
    *,
    now: float,
    seed: int = 0,
    cycle: int = 0,
    plugins: Plugins = PLUGINS,
    sharding: Sharding = UNSHARDED,
    ended: Stopwatch = untimed,
    inspect: Inspect | None = None,
    without: Collection[str] = (),
    quarantined: Mapping[str, str] = NO_QUARANTINE,
    progress: Progress | None = None,
) -> Plan:
    """Return the plan of this cycle. The cluster state is the same before and after.

    `now` is Unix seconds; `seed` breaks ties between equal nodes; the same arguments give the same
    plan, also if `ended` or `inspect` fails. Jobs with keys in `without` are not visited, and
    neither are those in `quarantined`, whose status says the reason given. A job whose handling
    raises an error is left out (`engine.session.exclusions`). Raises `BrokenOff` when the cluster
    state can no longer be trusted.

    A cycle that evicts while gangs are in the unschedulable pool is run a second time with all
    gangs (ADR 22).
    """
    opened = partial(
        open_session,
        cluster_state,
        config,
        now=now,
        seed=seed,
        cycle=cycle,
        plugins=plugins,
        ended=ended,
        without={*without, *quarantined},
        progress=progress,
    )
    for again in (False, True):
        session = opened()
        session.quarantine(quarantined)
        keep_to_shard(session, sharding)
        try:
            activate(session, again=again)
            run_actions(session, config, ended=ended)
            if _leaves_out_contenders(session):
                continue
            plan = conclude(session)
            if inspect is not None:
                inspect(session, plan)
            return plan
        finally:
            session.close()
    raise AssertionError("no gang is unschedulable when a cycle is run again")


def _leaves_out_contenders(session: Session) -> bool:
    """Tell whether evictions might concern unschedulable gangs; if so, activate them all."""
    jobs = session.cluster_state.jobs
    if not len(jobs.unschedulable.at_allocate) or not (session.evictions or session.contenders):
        return False
    jobs.unschedulable.note_contenders(session.contenders, session.now)
    jobs.activate_at_allocate()
    return True


def conclude(session: Session) -> Plan:
    """Return the plan of a session whose actions have run."""
    wording = Wording(session)
    groups: list[DesiredPodGroupStatus] = []
    reasons: list[JobExplanation] = []
    pods: list[DesiredPodCondition] = []
    for job in session.visited():
        with session.isolate(_STATUS, job):
            desired = group_status(session, wording, job)
            reason = explanation_of(session, wording, job)
            pods += pod_conditions(session, wording, job)
            groups += [desired] if desired else []
            reasons += [reason] if reason else []
    for exclusion in session.exclusions.found.values():
        if isinstance(exclusion.error, Quarantined):
            reasons.append(session.explanations[exclusion.key])
    with session.isolate(_STATUS):
        for leftover, desired in stray_group_statuses(session):
            reasons.append(leftover)
            groups += [desired] if desired else []
        pods += stray_pod_conditions(session)
    queues: list[QueueAllocated] = []
    with session.isolate(_STATUS):
        queues += queue_statuses(session)
    if session.exclusions.found:
        groups = with_exclusions(session, groups)
    if session.cluster_state.single_pods:
        groups, queues = [], []  # the objects do not exist
    return Plan(
        cycle=session.cycle,
        binds=session.binds,
        evictions=tuple(session.evictions),
        nominations=tuple(session.nominations),
        podgroups=tuple(groups),
        pods=tuple(pods),
        queues=tuple(queues),
        lifted=tuple(
            GateLifted(key=task.key, uid=uid)
            for uid, task in session.store(QueueGates).lifted.items()
        ),
        explanations=tuple(reasons),
    )
