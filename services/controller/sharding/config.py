"""The configuration of shards: key `sharding.yaml` of a ConfigMap, or flags (S02).

Volcano's form:

    schedulerConfigs:
      - name: volcano
        type: volcano
        policies:
          - name: allocation-rate
            arguments: {minCPUUtil: 0.0, maxCPUUtil: 0.6}
          - name: node-limit
            arguments: {maxNodes: 100}
    shardSyncPeriod: 60s
    enableNodeEventTrigger: true

The older fields of a scheduler (`cpuUtilizationMin`, `preferWarmupNodes`, `maxNodes`, …) and the
flag `--scheduler-configs` stand for policies, and are turned into them here.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from services.controller.config_text import (
    BadConfigError,
    Wire,
    decoded,
    is_object_name,
    seconds,
)
from services.controller.sharding.plan import ShardSpec
from services.controller.sharding.policies import Weighted, policy_of
from shared.model.numbers import parse_bool

KEY: Final = "sharding.yaml"
_FIELDS: Final = 7
_INFINITE: Final = {"inf": 1.0, "infinity": 1.0, "-inf": 0.0, "-infinity": 0.0}


class PolicyEntry(Wire, frozen=True, kw_only=True):
    """One policy of a scheduler."""

    name: str
    weight: int = 0
    """0, as an absent weight, stands for 1."""
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)


class SchedulerEntry(Wire, frozen=True, kw_only=True):
    """One scheduler; all but its name and its policies are older forms."""

    name: str
    type: str = ""
    policies: tuple[PolicyEntry, ...] = ()
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)
    cpu_utilization_min: float = 0.0
    cpu_utilization_max: float = 0.0
    prefer_warmup_nodes: bool = False
    min_nodes: int = 0
    max_nodes: int = 0


class _File(Wire, frozen=True, kw_only=True):
    scheduler_configs: tuple[SchedulerEntry, ...] = ()
    shard_sync_period: str = ""
    enable_node_event_trigger: bool | None = None


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """The shards, and when nodes are assigned again."""

    shards: tuple[ShardSpec, ...] = ()
    """In the order in which they choose their nodes."""
    period_s: float = 60.0
    on_events: bool = True
    """Whether changes of nodes and of their pods are followed at once."""


def parse(text: str, base: Config) -> Config:
    """Return the configuration of a ConfigMap; `base` has the defaults. Raises BadConfigError."""
    file = decoded(text, KEY, _File)
    if not file.scheduler_configs:
        raise BadConfigError("schedulerConfigs is empty")
    events = file.enable_node_event_trigger
    return Config(
        shards=_shards(file.scheduler_configs, "schedulerConfigs"),
        period_s=seconds(file.shard_sync_period, "shardSyncPeriod") or base.period_s,
        on_events=base.on_events if events is None else events,
    )


def from_flags(texts: Sequence[str], *, period_s: float, on_events: bool) -> Config:
    """Return the configuration of the flags; BadConfigError names what is wrong with one."""
    entries = [_entry(text) for text in texts]
    shards = _shards(entries, "--scheduler-configs")
    return Config(shards=shards, period_s=period_s, on_events=on_events)


def _entry(text: str) -> SchedulerEntry:
    """Return `name:type:minUtil:maxUtil:preferWarmup:minNodes:maxNodes` as an entry."""
    words = text.split(":")
    if len(words) != _FIELDS:
        raise BadConfigError(
            f"--scheduler-configs: {text!r} has not {_FIELDS} parts between colons"
        )
    name, kind, low, high, warm, fewest, most = words
    prefer_warmup = parse_bool(warm)
    if prefer_warmup is None:
        raise BadConfigError(f"--scheduler-configs: {text!r}: {warm!r} is not a boolean")
    try:
        return SchedulerEntry(
            name=name,
            type=kind,
            cpu_utilization_min=_utilization(low),
            cpu_utilization_max=_utilization(high),
            prefer_warmup_nodes=prefer_warmup,
            min_nodes=int(fewest),
            max_nodes=int(most),
        )
    except ValueError as error:
        raise BadConfigError(f"--scheduler-configs: {text!r}: {error}") from error


def _utilization(text: str) -> float:
    return _INFINITE[text] if text in _INFINITE else float(text)


def _shards(entries: Sequence[SchedulerEntry], path: str) -> tuple[ShardSpec, ...]:
    seen: set[str] = set()
    found = []
    for number, entry in enumerate(entries):
        place = f"{path}[{number}]"
        if not is_object_name(entry.name):
            raise BadConfigError(f"{place}.name: {entry.name!r} is no name of a NodeShard")
        if entry.name in seen:
            raise BadConfigError(f"{place}.name: {entry.name!r} is there twice")
        seen.add(entry.name)
        policies = tuple(
            _policy(f"{place}.policies[{position}]", one)
            for position, one in enumerate(_policies(entry))
        )
        found.append(ShardSpec(name=entry.name, policies=policies))
    return tuple(found)


def _policies(entry: SchedulerEntry) -> list[PolicyEntry]:
    """Return the policies of a scheduler, those among them that older fields stand for."""
    found = list(entry.policies)
    if not found:
        bounds = {"minCPUUtil": entry.cpu_utilization_min, "maxCPUUtil": entry.cpu_utilization_max}
        found.append(PolicyEntry(name="allocation-rate", arguments=entry.arguments or bounds))
        if entry.prefer_warmup_nodes:
            found.append(PolicyEntry(name="warmup"))
    limited = entry.min_nodes != 0 or entry.max_nodes != 0
    if limited and all(one.name != "node-limit" for one in found):
        limits = {"minNodes": entry.min_nodes, "maxNodes": entry.max_nodes}
        found.append(PolicyEntry(name="node-limit", arguments=limits))
    return found


def _policy(place: str, entry: PolicyEntry) -> Weighted:
    if entry.weight < 0:
        raise BadConfigError(f"{place}.weight: {entry.weight} is below 0")
    try:
        return Weighted(policy_of(entry.name, entry.arguments), entry.weight or 1)
    except (ValueError, msgspec.ValidationError) as error:
        raise BadConfigError(f"{place} ({entry.name}): {error}") from error
