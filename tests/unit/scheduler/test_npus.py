"""Ascend NPUs as HAMi shares them: templates, slices, whole cards, what the binding tells (DV3)."""

import json
from typing import Any

import pytest

from pumice.testing import Cluster, binds_of, evictions_of
from services.scheduler.config import BadConfig
from services.scheduler.decide import configure
from services.scheduler.engine.state.memory import memory_of, prepare_replay, restore
from services.scheduler.messages import commands
from services.scheduler.policy.vendors.cards import read_shares
from services.scheduler.policy.vendors.npu_chips import KNOWN
from shared.api import kinds
from shared.contracts.messages import Result

CHIP = "Ascend310P"
WIRED = "Ascend910B3"
SLICED = {"huawei.com/vnpu-mode": "hami-core"}
PARTS = "the pod asks for NPUs in parts that none is cut into"


def conf(more: str = "") -> str:
    plugin = f"{{name: deviceshare, arguments: {{deviceshare.AscendHAMiVNPUEnable: true{more}}}}}"
    return f'actions: "allocate"\ntiers:\n- plugins: [{{name: gang}}, {plugin}]\n'


def register(*uuids: str, memory: int = 21527, cores: int = 8, slots: int = 7, **more: Any) -> str:
    each = {"count": slots, "devmem": memory, "devcore": cores, "type": CHIP, "health": True}
    return json.dumps([{"id": uuid, "index": at, **each, **more} for at, uuid in enumerate(uuids)])


def add_node(
    world: Cluster,
    name: str = "n1",
    cards: str = register("N0", "N1"),
    *,
    chip: str = CHIP,
    count: int = 20,
    sliced: str = "",
) -> Cluster:
    has = {"cpu": "64", "memory": "256Gi", "pods": "110", f"huawei.com/{chip}": str(count)}
    annotations = {f"hami.io/node-register-{chip}": cards} if cards else {}
    if sliced:
        annotations["hami-vnpu-core"] = sliced
    meta = {"name": name, "uid": name, "annotations": annotations}
    return world.put(kinds.NODE, {"metadata": meta, "status": {"allocatable": has}})


def world_of(more: str = "", **node: Any) -> Cluster:
    return add_node(Cluster(conf(more)), **node)


def stated(*, chip: str = CHIP, **asked: int) -> dict[str, str]:
    names = {"number": "", "memory": "-memory", "cores": "-core"}
    return {f"huawei.com/{chip}{names[key]}": str(value) for key, value in asked.items()}


def ask(
    world: Cluster,
    name: str,
    *,
    tasks: int = 1,
    least: int = 1,
    chip: str = CHIP,
    annotations: dict[str, str] | None = None,
    **asked: int,
) -> Cluster:
    world.group(name, min_member=least)
    for at in range(tasks):
        metadata = {"annotations": dict(annotations or {})}
        world.pod(f"{name}-{at}", name, requests=stated(chip=chip, **asked), metadata=metadata)
    return world


def shown(plan: Any, chip: str = CHIP) -> dict[str, list[tuple[str, int, int]]]:
    """Return per pod the NPUs that its annotation names, with memory and cores."""
    return {
        bind.pod.partition("/")[2]: [
            (share.uuid, share.memory, share.cores)
            for shares in read_shares(bind.annotations[f"hami.io/{chip}-devices-allocated"])
            for share in shares
        ]
        for gang in plan.binds
        for bind in gang.binds
    }


def cards_of(plan: Any, chip: str = CHIP) -> dict[str, list[str]]:
    return {pod: [uuid for uuid, _, _ in parts] for pod, parts in shown(plan, chip).items()}


def reasons(plan: Any) -> dict[str, int]:
    return dict(plan.explanations[0].reasons)


@pytest.mark.parametrize(
    ("memory", "given", "placed"),
    [(1, 3072, 14), (3072, 3072, 14), (3073, 6144, 6), (12288, 12288, 2), (12289, 21527, 2)],
)
def test_memory_is_rounded_up_to_a_template_and_must_be_free_on_one_card(memory, given, placed):
    plan = ask(world_of(), "g", tasks=15, number=1, memory=memory).decide()
    assert {parts[0][1] for parts in shown(plan).values()} == {given}
    assert len(binds_of(plan)) == placed
    assert reasons(plan) == {"no ascend device available": 1}


def test_a_container_that_names_no_memory_gets_whole_cards():
    plan = ask(world_of(), "g", number=2).decide()
    assert shown(plan) == {"g-0": [("N0", 21527, 0), ("N1", 21527, 0)]}
    assert binds_of(ask(world_of(), "g", number=3).decide()) == {}


@pytest.mark.parametrize("asked", [{"number": 2, "memory": 3072}, {"number": 1, "memory": 24577}])
def test_parts_that_no_card_is_cut_into_are_refused_for_good(asked):
    plan = ask(world_of(), "g", **asked).decide()
    assert reasons(plan) == {PARTS: 1}
    assert binds_of(ask(world_of(), "g", number=2, memory=24576).decide()) == {"g-0": "n1"}


def test_what_the_device_plugin_reads_travels_with_the_binding():
    world = world_of()
    world.group("g", min_member=1)
    whole = [stated(number=1, memory=4096), {}, stated(number=1)]
    containers = [
        {"name": f"c{at}", "resources": {"requests": each, "limits": each}}
        for at, each in enumerate(whole)
    ]
    world.pod("g-0", "g", containers=containers)
    (command,) = commands(world.step(), token=1, gang_message=100)
    told = f"N0,{CHIP},6144,0:;N1,{CHIP},21527,0:;"
    assert command.binds[0].annotations == {
        "hami.io/vgpu-node": "n1",
        "hami.io/vgpu-time": "0",
        "hami.io/bind-phase": "allocating",
        "hami.io/bind-time": "0",
        "predicate-time": "0",
        f"hami.io/{CHIP}-devices-to-allocate": told,
        f"hami.io/{CHIP}-devices-allocated": told,
        f"huawei.com/{CHIP}": '[{"UUID":"N0","temp":"vir02"},{"UUID":"N1"}]',
    }


def test_a_sliced_pod_gets_memory_and_percent_of_cores_where_cards_are_sliced():
    asked = {"number": 1, "memory": 5000, "cores": 60, "annotations": SLICED}
    assert binds_of(ask(world_of(), "g", **asked).decide()) == {}
    plan = ask(world_of(sliced="true"), "g", tasks=3, **asked).decide()
    assert shown(plan) == {"g-0": [("N0", 5000, 60)], "g-1": [("N1", 5000, 60)]}
    (bind, _) = plan.binds[0].binds
    assert bind.annotations[f"huawei.com/{CHIP}"] == '[{"UUID":"N0","memory":5000,"core":60}]'


@pytest.mark.parametrize(
    ("table", "node", "placed"), [("true", "", 1), ("true", "false", 0), ("false", "true", 1)]
)
def test_a_node_says_whether_its_cards_are_sliced_and_else_the_table_does(table, node, placed):
    chip = "{commonWord: Ascend310P, memoryAllocatable: 21527, memoryCapacity: 24576}"
    more = f", deviceshare.VNPUs: {{hamiVnpuCore: {table}, configs: [{chip}]}}"
    world = ask(world_of(more, sliced=node), "g", number=1, memory=500, annotations=SLICED)
    assert len(binds_of(world.decide())) == placed


def test_all_cores_in_percent_keep_other_pods_off_and_a_card_without_cores_left_is_full():
    world = ask(world_of(sliced="true"), "g", number=1, memory=9, cores=100, annotations=SLICED)
    ask(world, "h", number=1, memory=9, cores=40, annotations=SLICED)
    assert cards_of(world.step()) == {"g-0": ["N0"], "h-0": ["N1"]}
    ask(world, "i", tasks=2, number=1, memory=9, cores=60, annotations=SLICED)
    assert cards_of(world.step()) == {"i-0": ["N1"]}
    assert binds_of(ask(world, "j", number=1, memory=9, annotations=SLICED).decide()) == {}


def test_no_more_containers_share_a_card_than_it_has_slots():
    world = world_of(cards=register("N0", slots=3))
    assert len(binds_of(ask(world, "g", tasks=9, memory=1).decide())) == 3


def test_what_a_cycle_chose_holds_in_the_next_until_the_pod_is_gone():
    world = ask(world_of(), "g", tasks=2, least=2, number=1)
    world.step()
    ask(world, "h", number=1, memory=1)
    assert binds_of(world.decide()) == {}
    world.delete(kinds.POD, "ns/g-1", "uid-ns/g-1")
    assert cards_of(world.decide()) == {"h-0": ["N1"]}


def test_what_was_chosen_for_a_bind_that_failed_is_given_to_one_pod_only():
    world = ask(world_of(), "g", number=1)
    assert cards_of(world.step()) == {"g-0": ["N0"]}
    world.cluster_state.outcome("1-0", [("uid-ns/g-0", Result.FAILED)])
    world.pod("g-0", "g", requests=stated(number=1), schedulingGates=[{"name": "held"}])
    assert cards_of(ask(world, "h", number=1).step()) == {"h-0": ["N0"]}
    world.pod("g-0", "g", requests=stated(number=1))
    assert cards_of(world.decide(now=1e9)) == {"g-0": ["N1"]}


def test_a_gang_is_given_cards_whole_or_not_at_all():
    plan = ask(world_of(), "g", tasks=3, least=3, number=1, memory=12288).decide()
    assert binds_of(plan) == {}
    plan = ask(world_of(), "g", tasks=2, least=2, number=1, memory=12288).decide()
    assert cards_of(plan) == {"g-0": ["N0"], "g-1": ["N1"]}


def test_a_pod_that_runs_has_the_cards_that_it_says_in_each_of_its_containers():
    world = world_of(cards=register("N0", "N1", "N2"))
    said = {f"hami.io/{CHIP}-devices-allocated": f"N0,{CHIP},21527,0:;N1,{CHIP},21527,0:;"}
    world.pod("old", node="n1", requests=stated(number=2), metadata={"annotations": said})
    assert cards_of(ask(world, "g", tasks=9, memory=12288).decide()) == {"g-0": ["N2"]}


def test_a_pod_that_terminates_has_its_cards_until_it_is_gone():
    world = world_of(cards=register("N0"))
    said = {f"hami.io/{CHIP}-devices-allocated": f"N0,{CHIP},21527,0:;"}
    meta = {"annotations": said, "deletionTimestamp": "2026-01-01T00:00:00Z"}
    world.pod("old", node="n1", requests=stated(number=1), metadata=meta)
    assert binds_of(ask(world, "g", memory=1).decide()) == {}
    world.delete(kinds.POD, "ns/old", "uid-ns/old")
    assert cards_of(world.decide()) == {"g-0": ["N0"]}


def test_binpack_fills_nodes_and_cards_and_spread_shares_none_while_others_are_idle():
    for policy, nodes, cards in (
        ("binpack", 1, ["N0", "N0", "N0"]),
        ("spread", 2, ["N0", "N0", "N1"]),
    ):
        more = f", deviceshare.SchedulePolicy: {policy}, deviceshare.ScheduleWeight: 10"
        world = ask(add_node(world_of(more), "n2"), "g", tasks=3, number=1, memory=2000)
        plan = world.decide()
        assert len(set(binds_of(plan).values())) == nodes
        assert sorted(uuid for found in cards_of(plan).values() for uuid in found) == cards


def wired(networks: str) -> str:
    each = {"count": 4, "devmem": 65536, "devcore": 20}
    cards = [
        {"id": f"W{at}", **each, "custominfo": {"NetworkID": int(network)}}
        for at, network in enumerate(networks)
    ]
    return json.dumps(cards)


def test_several_cards_of_one_pod_are_of_one_network_where_it_has_enough():
    world = world_of(cards=wired("0111"), chip=WIRED)
    plan = ask(world, "g", chip=WIRED, number=3).decide()
    assert cards_of(plan, WIRED) == {"g-0": ["W1", "W2", "W3"]}


def test_the_node_is_best_whose_cards_for_the_pod_are_in_one_network():
    world = world_of(", deviceshare.ScheduleWeight: 1", cards=wired("0101"), chip=WIRED)
    add_node(world, "n2", wired("0222"), chip=WIRED)
    add_node(world, "n0", wired("0123"), chip=WIRED)
    assert binds_of(ask(world, "g", chip=WIRED, number=3).decide()) == {"g-0": "n2"}


def test_a_node_with_two_kinds_gives_each_by_its_own_name():
    world = world_of()
    has = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    has |= {f"huawei.com/{CHIP}": "9", f"huawei.com/{WIRED}": "9"}
    told = {
        f"hami.io/node-register-{CHIP}": register("N0"),
        f"hami.io/node-register-{WIRED}": wired("0"),
    }
    meta = {"name": "n2", "uid": "n2", "annotations": told}
    world.put(kinds.NODE, {"metadata": meta, "status": {"allocatable": has}})
    world.group("g", min_member=1)
    world.pod("g-0", "g", requests=stated(memory=1) | stated(chip=WIRED, number=1))
    plan = world.decide()
    assert binds_of(plan) == {"g-0": "n2"}
    assert cards_of(plan) == {"g-0": ["N0"]}
    assert cards_of(plan, WIRED) == {"g-0": ["W0"]}


@pytest.mark.parametrize("cards", ["", "[]", "{", "null", '[{"id":"N0","count":"many"}]'])
def test_a_node_that_registers_no_cards_gives_what_it_offers_by_number_and_no_memory(cards):
    world = ask(world_of(cards=cards), "g", number=1, memory=1)
    plan = ask(world, "h", memory=1).decide()
    assert binds_of(plan) == {"g-0": "n1"}
    assert not plan.binds[0].binds[0].annotations
    assert reasons(plan) == {"no ascend device available": 1}


def test_a_node_whose_device_plugin_has_left_gives_no_memory():
    assert binds_of(ask(world_of(count=0), "g", memory=1).decide()) == {}


def test_memory_and_cores_of_npus_are_asked_of_no_node_and_of_no_queue():
    text = (
        conf()
        .replace('"allocate"', '"enqueue, allocate"')
        .replace("{name: gang}", "{name: gang}, {name: overcommit}, {name: proportion}")
    )
    world = add_node(Cluster(text), sliced="true")
    asked = stated(number=1, memory=4096, cores=20)
    world.group("g", min_member=1, phase="Pending", minResources=asked)
    world.pod("g-0", "g", requests=asked, metadata={"annotations": SLICED})
    assert binds_of(world.step()) == {"g-0": "n1"}


def test_the_table_of_the_arguments_takes_both_forms_of_the_device_plugins_own():
    chip = (
        "{chipName: 310P3, commonWord: Ascend310P, resourceName: huawei.com/Ascend310P, "
        "resourceMemoryName: huawei.com/Ascend310P-memory, memoryAllocatable: 20000, "
        "memoryCapacity: 21527, aiCore: 8, aiCPU: 7, templates: "
        "[{name: half, memory: 10000, aiCore: 4}, {name: part, memory: 5000, aiCPU: 1}]}"
    )
    for form in (f"[{chip}]", f"{{configs: [{chip}]}}"):
        world = ask(world_of(f", deviceshare.VNPUs: {form}"), "g", memory=4000)
        ask(world, "h", memory=5001)
        plan = world.decide()
        told = [
            json.loads(b.annotations[f"huawei.com/{CHIP}"]) for g in plan.binds for b in g.binds
        ]
        assert told == [[{"UUID": "N0", "temp": "part"}], [{"UUID": "N0", "temp": "half"}]]


@pytest.mark.parametrize(
    "table",
    [
        "text",
        "[{commonWord: Ascend310P}]",
        "[{commonWord: Cambricon, memoryAllocatable: 1, memoryCapacity: 1}]",
        "[{commonWord: Ascend-core, memoryAllocatable: 1, memoryCapacity: 1}]",
        "[{commonWord: Ascend1, memoryAllocatable: -1, memoryCapacity: 1}]",
        "[{commonWord: Ascend1, memoryAllocatable: 1, memoryCapacity: 1, resourceName: x/y}]",
    ],
)
def test_a_table_that_cannot_be_used_is_refused_by_its_name(table):
    plugin = f"{{name: deviceshare, arguments: {{deviceshare.VNPUs: {table}}}}}"
    with pytest.raises(BadConfig, match=r"deviceshare\.VNPUs"):
        configure(f'actions: "allocate"\ntiers:\n- plugins: [{plugin}]\n')


def test_a_chip_that_the_table_lacks_is_given_by_number():
    world = world_of(chip="Ascend2000", cards=register("N0"))
    plan = ask(world, "g", tasks=2, chip="Ascend2000", number=15).decide()
    assert binds_of(plan) == {"g-0": "n1"}
    assert KNOWN.chip("Ascend2000") is None


def test_what_was_chosen_goes_with_a_recorded_cycle():
    world = ask(world_of(), "g", tasks=2, number=1, memory=9000)
    world.step()
    memory = memory_of(world.cluster_state)
    again = Cluster(conf())
    prepare_replay(again.cluster_state, memory)
    ask(add_node(again), "g", tasks=2, number=1, memory=9000)
    restore(again.cluster_state, memory)
    for same in (world, again):
        ask(same, "h", tasks=2, number=1, memory=3000)
    assert cards_of(again.decide()) == cards_of(world.decide()) != {}


def test_a_victim_gives_its_npu_to_the_pod_that_evicts_it():
    text = conf().replace('"allocate"', '"allocate, preempt"')
    text = text.replace("{name: gang}", "{name: priority}, {name: gang}, {name: conformance}")
    world = add_node(Cluster(text), count=2)
    for name, value in (("low", 10), ("high", 1000)):
        world.put(kinds.PRIORITYCLASS, {"metadata": {"name": name, "uid": name}, "value": value})
    world.group("low", min_member=1, phase="Running", priorityClassName="low")
    for at in range(2):
        said = {f"hami.io/{CHIP}-devices-allocated": f"N{at},{CHIP},21527,0:;"}
        meta = {"annotations": said}
        world.pod(f"low-{at}", "low", node="n1", requests=stated(number=1), metadata=meta)
    world.group("high", min_member=1, priorityClassName="high")
    world.pod("high-0", "high", requests=stated(number=1))
    assert evictions_of(world.step()) == {"low-1": "high-0"}
    world.delete(kinds.POD, "ns/low-1", "uid-ns/low-1")
    assert cards_of(world.decide()) == {"high-0": ["N1"]}
