"""`decide`: one scheduling cycle from replica and configuration to plan.

The composition of engine and policy: the only module that knows both a session and the catalogue.
Pure and synchronous; the shell runs it in a worker thread and publishes the plan.
"""

import enum
from collections.abc import Callable, Collection
from typing import Final

from services.scheduler.config import DEFAULT_TEXT, BadConfig, SchedulerConfig, parse
from services.scheduler.engine.hooks import Registrar
from services.scheduler.engine.judge import (
    judge_asides,
    judge_group,
    judge_pods,
    judge_queues,
    judge_reason,
    judge_stray_pods,
    judge_strays,
)
from services.scheduler.engine.plan import (
    Explanation,
    Plan,
    PodConditionWanted,
    PodGroupStatusWanted,
    QueueAllocated,
)
from services.scheduler.engine.replica import Replica
from services.scheduler.engine.session import Session
from services.scheduler.engine.sharding import UNSHARDED, Mode, Sharding
from services.scheduler.engine.wording import Wording
from services.scheduler.foreign import ForeignPlugin
from services.scheduler.policy.arguments import BadArgument
from services.scheduler.policy.catalog import ACTIONS, ARGUMENTS, PLUGINS, Plugins

_JUDGE: Final = "judge"


class Part(enum.Enum):
    """A part of a cycle whose end is told to a stopwatch."""

    BEGUN = "begun"
    """Nothing yet: what follows is measured from here."""
    PLUGIN = "plugin"
    """One plugin has contributed, since the part before it."""
    OPENED = "opened"
    """The session is open, since the beginning."""
    ACTION = "action"
    """One action has run, since the part before it."""


Stopwatch = Callable[[Part, str], None]
"""Hears of each part as it ends, and of which plugin or action it was; time is its own affair."""
Look = Callable[[Session], None]
"""Sees the session as actions left it, and changes nothing."""


def untimed(_: Part, __: str) -> None:
    """Take no time."""


def _unseen(_: Session) -> None:
    """Look at nothing."""


def configure(text: str = DEFAULT_TEXT, *, plugins: Plugins = PLUGINS) -> SchedulerConfig:
    """Return a configuration that `decide` accepts. Raises `BadConfig` naming the place."""
    config = parse(text, actions=ACTIONS.keys(), plugins=plugins.keys())
    for number, tier in enumerate(config.tiers):
        for option in tier.plugins:
            try:
                build = plugins[option.name]
                check = build.check if isinstance(build, ForeignPlugin) else build
                check(option.arguments)
            except BadArgument as error:
                raise BadConfig(f"tiers[{number}], plugin {option.name}: {error}") from error
    for action, read in ARGUMENTS.items():
        try:
            read(config.arguments.get(action, {}))
        except BadArgument as error:
            raise BadConfig(f"configurations, action {action}: {error}") from error
    return config


def open_session(
    replica: Replica,
    config: SchedulerConfig,
    *,
    now: float,
    seed: int = 0,
    cycle: int = 0,
    plugins: Plugins = PLUGINS,
    ended: Stopwatch = untimed,
    without: Collection[str] = (),
) -> Session:
    """Return a session with all plugins' contributions. The caller closes it."""
    ended(Part.BEGUN, "")
    session = Session(
        replica, now=now, seed=seed, cycle=cycle, actions=config.actions, without=without
    )
    for number, tier in enumerate(config.tiers):
        for option in tier.plugins:
            identity = f"{option.name}{sorted(option.arguments.items(), key=str)}"
            hooks = Registrar(session.hooks, tier=number, flags=option.flags, identity=identity)
            plugins[option.name](option.arguments).contribute(hooks, session)
            ended(Part.PLUGIN, option.name)
    session.tell_apart()
    ended(Part.OPENED, "")
    return session


def run_actions(session: Session, config: SchedulerConfig, *, ended: Stopwatch = untimed) -> None:
    """Run the configured actions in order (SS01)."""
    for action in config.actions:
        with session.apart(action):
            ACTIONS[action](session, config.arguments.get(action, {}))
        ended(Part.ACTION, action)


def decide(
    replica: Replica,
    config: SchedulerConfig,
    *,
    now: float,
    seed: int = 0,
    cycle: int = 0,
    plugins: Plugins = PLUGINS,
    sharding: Sharding = UNSHARDED,
    ended: Stopwatch = untimed,
    look: Look = _unseen,
    without: Collection[str] = (),
) -> Plan:
    """Return what this cycle wants. The replica is the same before and after.

    `now` is unix seconds; `seed` turns ties between equal nodes; the same arguments give the same
    plan, whoever measures the time or looks on. Jobs of the keys `without` have no turn. A job that
    an error meets is left out (`engine.asides`). Raises `BrokenOff`: the replica is spoilt then.
    """
    session = open_session(
        replica,
        config,
        now=now,
        seed=seed,
        cycle=cycle,
        plugins=plugins,
        ended=ended,
        without=without,
    )
    if sharding.mode is not Mode.NONE:
        names = replica.shards.get(sharding.name, ())
        session.join_shard(names, hard=sharding.mode is Mode.HARD)
    try:
        run_actions(session, config, ended=ended)
        plan = conclude(session)
        look(session)
    finally:
        session.close()
    return plan


def conclude(session: Session) -> Plan:
    """Return the plan of a session whose actions have run."""
    wording = Wording(session)
    groups: list[PodGroupStatusWanted] = []
    reasons: list[Explanation] = []
    pods: list[PodConditionWanted] = []
    for job in session.visited():
        with session.apart(_JUDGE, job):
            wanted = judge_group(session, wording, job)
            reason = judge_reason(session, wording, job)
            pods += judge_pods(session, wording, job)
            groups += [wanted] if wanted else []
            reasons += [reason] if reason else []
    with session.apart(_JUDGE):
        for stray, wanted in judge_strays(session):
            reasons.append(stray)
            groups += [wanted] if wanted else []
        pods += judge_stray_pods(session)
    queues: list[QueueAllocated] = []
    with session.apart(_JUDGE):
        queues += judge_queues(session)
    if session.asides.found:
        groups = judge_asides(session, groups)
    return Plan(
        cycle=session.cycle,
        binds=session.binds,
        evictions=tuple(session.evictions),
        nominations=tuple(session.nominations),
        podgroups=tuple(groups),
        pods=tuple(pods),
        queues=tuple(queues),
        explanations=tuple(reasons),
    )
