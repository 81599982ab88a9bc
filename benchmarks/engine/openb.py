"""Replays the openb GPU trace through the engine: `python -m benchmarks.engine.openb FOLDER`.

FOLDER holds the trace's CSV files (Alibaba's cluster trace of 2023: 8,152 pods, 1,523 nodes). The
pods arrive in the order of their creation and stay; each cycle sees a hundred more. They ask for
parts of GPU cards as virtual GPUs. Once with binpack and once with spreading; reported are the pods
placed, what is left of the cards, and the time.
"""

import argparse
import csv
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.engine.clusters import Object, fact
from benchmarks.engine.measure import Bench
from services.scheduler.decide import configure
from shared.contracts.messages import BindGang

CARD = 1_000
"""Memory of a card in the trace's unit: thousandths of it."""
_ARRIVING = 100
_NODES = "openb_node_list_all_node.csv"
_PODS = "openb_pod_list_default.csv"

CONFIGURATION = """\
actions: "enqueue, allocate"
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: predicates
  - name: deviceshare
    arguments:
      deviceshare.VGPUEnable: true
      deviceshare.SchedulePolicy: {policy}
      deviceshare.ScheduleWeight: 10
  - name: nodeorder
    arguments:
      leastrequested.weight: {least}
      mostrequested.weight: {most}
      balancedresource.weight: 0
"""
POLICIES = {
    "binpack": CONFIGURATION.format(policy="binpack", least=0, most=1),
    "spread": CONFIGURATION.format(policy="spread", least=1, most=0),
}


class Pod(NamedTuple):
    """A row of the pod list."""

    name: str
    cpu_milli: int
    memory_mib: int
    cards: int
    card_milli: int

    @property
    def gpu_milli(self) -> int:
        """Return what the pod takes of all cards."""
        return self.cards * self.card_milli


class Node(NamedTuple):
    """A row of the node list."""

    name: str
    cpu_milli: int
    memory_mib: int
    cards: int


class Outcome(NamedTuple):
    """How a replay ended."""

    placed: int
    gpu_pods: int
    """Pods with GPUs that were placed."""
    gpu_milli: int
    fragments: int
    """Thousandths of cards that are left on cards in use."""
    stranded: int
    """Thousandths of cards that are left on nodes where no waiting GPU pod's CPU or memory fits."""
    seconds: float


def read(folder: Path) -> tuple[list[Node], list[Pod]]:
    """Return the trace's nodes, and its pods in the order of their creation."""
    with (folder / _NODES).open(encoding="utf-8", newline="") as file:
        nodes = [
            Node(row["sn"], int(row["cpu_milli"]), int(row["memory_mib"]), int(row["gpu"]))
            for row in csv.DictReader(file)
        ]
    with (folder / _PODS).open(encoding="utf-8", newline="") as file:
        rows = sorted(csv.DictReader(file), key=lambda r: (int(r["creation_time"]), r["name"]))
    pods = [
        Pod(
            row["name"],
            int(row["cpu_milli"]),
            int(row["memory_mib"]),
            int(row["num_gpu"]),
            int(row["gpu_milli"] or 0),
        )
        for row in rows
    ]
    return nodes, pods


def standing(nodes: list[Node]) -> Iterator[bytes]:
    """Yield the facts of the cluster."""
    queue = {"metadata": {"name": "default", "uid": "q"}, "status": {"state": "Open"}}
    yield fact("queues", queue)
    for node in nodes:
        cards = [f"{node.name}-{n},16,{CARD},NVIDIA-{n},true" for n in range(node.cards)]
        has = {
            "cpu": f"{node.cpu_milli}m",
            "memory": f"{node.memory_mib}Mi",
            "pods": "1000",
            "volcano.sh/vgpu-number": str(16 * node.cards),
            "volcano.sh/vgpu-memory": str(CARD * node.cards),
        }
        meta: Object = {"name": node.name, "uid": node.name}
        if cards:
            meta["annotations"] = {
                "volcano.sh/node-vgpu-register": ":".join(cards) + ":",
                "volcano.sh/node-vgpu-handshake": "Reported",
            }
        yield fact("nodes", {"metadata": meta, "status": {"allocatable": has}})


def arrival(number: int, pod: Pod) -> Iterator[bytes]:
    """Yield the facts of a pod and its group."""
    second = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(1_700_000_000 + number))
    meta = {"name": pod.name, "namespace": "ns", "uid": pod.name, "creationTimestamp": second}
    spec = {"minMember": 1, "queue": "default"}
    yield fact("podgroups", {"metadata": meta, "spec": spec, "status": {"phase": "Inqueue"}})
    asked = {"cpu": f"{pod.cpu_milli}m", "memory": f"{pod.memory_mib}Mi"}
    if pod.cards:
        asked["volcano.sh/vgpu-number"] = str(pod.cards)
        asked["volcano.sh/vgpu-memory"] = str(pod.card_milli)
    container = {"name": "main", "resources": {"requests": asked, "limits": asked}}
    annotations = {"scheduling.k8s.io/group-name": pod.name}
    yield fact(
        "pods",
        {
            "metadata": {**meta, "uid": f"p-{pod.name}", "annotations": annotations},
            "spec": {"schedulerName": "volcano", "containers": [container]},
            "status": {"phase": "Pending"},
        },
    )


def replay(policy: str, nodes: list[Node], pods: list[Pod]) -> Outcome:
    """Let the pods arrive; count what was placed and what is left."""
    bench = Bench(configure(POLICIES[policy]))
    bench.fold(standing(nodes))
    batches = [
        [
            payload
            for n in range(at, min(at + _ARRIVING, len(pods)))
            for payload in arrival(n, pods[n])
        ]
        for at in range(0, len(pods), _ARRIVING)
    ]
    homes: dict[str, str] = {}
    used: dict[str, int] = {}
    start = time.process_time()
    for batch in batches:
        bench.fold(batch)
        for command in bench.cycle().commands:
            if isinstance(command, BindGang):
                for bind in command.binds:
                    homes[bind.pod.partition("/")[2]] = bind.node
                    for uuid, milli in _cards(bind.annotations.get("volcano.sh/vgpu-ids-new", "")):
                        used[uuid] = used.get(uuid, 0) + milli
    seconds = time.process_time() - start
    placed = [pod for pod in pods if pod.name in homes]
    return Outcome(
        placed=len(placed),
        gpu_pods=sum(1 for pod in placed if pod.cards),
        gpu_milli=sum(pod.gpu_milli for pod in placed),
        fragments=sum(CARD - milli for milli in used.values()),
        stranded=_stranded(nodes, pods, homes, used),
        seconds=seconds,
    )


def _cards(shown: str) -> Iterator[tuple[str, int]]:
    """Yield (card, memory) of what a bind says of a pod's cards: `uuid,type,memory,cores:…;…`."""
    for share in shown.replace(";", ":").split(":"):
        if share:
            uuid, _, memory, *_ = share.split(",")
            yield uuid, int(memory)


def _stranded(
    nodes: list[Node], pods: list[Pod], homes: dict[str, str], used: dict[str, int]
) -> int:
    waiting = {(p.cpu_milli, p.memory_mib) for p in pods if p.cards and p.name not in homes}
    room = {node.name: [node.cpu_milli, node.memory_mib] for node in nodes}
    for pod in pods:
        if home := homes.get(pod.name):
            room[home][0] -= pod.cpu_milli
            room[home][1] -= pod.memory_mib
    return sum(
        CARD - used.get(f"{node.name}-{n}", 0)
        for node in nodes
        if not any(cpu <= room[node.name][0] and mem <= room[node.name][1] for cpu, mem in waiting)
        for n in range(node.cards)
    )


def main(argv: list[str] | None = None) -> None:
    """Print a line per policy."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engine.openb")
    parser.add_argument("folder", type=Path, help="where the trace's CSV files are")
    nodes, pods = read(parser.parse_args(argv).folder)
    cards = sum(node.cards for node in nodes)
    asked = sum(pod.gpu_milli for pod in pods)
    print(f"{len(nodes)} nodes, {cards} cards; {len(pods)} pods ask for {asked / CARD:.1f} cards")
    print(f"{'policy':<9}{'placed':>8}{'with GPU':>10}{'cards used':>12}", end="")
    print(f"{'in pieces':>11}{'stranded':>10}{'CPU s':>8}{'ms/pod':>8}")
    for policy in POLICIES:
        o = replay(policy, nodes, pods)
        print(
            f"{policy:<9}{o.placed:>8}{o.gpu_pods:>10}{o.gpu_milli / CARD:>12.1f}"
            f"{o.fragments / CARD:>11.1f}{o.stranded / CARD:>10.1f}{o.seconds:>8.2f}"
            f"{1e3 * o.seconds / len(pods):>8.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
