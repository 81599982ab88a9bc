"""Measures the engine: `python -m benchmarks.engine [--quick]`.

Each line is one cluster: facts of nodes and running pods are folded first, then the pods to place
arrive as undecoded bytes. Times are decode + fold of those, the cycle that places them, adopting
its plan, and a cycle in which nothing is left to do. They are CPU seconds of the one thread, which
is what a free core takes, so that a busy machine does not blur them.
"""

import argparse
import resource
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from services.scheduler.decide import configure, decide
from services.scheduler.engine import Plan, Replica
from shared.api import kinds
from shared.api.core import Pod

_DECODER = msgspec.json.Decoder(Pod)
_ENCODER = msgspec.json.Encoder()


class Load(NamedTuple):
    """One cluster and what arrives."""

    nodes: int
    running: int
    pods: int
    gang: int
    shapes: int
    near: str = ""
    """What pods ask of each other: see `NEAR`."""


def _terms(kind: str, name: str, key: str) -> dict:
    term = {"labelSelector": {"matchLabels": {"app": name}}, "topologyKey": key}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def _liking(name: str) -> dict:
    term = {"labelSelector": {"matchLabels": {"app": name}}, "topologyKey": _HOST}
    weighted = {"weight": 50, "podAffinityTerm": term}
    return {
        "affinity": {
            "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [weighted]}
        }
    }


def _spread(name: str, key: str, when: str) -> dict:
    constraint = {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": when,
        "labelSelector": {"matchLabels": {"app": name}},
    }
    return {"topologySpreadConstraints": [constraint]}


_HOST = "kubernetes.io/hostname"
NEAR: dict[str, Callable[[str], dict]] = {
    "": lambda _: {},
    "apart/host": lambda name: _terms("podAntiAffinity", name, _HOST),
    "apart/rack": lambda name: _terms("podAntiAffinity", name, "rack"),
    "beside/zone": lambda name: _terms("podAffinity", name, "zone"),
    "like/host": _liking,
    "spread/zone": lambda name: _spread(name, "zone", "DoNotSchedule"),
    "spread/host": lambda name: _spread(name, _HOST, "DoNotSchedule"),
    "even/zone": lambda name: _spread(name, "zone", "ScheduleAnyway"),
}


class Timing(NamedTuple):
    """Seconds."""

    setup: float
    fold: float
    decide: float
    adopt: float
    idle: float
    bound: int


def put(replica: Replica, kind: kinds.Kind, document: dict) -> None:
    view = msgspec.convert(document, kind.type)
    replica.apply(kind.token, "put", view.metadata.key, view.metadata.uid, view)


def pod(name: str, group: str, cpu_milli: int, node: str = "", near: str = "") -> dict:
    return {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": f"uid-{name}",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {
                "scheduling.k8s.io/group-name": group,
                "volcano.sh/task-spec": "worker",
            },
            "labels": {"app": group},
        },
        "spec": {
            "schedulerName": "volcano",
            "nodeName": node,
            **NEAR[near](group),
            "containers": [
                {
                    "name": "main",
                    "image": "busybox",
                    "resources": {"requests": {"cpu": f"{cpu_milli}m", "memory": "256Mi"}},
                }
            ],
        },
        "status": {"phase": "Running" if node else "Pending"},
    }


def group(name: str, members: int, phase: str) -> dict:
    return {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": f"uid-{name}",
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"minMember": members, "queue": "default", "minResources": {"cpu": "1"}},
        "status": {"phase": phase},
    }


def cluster(load: Load) -> Replica:
    replica = Replica()
    put(
        replica,
        kinds.QUEUE,
        {"metadata": {"name": "default", "uid": "q"}, "status": {"state": "Open"}},
    )
    for number in range(load.nodes):
        has = {"cpu": "32", "memory": "128Gi", "pods": "256"}
        meta = {
            "name": f"node-{number}",
            "uid": f"uid-node-{number}",
            "labels": {"kubernetes.io/hostname": f"node-{number}", "zone": f"z{number % 3}"}
            | {"rack": f"r{number // 20}"},
        }
        put(replica, kinds.NODE, {"metadata": meta, "status": {"allocatable": has}})
    for number in range(load.running):
        name = f"old-{number // load.gang}"
        if number % load.gang == 0:
            put(replica, kinds.PODGROUP, group(name, load.gang, "Running"))
        put(
            replica,
            kinds.POD,
            pod(f"{name}-{number}", name, 100, node=f"node-{number % load.nodes}"),
        )
    return replica


def arriving(load: Load) -> Iterator[bytes]:
    for number in range(load.pods):
        shape = (number // load.gang if load.shapes == 1 else number) % load.shapes
        name = f"new-{number // load.gang}"
        yield _ENCODER.encode(pod(f"{name}-{number}", name, 100 + shape, near=load.near))


def measure(load: Load) -> Timing:
    began = time.process_time()
    replica, config = cluster(load), configure()
    settle(replica, config)
    raw = list(arriving(load))
    groups = [group(f"new-{n}", load.gang, "Inqueue") for n in range(-(-load.pods // load.gang))]
    start = time.process_time()
    for document in groups:
        put(replica, kinds.PODGROUP, document)
    for body in raw:
        view = _DECODER.decode(body)
        replica.apply(kinds.POD.token, "put", view.metadata.key, view.metadata.uid, view)
    folded = time.process_time()
    plan = decide(replica, config, now=0.0, cycle=1)
    decided = time.process_time()
    publish(replica, plan)
    adopted = time.process_time()
    settle(replica, config)
    resting = time.process_time()
    decide(replica, config, now=0.0, cycle=9)
    end = time.process_time()
    return Timing(
        setup=start - began,
        fold=folded - start,
        decide=decided - folded,
        adopt=adopted - decided,
        idle=end - resting,
        bound=sum(len(gang.binds) for gang in plan.binds),
    )


def publish(replica: Replica, plan: Plan) -> None:
    for number, gang in enumerate(plan.binds):
        replica.assume(f"{plan.cycle}-{number}", [(b.pod, b.uid, b.node) for b in gang.binds])
    replica.adopt(plan)


def settle(replica: Replica, config) -> None:  # noqa: ANN001
    for cycle in range(2, 5):
        publish(replica, decide(replica, config, now=0.0, cycle=cycle))


def loads(*, quick: bool) -> Iterator[Load]:
    for nodes in (1_000, 5_000):
        for pods in (1_000, 10_000):
            yield Load(nodes=nodes, running=0, pods=pods, gang=100, shapes=1)
    yield Load(nodes=5_000, running=0, pods=10_000, gang=100, shapes=500)
    for near in list(NEAR)[1:]:
        yield Load(nodes=5_000, running=0, pods=10_000, gang=100, shapes=1, near=near)
    if not quick:
        yield Load(nodes=20_000, running=200_000, pods=1_000, gang=100, shapes=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="leave the largest cluster out")
    quick = parser.parse_args().quick
    print(f"{'nodes':>7}{'running':>9}{'pods':>8}{'shapes':>8}{'near':>13}{'bound':>8}", end="")
    print(f"{'fold s':>9}{'decide s':>10}{'adopt s':>9}{'idle ms':>9}{'us/pod':>8}{'MiB':>7}")
    for load in loads(quick=quick):
        t = measure(load)
        mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        per_pod = 1e6 * (t.fold + t.decide) / load.pods
        print(
            f"{load.nodes:>7}{load.running:>9}{load.pods:>8}{load.shapes:>8}{load.near:>13}{t.bound:>8}"
            f"{t.fold:>9.3f}{t.decide:>10.3f}{t.adopt:>9.3f}{1e3 * t.idle:>9.2f}{per_pod:>8.1f}"
            f"{mib:>7.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
