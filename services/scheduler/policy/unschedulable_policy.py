"""Decides by the configuration which jobs may enter the unschedulable pool.

An unschedulable job is not visited. That is right where a refusal rests on amounts that only become
scarcer in the course of a cycle, and where amounts alone decide: no clock, no plugin of another
distribution, no eviction before enqueue and allocate have run.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from services.scheduler.config import PluginOption, SchedulerConfig
from services.scheduler.policy.catalog import PLUGINS, Plugins

_REFUSING_BY_AMOUNTS: Final = frozenset(
    {
        "priority",
        "gang",
        "conformance",
        "overcommit",
        "drf",
        "predicates",
        "proportion",
        "capacity",
        "nodeorder",
        "binpack",
        "pdb",
        "cdp",
        "resource-strategy-fit",
        "reservation",
        "fairshare",
        "autoscaling",
        "minruntime",
        "limits",
    }
)
"""Plugins whose refusals rest on amounts; predicates may refuse for any reason.

`fairshare` changes the order of jobs with time: `SchedulerState` empties the pool when it does.
`reservation` depends on the clock, and says for which jobs it does (`Hooks.job_watched`).
`limits` gives users different answers, where tasks of different users are in different classes.
"""
_EVICTING: Final = frozenset(
    {"preempt", "reclaim", "shuffle", "gangpreempt", "gangreclaim", "defrag"}
)
_EVICTS_FOR_NO_TASK: Final = "shuffle"
_HOLDS_JOBS: Final = frozenset({"reservation", "limits"})
"""Hold back jobs that have room, so that job order alone does not say which of them gets it."""
_TELLS_USERS_APART: Final = "limits"
"""Admits jobs of one user and refuses equal ones of another; they have no pods yet, so no class."""
_DEVICES: Final = "capacity.DynamicResourceAllocationEnable"


class UnschedulablePolicy(NamedTuple):
    """Whether jobs that enqueue and allocate refuse may enter the pool."""

    at_enqueue: bool = False
    at_allocate: bool = False


def unschedulable_policy(
    config: SchedulerConfig, plugins: Plugins, *, contending: bool = False
) -> UnschedulablePolicy:
    """Return the actions after which jobs may enter the pool.

    With `contending`, jobs with pods may enter where actions evict after allocate, too: the
    caller asks whether evictions might make room for them (`policy.eviction_hints`).
    """
    if not decides_by_amounts(config, plugins):
        return UnschedulablePolicy()
    options = [option for tier in config.tiers for option in tier.plugins]
    actions = list(config.actions)
    first = next((at for at, name in enumerate(actions) if name in _EVICTING), len(actions))
    switches = {"enableJobReady", "enableJobPipelined", "enableJobStarving"}
    gangs = any(
        option.name == "gang" and all(option.flags[flag] for flag in switches) for option in options
    )
    by_user = any(option.name == _TELLS_USERS_APART for option in options)
    return UnschedulablePolicy(
        at_enqueue="enqueue" in actions[:first] and not by_user,
        at_allocate=gangs
        and "allocate" in actions[:first]
        and (first == len(actions) or (contending and _asks_all(config, actions[first:]))),
    )


def _asks_all(config: SchedulerConfig, actions: Sequence[str]) -> bool:
    """Tell whether amounts and victims alone decide what a gang can gain in these actions."""
    names = {option.name for tier in config.tiers for option in tier.plugins}
    return (
        _HOLDS_JOBS.isdisjoint(names)
        and "allocate" not in actions
        and _EVICTS_FOR_NO_TASK not in actions
    )


def decides_by_amounts(config: SchedulerConfig, plugins: Plugins) -> bool:
    """Tell whether all plugins read amounts, priorities and counts of jobs, and nothing else.

    Two jobs of a queue that have the same of these get the same answers then.
    """
    return all(
        _refuses_by_amounts(option, plugins) for tier in config.tiers for option in tier.plugins
    )


def _refuses_by_amounts(option: PluginOption, plugins: Plugins) -> bool:
    name = option.name
    if name not in _REFUSING_BY_AMOUNTS or plugins[name] is not PLUGINS[name]:
        return False
    return not option.arguments.get(_DEVICES) and not option.flags["enableHierarchy"]
