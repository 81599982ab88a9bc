"""Translates the cluster state of a case into facts for the production fold.

Only what a real object always has is filled in: uids, our scheduler's name, names of containers;
and what an absent Go field means where the API's default would be another (an empty phase, a
weight of 0).
"""

import copy
import math
from typing import Any

import msgspec

from services.scheduler.adapters.expressions import waiting_evaluator
from services.scheduler.config import FLAG_DEFAULTS, PluginOption, SchedulerConfig, Tier
from services.scheduler.engine.state.cluster_state import ClusterState
from services.scheduler.policy.catalog import ACTIONS, PLUGINS, states
from services.scheduler.policy.states.usage import NodeUsage, UsageTable
from shared.api import kinds
from shared.api import time as times
from tests.conformance.custom_plugins import CUSTOM_PLUGINS
from tests.conformance.report import Unsupported

KNOWN_PLUGINS = {**PLUGINS, **CUSTOM_PLUGINS}
_LOST_ARGUMENTS: dict[str, dict[str, Any]] = {
    # By its title the case weighs memory more; of all weights from 1 to 5 these alone give the
    # recorded scores.
    "scheduler/usage/TestUsage_nodeOrderFn-01": {"cpu.weight": 1, "memory.weight": 4},
}
"""Arguments that were lost when a case was recorded, by the id of the case; none where the recorded
outcome is that of the defaults."""


def cluster_state_of(given: dict[str, Any]) -> ClusterState:
    """Return a cluster state that holds the given objects, applied in the order of the README."""
    cluster_state = ClusterState(("volcano",), states(evaluator=waiting_evaluator()))
    for kind, objects in (
        (kinds.NODE, given.get("nodes", [])),
        (kinds.POD, [_pod(obj) for obj in given.get("pods", [])]),
        (kinds.PODGROUP, [_group(obj) for obj in given.get("podgroups", [])]),
        (kinds.QUEUE, [_queue(obj) for obj in given.get("queues", [])]),
        (kinds.PRIORITYCLASS, given.get("priorityClasses", [])),
        (kinds.STORAGECLASS, given.get("storageClasses", [])),
        (kinds.PV, given.get("pvs", [])),
        (kinds.PVC, given.get("pvcs", [])),
        (kinds.RESOURCECLAIM, given.get("resourceClaims", [])),
        (kinds.DEVICECLASS, given.get("deviceClasses", [])),
        (kinds.RESOURCESLICE, given.get("resourceSlices", [])),
        (kinds.RESOURCEQUOTA, given.get("resourceQuotas", [])),
        (kinds.HYPERNODE, given.get("hyperNodes", [])),
        (kinds.NUMATOPOLOGY, given.get("numatopologies", [])),
    ):
        for obj in objects:
            view = _view(kind, _with_uid(obj))
            cluster_state.put(kind.token, view.metadata.key, view.metadata.uid, view)
    return cluster_state


def now_of(case: dict[str, Any]) -> float:
    """Return the clock of the recorded run, 0 where no plugin depends on it."""
    return times.parse(case["now"]) if "now" in case else 0.0


def measure(cluster_state: ClusterState, case: dict[str, Any]) -> None:
    """Put the load of nodes in; a sample without age was never taken."""
    for node, stated in case["given"].get("nodeUsage", {}).items():
        age = stated.get("ageSeconds")
        measured = -math.inf if age is None else now_of(case) - age
        cpu, memory = (
            next(iter(stated.get(key, {}).values()), 0.0) for key in ("cpuUsageAvg", "memUsageAvg")
        )
        cluster_state.store(UsageTable).put(node, NodeUsage(cpu, memory, measured))


def whole(case: dict[str, Any]) -> dict[str, Any]:
    """Return the case with the arguments of plugins that its recording lost."""
    lost = _LOST_ARGUMENTS.get(case.get("id", ""))
    if lost is None:
        return case
    case = copy.deepcopy(case)
    for tier in case["conf"]["tiers"]:
        for plugin in tier["plugins"]:
            if _is_lost(plugin):
                plugin["arguments"] = lost
    return case


def _is_lost(plugin: dict[str, Any]) -> bool:
    """Tell whether the recording holds an error message in place of a plugin's arguments."""
    return isinstance(plugin.get("arguments"), str)


def _view(kind: kinds.Kind, obj: dict[str, Any]) -> Any:
    """Return the view of an object, with names of queues that the API server would refuse."""
    spec = obj.get("spec", {})
    name = {"PodGroup": "queue", "Queue": "parent"}.get(kind.kind, "")
    stated = spec.pop(name, None)
    view = msgspec.convert(obj, kind.type, strict=False)
    if stated is None:
        return view
    return msgspec.structs.replace(view, spec=msgspec.structs.replace(view.spec, **{name: stated}))


def config_of(conf: dict[str, Any]) -> SchedulerConfig:
    """Return the configuration; all flags are explicit, absent ones are off (README)."""
    for name in conf.get("actions", []):
        if name not in ACTIONS:
            raise Unsupported(f"action {name}")
    tiers = []
    for tier in conf.get("tiers", []):
        options = []
        for plugin in tier.get("plugins", []):
            if plugin["name"] not in KNOWN_PLUGINS:
                raise Unsupported(f"plugin {plugin['name']}")
            flags = {flag: bool(plugin.get(flag, False)) for flag in FLAG_DEFAULTS}
            options.append(
                PluginOption(name=plugin["name"], flags=flags, arguments=_arguments(plugin))
            )
        tiers.append(Tier(plugins=tuple(options)))
    arguments = {entry["name"]: entry["arguments"] for entry in conf.get("configurations") or []}
    return SchedulerConfig(
        actions=tuple(conf.get("actions", [])),
        tiers=tuple(tiers),
        arguments=arguments,
        volcano_evictions=True,
    )


def _arguments(plugin: dict[str, Any]) -> dict[str, Any]:
    """Return a plugin's arguments; none where they were lost (`whole`)."""
    return {} if _is_lost(plugin) else plugin.get("arguments") or {}


def _with_uid(obj: dict[str, Any]) -> dict[str, Any]:
    obj = copy.deepcopy(obj)
    meta = obj.setdefault("metadata", {})
    meta.setdefault("uid", f"{meta.get('namespace', '')}/{meta.get('name', '')}")
    return obj


def _pod(obj: dict[str, Any]) -> dict[str, Any]:
    obj = copy.deepcopy(obj)
    spec = obj.setdefault("spec", {})
    spec.setdefault("schedulerName", "volcano")
    obj.setdefault("status", {}).setdefault("phase", "")
    for container in (*spec.get("containers", []), *spec.get("initContainers", [])):
        container.setdefault("name", "c")
    return obj


def _group(obj: dict[str, Any]) -> dict[str, Any]:
    obj = copy.deepcopy(obj)
    spec = obj.setdefault("spec", {})
    spec.setdefault("queue", "")
    if spec["queue"] == "":
        raise Unsupported("a PodGroup without a queue, which the API cannot hold")
    return obj


def _queue(obj: dict[str, Any]) -> dict[str, Any]:
    obj = copy.deepcopy(obj)
    # A Go queue may lack a weight; the API gives it 1, and no plugin but proportion reads it.
    obj.setdefault("spec", {}).setdefault("weight", 1)
    return obj
