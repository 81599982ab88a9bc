"""The cases: those of Volcano's own benchmark, read from its checkout, and ours. Pure but for that.

Each begins on an empty control plane of its own. Nodes of Volcano's cases are those of its guide:
100 with 32 CPU and 256 GiB.
"""

from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from benchmarks.report.observe import Load
from pumice.local.fleet import FleetHyperNode, NodeShape
from tests.support import world

Json = dict[str, Any]
_SMALL: Final = {"cpu": "100m", "memory": "100Mi"}
_EVICTING: Final = """
actions: "enqueue, allocate, preempt, reclaim, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: drf
    enablePreemptable: false
  - name: predicates
  - name: proportion
  - name: nodeorder
"""
"""Without overcommit, which admits what no victim can make room for."""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A load, what is there before it, and the scheduler's configuration."""

    name: str
    about: str
    nodes: tuple[NodeShape, ...]
    conf: str
    load: Load
    before: Load | None = None
    """Its pods run, or where none is to run its PodGroups exist, before the load comes."""
    objects: tuple[tuple[str, Json], ...] = ()
    """Plural and body of further objects: queues, priority classes."""
    hyper_nodes: tuple[FleetHyperNode, ...] = ()
    kill_after_s: float | None = None
    """Seconds after the first submission at which the scheduler is killed."""


def volcano_cases(checkout: Path) -> list[Case]:
    """Return the cases of the checkout's folder `benchmark`, with the sizes of its guide."""
    folder = checkout / "benchmark" / "testcases"
    config = folder / "gang" / "config"
    conf = yaml.safe_load((config / "scheduler-config.yaml").read_text("utf-8"))
    queue = yaml.safe_load((config / "queue.yaml").read_text("utf-8"))
    common: Json = {
        "conf": conf["data"]["volcano-scheduler.conf"],
        "objects": (("queues", queue),),
        "nodes": (_nodes(100),),
    }
    sizes = {"JOBS": "10", "REPLICAS": "100", "MIN_AVAILABLE": "100"}
    gang = _gangs(_profile(folder / "gang/cases/case-template.yaml", sizes))
    mixed = _gangs(_profile(folder / "gang/cases/comprehensive.yaml", {}))
    topology = _gangs(_profile(folder / "gang/cases/net-topo.yaml", {}))
    sizes = {"PODS": "500", "SCHEDULER_NAME": "volcano"}
    bare = _bare(_profile(folder / "pod/cases/case-template.yaml", sizes))
    tree: Json = {
        "nodes": tuple(_nodes(25, prefix=f"rack-{rack}") for rack in range(4)),
        "hyper_nodes": _racks(4, 25, spines=2),
        "conf": _with_topology(common["conf"]),
    }
    return [
        Case(name="gang", about="10 gangs of 100", load=gang, **common),
        Case(name="comprehensive", about="5 gangs of master and workers", load=mixed, **common),
        Case(
            name="net-topo",
            about="10 gangs of 50 within 2 tiers of racks",
            load=topology,
            **{**common, **tree},
        ),
        Case(name="pod", about="500 bare pods", load=bare, **common),
    ]


def our_cases(checkout: Path) -> list[Case]:
    """Return ours, with the default configuration of the checkout's chart where nothing evicts."""
    chart = checkout / "installer" / "helm" / "chart" / "volcano"
    default = (chart / "config" / "volcano-scheduler.conf").read_text("utf-8")
    high = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "high"},
        "value": 1000,
    }
    queues = tuple(("queues", world.queue(f"q{n}", weight=1, reclaimable=True)) for n in range(50))
    return [
        _burst("50x100", 1_000, 50, 100, default),
        _burst("300x10", 1_000, 300, 10, default),
        _burst("10000x1", 1_000, 10_000, 1, default),
        _burst("20x100-on-5000", 5_000, 20, 100, default),
        Case(
            name="waiting",
            about="small jobs, ten a second, while 2,000 gangs wait that fit on no node",
            nodes=(_nodes(100),),
            conf=default,
            before=_jobs("waiting", 2_000, 2, {"cpu": "33", "memory": "1Gi"}, runs=False),
            load=_jobs("small", 200, 1, _SMALL, interval_s=0.1),
        ),
        Case(
            name="preemption",
            about="500 gangs of 4 with high priority on a full cluster",
            nodes=(_nodes(100),),
            conf=_EVICTING,
            objects=(("priorityclasses", high),),
            before=_jobs("low", 32, 100, _whole(1), least=1),
            load=_jobs("storm", 500, 4, _whole(1), priorityClassName="high"),
        ),
        Case(
            name="reclaim",
            about="49 queues take their shares, 4 gangs of 16 each, from one that has it all",
            nodes=(_nodes(100),),
            conf=_EVICTING,
            objects=queues,
            before=_jobs("greedy", 32, 100, _whole(1), least=1, queue="q0"),
            load=_of_queues(range(1, 50), 4, 16),
        ),
        Case(
            name="kill",
            about="5,000 nodes, three gangs of 10 a second; the scheduler is killed after 8 s",
            nodes=(_nodes(5_000),),
            conf=default,
            load=_jobs("steady", 60, 10, _whole(1), interval_s=1 / 3),
            kill_after_s=8.0,
        ),
    ]


def _nodes(count: int, prefix: str = "node") -> NodeShape:
    labels = {"type": "kwok", "topology-rack": prefix}
    return NodeShape(count=count, cpu="32", memory="256Gi", labels=labels, prefix=prefix)


def _whole(cpu: int) -> dict[str, str]:
    return {"cpu": str(cpu), "memory": "1Gi"}


def _jobs(
    name: str,
    count: int,
    replicas: int,
    requests: dict[str, str],
    *,
    least: int | None = None,
    interval_s: float = 0.0,
    runs: bool = True,
    **spec: str,
) -> Load:
    """Return jobs of one task; `least` is their minAvailable."""
    task = world.task("worker", replicas, **requests)
    bodies = [world.job(f"{name}-{n}", task, min_available=least, **spec) for n in range(count)]
    pods = count * replicas if runs else 0
    return Load(name=name, objects=tuple(bodies), pods=pods, interval_s=interval_s)


def _of_queues(numbers: range, count: int, replicas: int) -> Load:
    loads = [_jobs(f"q{n}", count, replicas, _whole(1), queue=f"q{n}") for n in numbers]
    turns = zip(*(load.objects for load in loads), strict=True)
    bodies = tuple(body for turn in turns for body in turn)
    return Load(name="shares", objects=bodies, pods=sum(load.pods for load in loads))


def _burst(name: str, nodes: int, jobs: int, replicas: int, conf: str) -> Case:
    return Case(
        name=name,
        about=f"{jobs:,} gangs of {replicas} on {nodes:,} nodes",
        nodes=(_nodes(nodes),),
        conf=conf,
        load=_jobs("burst", jobs, replicas, _whole(1)),
    )


def _profile(file: Path, sizes: dict[str, str]) -> Json:
    """Read a profile of Volcano's benchmark, after filling in its sizes."""
    text = file.read_text("utf-8")
    for name, value in sizes.items():
        text = text.replace(f"${{{name}}}", value)
    return yaml.safe_load(text)


def _gangs(profile: Json) -> Load:
    """Return the jobs of a profile for gangs."""
    wanted = profile["jobTemplate"]
    more: Json = {}
    if wanted.get("enableNetworkTopology"):
        tier = wanted.get("networkTopologyHighestTier")
        tiers = {"highestTierAllowed": tier} if tier else {}
        more["networkTopology"] = {"mode": wanted["networkTopologyMode"], **tiers}
    tasks = [_task(each) for each in wanted["tasks"]]
    least = wanted["minAvailable"]
    bodies = [
        world.job(f"{wanted['name']}-{n}", *tasks, min_available=least, queue="default", **more)
        for n in range(profile["jobs"])
    ]
    pods = profile["jobs"] * sum(task["replicas"] for task in wanted["tasks"])
    return Load(name=wanted["name"], objects=tuple(bodies), pods=pods)


def _task(wanted: Json) -> Json:
    """Return a task with the resources of a profile; its limits are its requests."""
    amounts = {name: str(wanted[name]) for name in ("cpu", "memory")}
    template = {"spec": {"tolerations": [{"operator": "Exists"}]}}
    if wanted.get("enableNodeSelector"):
        template["spec"]["nodeSelector"] = wanted["nodeSelector"]
    return world.bare_task(
        wanted["name"], wanted["replicas"], amounts, limits=amounts, template=template
    )


def _bare(profile: Json) -> Load:
    """Return the pods of a profile for bare pods."""
    wanted = profile["podTemplate"]
    amounts = {"cpu": str(wanted["cpu"]), "memory": str(wanted["memory"])}
    tolerations = [{"operator": "Exists"}]
    bodies = [
        world.pod(
            f"{wanted['name']}-{n}",
            scheduler=wanted["schedulerName"],
            tolerations=tolerations,
            **amounts,
        )
        for n in range(profile["pods"])
    ]
    return Load(name=wanted["name"], plural="pods", objects=tuple(bodies), pods=len(bodies))


def _racks(count: int, size: int, *, spines: int) -> tuple[FleetHyperNode, ...]:
    """Return racks of tier 1, and as many in each spine of tier 2."""
    racks = [
        FleetHyperNode(name=f"rack-{rack}", nodes=_nodes(size, f"rack-{rack}").names())
        for rack in range(count)
    ]
    each = count // spines
    above = [
        FleetHyperNode(
            name=f"spine-{spine}",
            tier=2,
            hyper_nodes=tuple(rack.name for rack in racks[spine * each : (spine + 1) * each]),
        )
        for spine in range(spines)
    ]
    return (*racks, *above)


def _with_topology(conf: str) -> str:
    """Add the plugin that the case needs to the last tier of a configuration."""
    given = yaml.safe_load(conf)
    given["tiers"][-1]["plugins"].append({"name": "network-topology-aware"})
    return yaml.safe_dump(given, sort_keys=False)
