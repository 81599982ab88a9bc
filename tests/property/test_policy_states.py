"""Laws of what plugins keep beside the engine: cards, parts of cards, CPUs, volumes.

A trial that is not kept leaves it as it was, its binds included, and a recorded cycle takes it
along.
"""

import json
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from pumice.testing import Cluster
from services.scheduler.decide import run_actions
from services.scheduler.engine.state.cluster_state import ClusterState
from services.scheduler.engine.state.memory import memory_of, prepare_replay, restore
from services.scheduler.policy.states.numa import Numa
from services.scheduler.policy.states.volumes import Volumes
from services.scheduler.policy.vendors.gpus import Gpus
from services.scheduler.policy.vendors.npus import Npus
from services.scheduler.policy.vendors.vgpus import VGpus
from shared.api import kinds
from tests.support.laws import count_hits, needs_hits

CARDS = {"volcano.sh/gpu-memory": "32", "volcano.sh/gpu-number": "2"}
PARTS = {"volcano.sh/vgpu-number": "20", "volcano.sh/vgpu-memory": "32000"}
REGISTER = "volcano.sh/node-vgpu-register"
HANDSHAKE = "volcano.sh/node-vgpu-handshake"
NPUS = {"huawei.com/Ascend310P": "20"}

ways = st.sampled_from(["GPUSharingEnable", "VGPUEnable", "AscendHAMiVNPUEnable"])
pods = st.fixed_dictionaries(
    {
        "cpu": st.integers(0, 3),
        "cards": st.sampled_from([0, 6, 10, 16]),
        "claim": st.sampled_from(["", "c0", "c1", "c2"]),
        "node": st.sampled_from(["", "", "", "n0"]),
    }
)
gangs = st.lists(st.lists(pods, min_size=1, max_size=3), min_size=1, max_size=4)


def build(world: Cluster, way: str, asked: list[list[dict[str, Any]]]) -> None:
    """Put two nodes with cards, CPUs and a volume each, claims, and the gangs."""
    for name in ("n0", "n1"):
        add_node(world, name)
        add_volume(world, name)
    mode = {"volumeBindingMode": "WaitForFirstConsumer", "provisioner": ""}
    world.put(kinds.STORAGECLASS, {"metadata": {"name": "fast", "uid": "sc"}, **mode})
    for name in ("c0", "c1"):
        head = {"name": name, "namespace": "ns", "uid": name}
        spec = {"storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}}
        world.put(kinds.PVC, {"metadata": head, "spec": spec})
    for number, gang in enumerate(asked):
        add_gang(world, f"g{number}", way, gang)


def add_node(world: Cluster, name: str) -> None:
    has = {"cpu": "8", "memory": "64Gi", "pods": "20", **CARDS, **PARTS, **NPUS}
    shown = "".join(f"{name}-{card},10,16000,NVIDIA-T4,true,hami-core:" for card in range(2))
    npus = [{"id": f"{name}-{n}", "count": 7, "devmem": 21527, "devcore": 8} for n in range(2)]
    annotations = {REGISTER: shown, HANDSHAKE: "Reported"}
    annotations["hami.io/node-register-Ascend310P"] = json.dumps(npus)
    meta = {"name": name, "uid": name, "annotations": annotations}
    labels = {"kubernetes.io/hostname": name}
    document = {"metadata": meta | {"labels": labels}, "status": {"allocatable": has}}
    world.put(kinds.NODE, document)
    spec = {
        "policies": {"CPUManagerPolicy": "static", "TopologyManagerPolicy": "best-effort"},
        "numares": {"cpu": {"allocatable": "0-7", "capacity": 8}},
        "cpuDetail": {str(n): {"numa": n // 4, "socket": n // 4, "core": n} for n in range(8)},
    }
    world.put(kinds.NUMATOPOLOGY, {"metadata": {"name": name, "uid": name}, "spec": spec})


def add_volume(world: Cluster, node: str) -> None:
    need = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    terms = {"required": {"nodeSelectorTerms": [{"matchExpressions": [need]}]}}
    spec = {"storageClassName": "fast", "capacity": {"storage": "1Gi"}, "nodeAffinity": terms}
    document = {"spec": spec, "status": {"phase": "Available"}}
    world.put(kinds.PV, {"metadata": {"name": f"pv-{node}", "uid": node}, **document})


def add_gang(world: Cluster, name: str, way: str, asked: list[dict[str, Any]]) -> None:
    world.group(name, min_member=min(2, len(asked)))
    for index, pod in enumerate(asked):
        stated = {"cpu": str(pod["cpu"]), "memory": "1Gi"}
        extended = {}
        if pod["cards"] and way == "GPUSharingEnable":
            extended = {"volcano.sh/gpu-memory": str(pod["cards"])}
        elif pod["cards"] and way == "AscendHAMiVNPUEnable":
            extended = {
                "huawei.com/Ascend310P": "1",
                "huawei.com/Ascend310P-memory": f"{pod['cards']}000",
            }
        elif pod["cards"]:
            extended = {
                "volcano.sh/vgpu-number": "1",
                "volcano.sh/vgpu-memory": f"{pod['cards']}000",
            }
        resources = {"requests": stated | extended, "limits": stated | extended}
        more: dict[str, Any] = {}
        if pod["claim"]:
            mounted = {"claimName": pod["claim"]}
            more["volumes"] = [{"name": "v", "persistentVolumeClaim": mounted}]
        containers = [{"name": "main", "resources": resources}]
        world.pod(f"{name}-{index}", name, node=pod["node"], containers=containers, **more)


def world_of(way: str) -> Cluster:
    devices = f"{{name: deviceshare, arguments: {{deviceshare.{way}: true}}}}"
    plugins = f"[{{name: gang}}, {{name: predicates}}, {{name: numa-aware}}, {devices}]"
    return Cluster(f'actions: "allocate"\ntiers:\n- plugins: {plugins}\n')


def kept_in(cluster_state: ClusterState) -> dict[str, Any]:
    """Return what states hold of tasks on nodes, and what they remember."""
    cards = cluster_state.store(Gpus)._nodes
    parts = {"shares": cluster_state.store(VGpus)._nodes, "npus": cluster_state.store(Npus)._nodes}
    held = cluster_state.store(Numa)._held
    return {
        "cards": {name: node.pods.copy() for name, node in cards.items() if node.pods},
        "parts": {
            (kind, name): {
                uid: (list(of.shares), of.rules, of.group) for uid, of in node.pods.items()
            }
            for kind, nodes in parts.items()
            for name, node in nodes.items()
            if node.pods
        },
        "cpus": {
            name: {uid: cpus for uid, (_, cpus) in tasks.items()}
            for name, tasks in held.items()
            if tasks
        },
        "users": cluster_state.store(Volumes).users.all(),
        "remembered": [msgspec.to_builtins(state.dump()) for state in cluster_state.states],
    }


@needs_hits(at_least=40)
@given(ways, gangs)
@settings(max_examples=100, deadline=None)
def test_a_trial_that_is_not_kept_leaves_states_as_they_were_binds_included(way, asked):
    world = world_of(way)
    build(world, way, asked)
    world.step()
    add_gang(world, "h", way, [pod | {"node": ""} for pod in asked[0]])
    before = kept_in(world.cluster_state)
    session = world.session()
    with session.trial():
        run_actions(session, world.config)
        count_hits([bind for gang in session.binds for bind in gang.binds if bind.annotations])
    assert kept_in(world.cluster_state) == before
    session.close()
    assert kept_in(world.cluster_state) == before


@needs_hits(at_least=40)
@given(ways, gangs)
@settings(max_examples=100, deadline=None)
def test_a_recorded_cycle_takes_along_what_states_remember(way, asked):
    world, again = world_of(way), world_of(way)
    build(world, way, asked)
    first = world.step()
    count_hits([bind for gang in first.binds for bind in gang.binds if bind.annotations])
    memory = msgspec.json.decode(msgspec.json.encode(memory_of(world.cluster_state)))
    prepare_replay(again.cluster_state, memory)
    build(again, way, asked)
    restore(again.cluster_state, memory)
    assert kept_in(again.cluster_state) == kept_in(world.cluster_state)
    for each in (world, again):
        add_gang(each, "h", way, [pod | {"node": ""} for pod in asked[0]])
    again.cycle = world.cycle
    assert again.decide() == world.decide()
