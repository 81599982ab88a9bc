"""The clusters and arrivals that the engine is measured with, as the cache would say them.

Everything leaves here as encoded facts, so that what is timed starts where the scheduler's own work
starts. A `Load` is one cell of the grid; `standing` gives the cluster and `arriving` the work.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from shared.contracts import codec
from shared.contracts.messages import Fact

GANG = 100
"""Pods of a gang."""
QUEUES = 200
"""Queues of the reclaim loads; the first half holds everything, the second half waits."""
BLOCK_MILLI = 8_000
"""Request of a pod of the eviction loads; four of them fill a node."""
_NODE = {"cpu": "32", "memory": "128Gi", "pods": "256"}
_CREATED = "2026-01-01T00:00:00Z"
_HOST = "kubernetes.io/hostname"

Object = dict[str, Any]


class Load(NamedTuple):
    """One cell: a cluster and what arrives in it."""

    kind: str
    """One of `KINDS`."""
    nodes: int
    pods: int
    running: int = 0
    """Small pods that run already (the eviction loads fill the nodes by themselves)."""


class Arrival(NamedTuple):
    """How the pods of one kind of load look."""

    cpu_milli: Callable[[int], int]
    """Request of the n-th pod."""
    company: Callable[[int], Object]
    """Affinity to others of its gang in the n-th pod's spec, by number of the gang."""
    evicts: str = ""
    """Which action makes the room, if one has to."""


def _apart(gang: int) -> Object:
    term = {"labelSelector": {"matchLabels": {"app": f"new-{gang}"}}, "topologyKey": _HOST}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return {"affinity": {"podAntiAffinity": required}}


def _spread(gang: int) -> Object:
    constraint = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": f"new-{gang}"}},
    }
    return {"topologySpreadConstraints": [constraint]}


KINDS: dict[str, Arrival] = {
    "identical": Arrival(lambda _: 100, lambda _: {}),
    "shapes": Arrival(lambda pod: 100 + pod % 500, lambda _: {}),
    "company": Arrival(lambda _: 100, lambda gang: _spread(gang) if gang % 2 else _apart(gang)),
    "preempt": Arrival(lambda _: BLOCK_MILLI, lambda _: {}, evicts="preempt"),
    "reclaim": Arrival(lambda _: BLOCK_MILLI, lambda _: {}, evicts="reclaim"),
}
"""`shapes`: 500 requests mixed in every gang. `company`: anti-affinity between hosts and spread
over zones, gang by gang. `preempt`: a full cluster and work of a higher priority. `reclaim`: a
full cluster in the hands of one half of 200 queues, work in the other half."""


def configuration(load: Load) -> str:
    """Return the scheduler's configuration file for a load."""
    evicts = KINDS[load.kind].evicts
    return scheduler_conf(*filter(None, ["enqueue", "allocate", evicts, "backfill"]))


def scheduler_conf(*actions: str, shares: str = "proportion") -> str:
    """Return a configuration file with Volcano's usual tiers; a plugin divides the cluster."""
    return f"""\
actions: "{", ".join(actions)}"
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false
  - name: conformance
- plugins:
  - name: overcommit
  - name: drf
    enablePreemptable: false
  - name: predicates
  - name: {shares}
  - name: nodeorder
  - name: binpack
"""


def standing(load: Load) -> Iterator[bytes]:
    """Yield the facts of the cluster before the work arrives."""
    yield from _queues(load)
    for value, name in ((10, "low"), (1000, "high")):
        meta = {"name": name, "uid": f"uid-{name}"}
        yield fact("priorityclasses", {"metadata": meta, "value": value})
    for number in range(load.nodes):
        yield fact("nodes", node(number))
    evicts = KINDS[load.kind].evicts
    running = load.nodes * 4 if evicts else load.running
    for number in range(running):
        gang = number // GANG
        queue = _queue(load, gang, waiting=False)
        if number % GANG == 0:
            members = min(GANG, running - number)
            # A gang that may lose members: all but one of them are victims.
            least = 1 if evicts else members
            yield fact("podgroups", group(f"old-{gang}", least, "Running", queue, "low"))
        asked = BLOCK_MILLI if evicts else 100
        yield fact("pods", pod(f"old-{gang}-{number}", asked, node=number % load.nodes, rank=10))


def arriving(load: Load) -> Iterator[bytes]:
    """Yield the facts of the work: groups that are let in already, and their pods."""
    how = KINDS[load.kind]
    for gang in range(-(-load.pods // GANG)):
        queue = _queue(load, gang, waiting=True)
        yield fact("podgroups", group(f"new-{gang}", GANG, "Inqueue", queue, "high"))
    for number in range(load.pods):
        gang = number // GANG
        spec = how.company(gang)
        yield fact(
            "pods", pod(f"new-{gang}-{number}", how.cpu_milli(number), rank=1000, company=spec)
        )


def changing(load: Load, share: float) -> Iterator[bytes]:
    """Yield the end of `share` of the running pods: facts of pods that have succeeded."""
    for number in range(0, load.running, round(1 / share)):
        name = f"old-{number // GANG}-{number}"
        done = pod(name, 100, node=number % load.nodes, rank=10)
        done["status"] = {"phase": "Succeeded"}
        yield fact("pods", done)


def fact(kind: str, document: Object) -> bytes:
    """Return an object as the cache publishes it."""
    meta = document["metadata"]
    key = f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else meta["name"]
    body = msgspec.Raw(msgspec.json.encode(document))
    return codec.encode(Fact(kind=kind, key=key, uid=meta["uid"], rv="1", body=body))


def group(name: str, members: int, phase: str, queue: str, priority: str) -> Object:
    """Return a PodGroup."""
    return {
        "metadata": _meta(name),
        "spec": {
            "minMember": members,
            "queue": queue,
            "priorityClassName": priority,
            "minResources": {"cpu": "1"},
        },
        "status": {"phase": phase},
    }


def pod(
    name: str, cpu_milli: int, *, node: int | None = None, rank: int, company: Object | None = None
) -> Object:
    """Return a pod of the gang that its name begins with; it runs when it has a node."""
    gang = name.rpartition("-")[0]
    meta = _meta(name)
    meta["labels"] = {"app": gang}
    meta["annotations"] = {
        "scheduling.k8s.io/group-name": gang,
        "volcano.sh/task-spec": "worker",
        "volcano.sh/preemptable": "true",
    }
    requests = {"cpu": f"{cpu_milli}m", "memory": "256Mi"}
    container = {"name": "main", "image": "busybox", "resources": {"requests": requests}}
    return {
        "metadata": meta,
        "spec": {
            "schedulerName": "volcano",
            "priority": rank,
            "nodeName": "" if node is None else f"node-{node}",
            "containers": [container],
            **(company or {}),
        },
        "status": {"phase": "Pending" if node is None else "Running"},
    }


def _meta(name: str) -> Object:
    return {
        "name": name,
        "namespace": "ns",
        "uid": f"uid-{name}",
        "creationTimestamp": _CREATED,
    }


def node(number: int) -> Object:
    labels = {_HOST: f"node-{number}", "zone": f"z{number % 3}", "rack": f"r{number // 20}"}
    meta = {"name": f"node-{number}", "uid": f"uid-node-{number}", "labels": labels}
    return {"metadata": meta, "status": {"allocatable": _NODE}}


def _queues(load: Load) -> Iterator[bytes]:
    names = [f"q{n}" for n in range(QUEUES)] if load.kind == "reclaim" else ["default"]
    for name in names:
        spec = {"weight": 1, "reclaimable": True}
        meta = {"name": name, "uid": f"uid-{name}"}
        yield fact("queues", {"metadata": meta, "spec": spec, "status": {"state": "Open"}})


def _queue(load: Load, gang: int, *, waiting: bool) -> str:
    if load.kind != "reclaim":
        return "default"
    half = QUEUES // 2
    return f"q{gang % half + (half if waiting else 0)}"
