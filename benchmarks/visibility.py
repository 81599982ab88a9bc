"""The time of answers at the size of a large cluster: `python -m benchmarks.visibility`.

A cluster whose nodes are almost full and thousands of gangs in 50 queues that find no room. Times
are CPU seconds of the thread that owns the cluster state, each the least of a few.
"""

import argparse
import resource
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from benchmarks.engine import clusters
from benchmarks.engine.clusters import BLOCK_MILLI, fact
from services.scheduler.config import DEFAULT_TEXT
from services.scheduler.decide import configure
from services.visibility.adapters.query_service import ANSWER_S
from services.visibility.queries.cluster_mirror import ClusterMirror
from services.visibility.queries.explaining import explain, subject_of
from services.visibility.queries.survey import DecisionPolicy, survey
from services.visibility.queries.whatif import what_if
from shared.api.whatifs import WhatIfSpec
from shared.contracts import codec
from shared.runtime.service import tune_garbage_collector

QUEUES: Final = 50
MEMBERS: Final = 4
NOW: Final = 1.8e9
_EVICTING: Final = ("enqueue", "allocate", "preempt", "reclaim", "backfill")
CONFIGURATIONS: Final = {
    "default": DEFAULT_TEXT,
    "capacity": clusters.scheduler_conf(*_EVICTING, shares="capacity"),
}


def facts(nodes: int, pods: int, waiting: int) -> Iterator[bytes]:
    """Yield a cluster with running pods of 100m on its nodes beside blocks, and gangs that wait."""
    for number in range(QUEUES):
        name = f"q{number}"
        spec = {"weight": 1, "deserved": {"cpu": str(nodes * 32 // QUEUES)}}
        meta = {"name": name, "uid": f"uid-{name}"}
        yield fact("queues", {"metadata": meta, "spec": spec, "status": {"state": "Open"}})
    for number in range(nodes):
        yield fact("nodes", clusters.node(number))
        name = f"old-{number}"
        yield fact("podgroups", clusters.group(name, 1, "Running", f"q{number % QUEUES}", ""))
        each = pods // nodes
        small = max(0, each - 3)
        for rank in range(each):
            size = BLOCK_MILLI if rank < 3 else 6_000 // max(1, small)
            yield fact("pods", clusters.pod(f"{name}-{rank}", size, node=number, rank=0))
    for number in range(waiting):
        name, inside = f"wait-{number}", number % 2
        phase = "Inqueue" if inside else "Pending"
        group = clusters.group(name, MEMBERS, phase, f"q{number % QUEUES}", "")
        group["spec"]["minResources"] = {"cpu": f"{MEMBERS * BLOCK_MILLI}m", "memory": "256Mi"}
        yield fact("podgroups", group)
        for rank in range(MEMBERS if inside else 0):
            yield fact("pods", clusters.pod(f"{name}-{rank}", BLOCK_MILLI, rank=0))


def timed(work: Callable[[], Any], times: int = 3) -> float:
    """Return the least CPU time of a few runs, in milliseconds."""
    found = []
    for _ in range(times):
        begun = time.process_time()
        work()
        found.append(1e3 * (time.process_time() - begun))
    return min(found)


def questions() -> dict[str, WhatIfSpec]:
    """Return what-ifs by the names under which they are printed."""
    container = {"name": "main", "resources": {"requests": {"cpu": "500m"}}}
    template = {"spec": {"containers": [{**container, "image": "busybox"}]}}
    job = {
        "metadata": {"name": "asked"},
        "spec": {"queue": "q1", "tasks": [{"name": "w", "replicas": 100, "template": template}]},
    }
    bodies = {
        "what if: 100 pods": {"job": job},
        "what if: 10 nodes": {"addNodes": [{"count": 10, "like": "node-1"}]},
        "what if: drain 10": {"drainNodes": [f"node-{number}" for number in range(10)]},
    }
    return {
        name: msgspec.json.decode(msgspec.json.encode(body), type=WhatIfSpec)
        for name, body in bodies.items()
    }


def ask(mirror: ClusterMirror, policy: DecisionPolicy, spec: WhatIfSpec) -> None:
    """Answer a what-if."""
    what_if(mirror, policy, spec, namespace="ns", now=NOW)


def tell(mirror: ClusterMirror, policy: DecisionPolicy, name: str) -> None:
    """Explain a job that waits, its survey included."""
    why = survey(mirror.state, policy, now=NOW).explanations.get(f"ns/{name}")
    subject = subject_of(mirror, "ns", name)
    assert subject is not None, f"{name} waits"
    begun = time.monotonic()
    explain(
        mirror,
        policy,
        subject,
        why,
        now=NOW,
        out_of_time=lambda: time.monotonic() - begun > ANSWER_S,
    )


def main(argv: list[str] | None = None) -> None:
    """Print a line per figure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.visibility", description=__doc__)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--waiting", type=int, default=2_000)
    parser.add_argument("--configuration", choices=sorted(CONFIGURATIONS), default="default")
    given = parser.parse_args(argv)
    policy = DecisionPolicy(config=configure(CONFIGURATIONS[given.configuration]))
    mirror = ClusterMirror()
    tune_garbage_collector()
    begun = time.process_time()
    for payload in facts(given.nodes, given.pods, given.waiting):
        mirror.fold([codec.decode_fact(payload)])
    print(f"fold everything      {1e3 * (time.process_time() - begun):>10.1f} ms")
    found = survey(mirror.state, policy, now=NOW)
    print(f"waiting jobs told of {len(found.pending):>10}")
    took = timed(lambda: survey(mirror.state, policy, now=NOW))
    print(f"survey               {took:>10.1f} ms")
    for name, spec in questions().items():
        took = timed(lambda spec=spec: ask(mirror, policy, spec), times=1)
        print(f"{name:<21}{took:>10.1f} ms")
    for name in ("wait-0", "wait-1"):
        took = timed(lambda name=name: tell(mirror, policy, name), times=1)
        print(f"explain {name:<13}{took:>10.1f} ms")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"resident, at most    {peak:>10.1f} MiB")


if __name__ == "__main__":
    main(sys.argv[1:])
