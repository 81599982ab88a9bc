"""The scheduler's configuration file, of Volcano's form (K01 to K05, K07).

Pure parser: text in, `SchedulerConfig` out; the shell reads the file and keeps the old
configuration when this one raises `BadConfig`. Every message names the place in the file. Unknown
keys are refused. Volcano ignores an unknown plugin (K04), an unknown argument, and an entry of
`configurations` for no action; these only cause a warning.
"""

import difflib
from collections.abc import Collection, Mapping
from typing import Any, Final

import yaml
from msgspec import Struct, field

from shared.model import durations
from shared.model.quantity import is_quantity

FLAG_DEFAULTS: Final[Mapping[str, bool]] = {
    "enableJobOrder": True,
    "enableHierarchy": False,
    "enableJobReady": True,
    "enableJobPipelined": True,
    "enableTaskOrder": True,
    "enablePreemptable": True,
    "enableReclaimable": True,
    "enablePreemptive": True,
    "enableQueueOrder": True,
    "enabledClusterOrder": False,
    "enablePredicate": True,
    "enableBestNode": True,
    "enableNodeOrder": True,
    "enableTargetJob": True,
    "enableReservedNodes": True,
    "enableJobEnqueued": True,
    "enabledVictim": True,
    "enableJobStarving": True,
    "enabledOverused": True,
    "enabledAllocatable": True,
    "enabledHyperNodeOrder": True,
    "enabledSubJobReady": True,
    "enabledSubJobPipelined": True,
    "enabledSubJobOrder": True,
    "enabledHyperNodeGradient": True,
}
"""Plugin flags and defaults. ⚠ The mixed `enable`/`enabled` is part of the contract (K02)."""

DEFAULT_TEXT: Final = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: overcommit
  - name: drf
  - name: predicates
  - name: proportion
  - name: nodeorder
"""
"""The configuration without a file (K05)."""

SINGLE_PODS_TEXT: Final = """\
actions: "allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: predicates
  - name: nodeorder
"""
"""The same where each pod is placed by itself; `backfill` places those that ask for nothing."""


class BadConfig(ValueError):  # noqa: N818 - reads as the fact it states
    """The configuration cannot be used; the message names the place and what to do."""


class PluginOption(Struct, frozen=True, kw_only=True):
    """One plugin in a tier."""

    name: str
    flags: Mapping[str, bool]
    """All of `FLAG_DEFAULTS`, as set or by default."""
    arguments: Mapping[str, Any] = field(default_factory=dict)


class Tier(Struct, frozen=True, kw_only=True):
    """Plugins that are asked together."""

    plugins: tuple[PluginOption, ...] = ()


class MetricsOption(Struct, frozen=True, kw_only=True):
    """The source of node usage (K03)."""

    type: str = ""
    """`prometheus`, `prometheus_adaptor` or `elasticsearch`; empty: no source."""
    address: str = ""
    interval_s: float = 30.0
    insecure: bool = False
    """Whether any certificate of the source is taken."""
    index: str = "metricbeat-*"
    username: str = ""
    password: str = ""


class SchedulerConfig(Struct, frozen=True, kw_only=True):
    """A checked configuration."""

    actions: tuple[str, ...]
    tiers: tuple[Tier, ...]
    arguments: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Action → its arguments (`configurations` in the file, K07)."""
    metrics: MetricsOption = MetricsOption()
    volcano_evictions: bool = False
    """Whether evictions are Volcano's (`volcanoEvictions`), which may repeat themselves."""
    autoscaler_limits: Mapping[str, str] = field(default_factory=dict)
    """Resource → quantity to which autoscalers may grow the cluster (`autoscalerLimits`)."""
    warnings: tuple[str, ...] = ()
    """Parts that were skipped; the service logs them."""


_KEYS: Final = frozenset(
    {"actions", "tiers", "configurations", "metrics", "volcanoEvictions", "autoscalerLimits"}
)
_OF_OTHERS: Final = frozenset({"init-params"})
"""Entries of `configurations` for plugins of vendors: MindCluster's reads `init-params`."""
_RETIRED: Final = "; Volcano has none any more either: remove it"
_METRICS_KEYS: Final = frozenset(
    {
        "type",
        "address",
        "interval",
        "tls.insecureSkipVerify",
        "elasticsearch.index",
        "elasticsearch.username",
        "elasticsearch.password",
    }
)


def parse(text: str, *, actions: Collection[str], plugins: Collection[str]) -> SchedulerConfig:
    """Return the configuration that the text states.

    `actions` and `plugins` are the names that are known. Raises `BadConfig`.
    """
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        advice = "; indent with spaces, not with tabs" if "'\\t'" in str(error) else ""
        raise BadConfig(f"the scheduler configuration is no YAML: {error}{advice}") from error
    if document is None:
        raise BadConfig(
            "the scheduler configuration is empty: state at least `actions` and `tiers`, or leave "
            "--scheduler-conf out for the default"
        )
    root = _mapping(document, "the scheduler configuration")
    if set(root) >= {"kind", "data"}:
        inside = next(iter(root["data"]), "") if isinstance(root["data"], dict) else ""
        raise BadConfig(
            "this is a whole ConfigMap: the configuration is the text in it, below "
            f"data.{inside or 'volcano-scheduler.conf'}"
        )
    _known(root, _KEYS, "")
    volcano_evictions = root.get("volcanoEvictions", False)
    if not isinstance(volcano_evictions, bool):
        raise BadConfig(f"volcanoEvictions: must be true or false, is {volcano_evictions!r}")
    warnings: list[str] = []
    tiers = _tiers(root.get("tiers"), plugins, warnings)
    if {"proportion", "capacity"} <= {o.name for tier in tiers for o in tier.plugins}:
        warnings.append(
            "tiers: proportion and capacity share the cluster among queues by two rules, and both "
            "hold; keep the one that your queues are written for"
        )
    return SchedulerConfig(
        actions=_actions(root.get("actions"), actions),
        tiers=tiers,
        arguments=_configurations(root.get("configurations"), actions, warnings),
        metrics=_metrics(root.get("metrics")),
        volcano_evictions=volcano_evictions,
        autoscaler_limits=_amounts(root.get("autoscalerLimits") or {}, "autoscalerLimits"),
        warnings=tuple(warnings),
    )


def _actions(value: object, known: Collection[str]) -> tuple[str, ...]:
    if not isinstance(value, str) or not value.strip():
        raise BadConfig(
            'actions: give a comma separated list such as "enqueue, allocate, backfill"'
        )
    names = tuple(name.strip() for name in value.split(",") if name.strip())
    for name in names:
        if name not in known:
            why = _RETIRED if name in ("elect", "reserve") else hint(name, known)
            raise BadConfig(f"actions: there is no action {name!r}{why}")
    return names


def _tiers(value: object, known: Collection[str], warnings: list[str]) -> tuple[Tier, ...]:
    tiers = []
    for number, item in enumerate(_sequence(value, "tiers")):
        path = f"tiers[{number}]"
        tier = _mapping(item, path)
        _known(tier, {"plugins"}, path)
        options = []
        for at, entry in enumerate(_sequence(tier.get("plugins"), f"{path}.plugins")):
            option = _plugin(entry, f"{path}.plugins[{at}]")
            if option.name in known:
                options.append(option)
            else:
                warnings.append(
                    f"{path}.plugins[{at}].name: there is no plugin "
                    f"{option.name!r}{hint(option.name, known)}; skipped"
                )
        _check_hierarchy(options, path)
        tiers.append(Tier(plugins=tuple(options)))
    return tuple(tiers)


def _plugin(entry: object, path: str) -> PluginOption:
    given = _mapping(entry, path)
    _no_stray_arguments(given, path)
    name = given.get("name")
    if not isinstance(name, str) or not name:
        raise BadConfig(f"{path}.name: a plugin needs a name")
    flags = dict(FLAG_DEFAULTS)
    for flag in FLAG_DEFAULTS:
        if flag in given:
            value = given[flag]
            if not isinstance(value, bool):
                raise BadConfig(f"{path}.{flag}: must be true or false, is {value!r}")
            flags[flag] = value
    arguments = given.get("arguments")
    return PluginOption(
        name=name,
        flags=flags,
        arguments={} if arguments is None else _mapping(arguments, f"{path}.arguments"),
    )


def _no_stray_arguments(given: Mapping[str, Any], path: str) -> None:
    """Reject unknown keys in a plugin's entry; most are arguments at the wrong level."""
    known = {"name", "arguments", *FLAG_DEFAULTS}
    for key in given:
        if key not in known and not difflib.get_close_matches(key, known, n=1):
            raise BadConfig(
                f"{path}.{key}: a plugin's entry has no such key; if it is an argument of "
                f"{given.get('name')!r}, indent it below `arguments:`"
            )
    _known(given, known, path)


def _check_hierarchy(options: list[PluginOption], path: str) -> None:
    names = {option.name for option in options}
    hierarchical = any(o.name == "drf" and o.flags["enableHierarchy"] for o in options)
    if hierarchical and "proportion" in names:
        raise BadConfig(
            f"{path}: drf with enableHierarchy and proportion contradict each other in one tier; "
            "move one of them to another tier (K04)"
        )


def _configurations(
    value: object, known: Collection[str], warnings: list[str]
) -> dict[str, Mapping[str, Any]]:
    """Return the arguments of actions; an entry for anything else has no effect, as in Volcano."""
    found: dict[str, Mapping[str, Any]] = {}
    for at, item in enumerate(_sequence(value, "configurations")):
        path = f"configurations[{at}]"
        entry = _mapping(item, path)
        _known(entry, {"name", "arguments"}, path)
        name = entry.get("name")
        if not isinstance(name, str) or not name:
            raise BadConfig(f"{path}.name: an entry needs the name of an action")
        arguments = _mapping(entry.get("arguments") or {}, f"{path}.arguments")
        if name in known:
            found[name] = arguments
        elif name not in _OF_OTHERS:
            warnings.append(
                f"{path}.name: there is no action {name!r}, so it has no effect{hint(name, known)}"
            )
    return found


def _metrics(value: object) -> MetricsOption:
    if value is None:
        return MetricsOption()
    given = _mapping(value, "metrics")
    _known(given, _METRICS_KEYS, "metrics")
    kind = str(given.get("type", ""))
    if kind not in {"", "prometheus", "prometheus_adaptor", "elasticsearch"}:
        raise BadConfig(
            f"metrics.type: {kind!r} is not prometheus, prometheus_adaptor or elasticsearch"
        )
    texts = {key: "" if text is None else str(text) for key, text in given.items()}
    address = texts.get("address", "")
    if kind and not address.startswith(("http://", "https://")):
        raise BadConfig(f"metrics.address: {address!r} is no http:// or https:// address")
    insecure = texts.get("tls.insecureSkipVerify", "false").lower()
    if insecure not in {"true", "false"}:
        raise BadConfig(f"metrics.tls.insecureSkipVerify: {insecure!r} is neither true nor false")
    return MetricsOption(
        type=kind,
        address=address.rstrip("/"),
        interval_s=_interval_s(texts.get("interval", "30s")),
        insecure=insecure == "true",
        index=texts.get("elasticsearch.index") or "metricbeat-*",
        username=texts.get("elasticsearch.username", ""),
        password=texts.get("elasticsearch.password", ""),
    )


def _amounts(value: object, path: str) -> dict[str, str]:
    """Return a Kubernetes resource list."""
    given = {name: str(amount) for name, amount in _mapping(value, path).items()}
    for name, amount in given.items():
        if not is_quantity(amount):
            raise BadConfig(f"{path}.{name}: {amount!r} is no quantity such as 64 or 1Ti")
    return given


def _interval_s(text: str) -> float:
    interval_s = durations.parse(text)
    if interval_s is None or interval_s <= 0:
        raise BadConfig(f"metrics.interval: {text!r} is no duration above 0 such as 30s")
    return interval_s


def _mapping(value: object, path: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise BadConfig(f"{path}: must be a mapping, is {type(value).__name__}")
    return value


def _sequence(value: object, path: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadConfig(f"{path}: must be a list, is {type(value).__name__}")
    return value


def _known(given: Mapping[str, Any], known: Collection[str], path: str) -> None:
    for key in given:
        if key not in known:
            place = f"{path}.{key}" if path else key
            raise BadConfig(f"{place}: there is no such key{hint(key, known)}")


def hint(name: str, known: Collection[str]) -> str:
    """Return the most similar known name, or all of them, for the end of a message."""
    near = difflib.get_close_matches(name, sorted(known), n=1)
    return (
        f"; did you mean {near[0]!r}?"
        if near
        else f" (known: {', '.join(sorted(known)) or 'none'})"
    )
