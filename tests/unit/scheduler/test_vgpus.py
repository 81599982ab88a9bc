"""Virtual GPUs: parts of cards by memory and cores, chosen and told to the device plugin (DV2)."""

import pytest

from pumice.testing import Cluster, binds_of
from services.scheduler.decide import decide
from services.scheduler.engine.state.memory import memory_of, prepare_replay, restore
from services.scheduler.messages import commands
from services.scheduler.policy.vendors.cards import read_shares
from shared.api import kinds
from shared.contracts.messages import Bind, Result

NUMBER, MEMORY = "volcano.sh/vgpu-number", "volcano.sh/vgpu-memory"
CORES, PERCENT = "volcano.sh/vgpu-cores", "volcano.sh/vgpu-memory-percentage"
IDS = "volcano.sh/vgpu-ids-new"
T4, A100 = "NVIDIA-Tesla T4", "NVIDIA-A100"
ASKED_AT = 1_767_225_600.0
"""2026-01-01 00:00:00 UTC."""


def conf(more: str = "") -> str:
    plugin = f"{{name: deviceshare, arguments: {{deviceshare.VGPUEnable: true{more}}}}}"
    return f'actions: "allocate"\ntiers:\n- plugins: [{{name: gang}}, {plugin}]\n'


def register(*cards: tuple[str, str], memory: int = 16000, healthy: str = "true") -> str:
    return "".join(f"{uuid},10,{memory},{kind},{healthy},hami-core:" for uuid, kind in cards)


def add_node(
    world: Cluster,
    name: str = "n1",
    cards: str = register(("GPU-0", T4), ("GPU-1", T4)),
    handshake: str = "Reported 2026-01-01",
) -> Cluster:
    has = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    has |= {NUMBER: "20", MEMORY: "64000", CORES: "400"}
    annotations = {"volcano.sh/node-vgpu-register": cards}
    if handshake:
        annotations["volcano.sh/node-vgpu-handshake"] = handshake
    meta = {"name": name, "uid": name, "annotations": annotations}
    return world.put(kinds.NODE, {"metadata": meta, "status": {"allocatable": has}})


def world_of(more: str = "", **node) -> Cluster:
    return add_node(Cluster(conf(more)), **node)


def ask(world: Cluster, name: str, *, tasks: int = 1, annotations=None, labels=None, **asked):
    names = {"number": NUMBER, "memory": MEMORY, "cores": CORES, "percent": PERCENT}
    requests = {names[key]: str(value) for key, value in asked.items()}
    world.group(name, min_member=1)
    for at in range(tasks):
        metadata = {"annotations": dict(annotations or {}), "labels": dict(labels or {})}
        world.pod(f"{name}-{at}", name, requests=requests, metadata=metadata)
    return world


def cards_of(plan) -> dict[str, list[str]]:
    return {
        bind.pod.partition("/")[2]: [
            share.uuid for shares in read_shares(bind.annotations[IDS]) for share in shares
        ]
        for gang in plan.binds
        for bind in gang.binds
    }


def test_memory_must_be_free_on_one_card():
    plan = ask(world_of(), "g", tasks=3, number=1, memory=9000).decide()
    assert cards_of(plan) == {"g-0": ["GPU-1"], "g-1": ["GPU-0"]}
    assert dict(plan.explanations[0].reasons) == {"hami-vgpuDeviceSharing error": 1}


def test_what_the_device_plugin_reads_travels_with_the_binding():
    world = ask(world_of(), "g", number=2, memory=1000, cores=30)
    plan = world.step()
    (command,) = commands(plan, token=1, gang_message=100)
    shown = "GPU-1,NVIDIA,1000,30:GPU-0,NVIDIA,1000,30:"
    assert command.binds[0].annotations == {
        "volcano.sh/vgpu-node": "n1",
        "volcano.sh/vgpu-time": "0",
        IDS: shown,
        "volcano.sh/devices-to-allocate": shown,
        "volcano.sh/bind-phase": "allocating",
        "volcano.sh/bind-time": "0",
    }


def test_what_a_cycle_chose_holds_in_the_next():
    world = ask(world_of(), "g", tasks=2, number=1, memory=16000)
    world.step()
    ask(world, "h", number=1, memory=1)
    assert binds_of(world.decide()) == {}
    world.delete(kinds.POD, "ns/g-0", "uid-ns/g-0")
    assert cards_of(world.decide()) == {"h-0": ["GPU-1"]}


def test_a_new_leader_goes_by_the_cards_of_binds_that_are_under_way():
    world = ask(world_of(), "g", number=1)
    shown = {IDS: "GPU-0,NVIDIA,16000,0:"}
    bind = Bind(pod="ns/g-0", uid="uid-ns/g-0", node="n1", annotations=shown)
    world.cluster_state.assume("1-0", [bind])
    assert cards_of(ask(world, "h", tasks=2, number=1).step()) == {"h-0": ["GPU-1"]}


def test_a_card_of_a_bind_that_failed_is_given_to_one_pod_only():
    world = ask(world_of(), "g", number=1)
    assert cards_of(world.step()) == {"g-0": ["GPU-1"]}
    world.cluster_state.outcome("1-0", [("uid-ns/g-0", Result.FAILED)])
    world.pod("g-0", "g", requests={NUMBER: "1"}, schedulingGates=[{"name": "held"}])
    assert cards_of(ask(world, "h", number=1).step()) == {"h-0": ["GPU-1"]}
    world.pod("g-0", "g", requests={NUMBER: "1"})
    assert cards_of(world.decide(now=1e9)) == {"g-0": ["GPU-0"]}


def test_a_pod_that_runs_has_the_cards_that_it_says():
    world = world_of()
    said = {"annotations": {IDS: "GPU-1,NVIDIA,16000,0:;"}}
    world.pod("old", node="n1", requests={NUMBER: "1"}, metadata=said)
    assert cards_of(ask(world, "g", number=1, memory=500).decide()) == {"g-0": ["GPU-0"]}


@pytest.mark.parametrize(
    ("asked", "placed"),
    [
        ({"number": 1, "cores": 60}, 2),
        ({"number": 1, "memory": 100, "cores": 50}, 4),
        ({"number": 1, "memory": 100, "cores": 100}, 2),
        ({"number": 1, "percent": 50}, 4),
        ({"number": 1}, 2),
        ({"memory": 4000}, 8),
        ({"number": 2, "memory": 8000}, 2),
        ({"number": 3, "memory": 1}, 0),
    ],
)
def test_cards_are_given_by_number_memory_percent_and_cores(asked, placed):
    """A whole card goes to a pod that names no memory; all cores mean nobody else."""
    plan = ask(world_of(), "g", tasks=9, **asked).decide()
    assert len(binds_of(plan)) == placed


def test_a_card_whose_cores_are_all_taken_is_full():
    world = ask(world_of(cards=register(("GPU-0", T4))), "g", number=1, memory=10, cores=100)
    world.step()
    assert binds_of(ask(world, "h", number=1, memory=10).decide()) == {}


def test_no_more_containers_share_a_card_than_it_has_slots():
    plan = ask(world_of(cards="GPU-0,3,16000,NVIDIA-T4,true,x:"), "g", tasks=9, memory=1).decide()
    assert len(binds_of(plan)) == 3


WISHES = {
    "use a type": ({"nvidia.com/use-gputype": "a100,v100"}, ["GPU-1"]),
    "not that type": ({"nvidia.com/nouse-gputype": "A100"}, ["GPU-0"]),
    "use a card": ({"volcano.sh/vgpu-use-gpuuuid": "GPU-0"}, ["GPU-0"]),
    "not that card": ({"volcano.sh/vgpu-nouse-gpuuuid": "GPU-1, GPU-9"}, ["GPU-0"]),
    "a mode": ({"volcano.sh/vgpu-mode": "hami-core"}, ["GPU-1"]),
    "another mode": ({"volcano.sh/vgpu-mode": "mig"}, None),
}


@pytest.mark.parametrize("wish", WISHES)
def test_a_pod_may_say_which_cards_it_wants(wish):
    annotations, cards = WISHES[wish]
    world = world_of(cards=register(("GPU-0", T4), ("GPU-1", A100)))
    plan = ask(world, "g", number=1, memory=10, annotations=annotations).decide()
    assert cards_of(plan) == ({"g-0": cards} if cards else {})


def test_mig_without_geometries_is_refused_by_its_name_on_nodes_and_on_pods():
    cut = register(("GPU-0", A100)).replace("hami-core", "mig")
    plan = ask(add_node(world_of(cards=cut), "n2"), "g", number=1, memory=10).decide()
    assert binds_of(plan) == {"g-0": "n2"}
    plan = ask(world_of(cards=cut), "g", number=1, memory=10).decide()
    reasons = {"no geometries of its GPUs in MIG mode are known": 1}
    assert dict(plan.explanations[0].reasons) == reasons
    wish = {"volcano.sh/vgpu-mode": "mig"}
    plan = ask(world_of(), "g", number=1, memory=10, annotations=wish).decide()
    reasons = {"its GPUs are in another mode than the pod requests": 1}
    assert dict(plan.explanations[0].reasons) == reasons


def test_cards_that_leave_mig_mode_are_given():
    cut = register(("GPU-0", A100)).replace("hami-core", "mig")
    world = ask(world_of(cards=cut), "g", number=1, memory=10)
    assert binds_of(world.decide()) == {}
    assert cards_of(add_node(world).decide()) == {"g-0": ["GPU-1"]}


def test_binpack_fills_nodes_and_cards_and_spread_shares_none_while_others_are_idle():
    for policy, nodes, cards in (
        ("binpack", 1, ["GPU-0", "GPU-0", "GPU-0"]),
        ("spread", 2, ["GPU-0", "GPU-0", "GPU-1"]),
    ):
        more = f", deviceshare.SchedulePolicy: {policy}, deviceshare.ScheduleWeight: 10"
        plan = ask(add_node(world_of(more), "n2"), "g", tasks=3, number=1, memory=2000).decide()
        assert len(set(binds_of(plan).values())) == nodes
        assert sorted(uuid for found in cards_of(plan).values() for uuid in found) == cards


def test_pods_of_one_rule_share_no_card_and_others_may():
    rules = ", deviceshare.GPUExclusiveRules: [{tier: gold}, {app: web, tier: silver}]"
    gold, silver = {"tier": "gold"}, {"app": "web", "tier": "silver"}
    world = ask(world_of(rules), "g", tasks=3, memory=10, labels=gold)
    assert sorted(cards_of(world.step()).values()) == [["GPU-0"], ["GPU-1"]]
    assert len(binds_of(ask(world, "s", tasks=3, memory=10, labels=silver).step())) == 2
    plan = ask(world, "o", tasks=3, memory=10, labels={"tier": "silver"}).step()
    assert len(binds_of(plan)) == 3


def test_pods_of_a_group_keep_off_each_others_cards_if_they_say_so():
    spread = {"volcano.sh/vgpu-podgroup-policy": "spread"}
    world = ask(world_of(), "g", tasks=3, memory=10, annotations=spread)
    assert sorted(cards_of(world.step()).values()) == [["GPU-0"], ["GPU-1"]]
    assert len(binds_of(ask(world, "h", memory=10, annotations=spread).decide())) == 1


@pytest.mark.parametrize(
    "node",
    [
        {"cards": ""},
        {"cards": "GPU-0,10,many,NVIDIA,true,x:"},
        {"cards": "GPU-0,10:"},
        {"cards": register(("GPU-0", T4), healthy="false")},
        {"handshake": ""},
        {"handshake": "Deleted_2026.01.01 00:00:00"},
        {"handshake": "Requesting_soon"},
    ],
)
def test_a_node_without_cards_that_can_be_used_takes_nobody_who_wants_some(node):
    world = world_of(**node)
    world.gang("plain", tasks=1)
    plan = ask(world, "g", number=1).decide()
    assert binds_of(plan) == {"plain-0": "n1"}
    assert dict(plan.explanations[0].reasons) == {"node not initialized with devicehamivgpu": 1}


def test_a_device_plugin_that_does_not_answer_for_a_minute_is_gone():
    world = ask(world_of(handshake="Requesting_2026.01.01 00:00:00"), "g", number=1)
    for now, placed in ((ASKED_AT + 60, 1), (ASKED_AT + 61, 0)):
        assert len(binds_of(decide(world.cluster_state, world.config, now=now))) == placed


def test_what_was_chosen_goes_with_a_recorded_cycle():
    world = ask(world_of(), "g", tasks=2, number=1, memory=9000)
    world.step()
    memory = memory_of(world.cluster_state)
    again = Cluster(conf())
    prepare_replay(again.cluster_state, memory)
    ask(add_node(again), "g", tasks=2, number=1, memory=9000)
    restore(again.cluster_state, memory)
    for same in (world, again):
        ask(same, "h", tasks=2, number=1, memory=7000)
    assert cards_of(again.decide()) == cards_of(world.decide()) != {}
