"""Ascend 310P NPUs as MindCluster cuts them: templates, whole chips, broken ones (DV3)."""

import json
from typing import Any

import pytest

from pumice.testing import Cluster, binds_of
from services.scheduler.engine.state.memory import memory_of, prepare_replay, restore
from services.scheduler.policy.vendors.mindcluster import MindclusterNpus
from shared.api import kinds
from tests.support.laws import LISTENING

CORES = "huawei.com/npu-core"
REFUSED = "no Ascend 310P chip of MindCluster has room"
_PLUGIN = "{name: deviceshare, arguments: {deviceshare.AscendMindClusterVNPUEnable: true%s}}"


def conf(more: str = "") -> str:
    return f'actions: "allocate"\ntiers:\n- plugins: [{{name: gang}}, {_PLUGIN % more}]\n'


@pytest.fixture(autouse=True)
def listening(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have clusters of these tests listen to MindCluster."""
    monkeypatch.setattr("pumice.testing.STATES", LISTENING)


def add_node(
    world: Cluster, name: str = "n1", *, chips: int = 2, base: str | None = None, **labels: str
) -> Cluster:
    told = {f"Ascend310P-{at}": {"IP": "", "SuperDeviceID": 0} for at in range(chips)}
    annotations = {"baseDeviceInfos": json.dumps(told) if base is None else base}
    offered = {"cpu": "64", "memory": "256Gi", "pods": "110", CORES: str(8 * chips)}
    known = {"accelerator": "huawei-Ascend310P", "servertype": "Ascend310P-8"}
    known |= {"node.kubernetes.io/npu.chip.name": "310P3"}
    known |= {key.replace("chip_name", "node.kubernetes.io/npu.chip.name"): value
              for key, value in labels.items()}  # fmt: skip
    meta = {"name": name, "uid": name, "annotations": annotations, "labels": known}
    return world.put(
        kinds.NODE, {"metadata": meta, "status": {"allocatable": offered, "capacity": offered}}
    )


def tell(world: Cluster, name: str = "n1", *, broken: str = "", number: int = 0) -> Cluster:
    devices = {"huawei.com/Ascend310P": "", "huawei.com/Ascend310P-Unhealthy": broken}
    entry = {"DeviceList": devices, "UpdateTime": 1, "SuperPodID": -1}
    told = f"cluster-info-device-{number}"
    data = {told: json.dumps({f"mindx-dl-deviceinfo-{name}": entry})}
    return world.put(
        kinds.NPUINFO, {"metadata": {"name": told, "namespace": "mindx-dl"}, "data": data}
    )


def world_of(more: str = "", **node: Any) -> Cluster:
    return tell(add_node(Cluster(conf(more)), **node))


def ask(
    world: Cluster, name: str, cores: int, *, tasks: int = 1, least: int = 1, **labels: str
) -> Cluster:
    world.group(name, min_member=least)
    for at in range(tasks):
        add_pod(world, f"{name}-{at}", name, cores, **labels)
    return world


def add_pod(
    world: Cluster,
    name: str,
    group: str,
    cores: int,
    *,
    node: str = "",
    annotations: dict[str, str] | None = None,
    **labels: str,
) -> None:
    said = {"ring-controller.atlas": "ascend-310P"}
    said |= {f"vnpu-{key}": value for key, value in labels.items()}
    meta = {"labels": said, "annotations": dict(annotations or {})}
    stated = {CORES: str(cores)}
    containers = [{"name": "c", "resources": {"limits": stated, "requests": stated}}]
    world.pod(name, group, node=node, metadata=meta, containers=containers)


def given(plan: Any) -> dict[str, str]:
    return {
        bind.pod.partition("/")[2]: bind.annotations[CORES]
        for gang in plan.binds
        for bind in gang.binds
    }


@pytest.mark.parametrize(
    ("cores", "level", "dvpp", "template"),
    [
        (1, "low", "null", "vir01"),
        (1, "high", "yes", "vir01"),
        (2, "low", "null", "vir02_1c"),
        (2, "odd", "null", "vir02_1c"),
        (2, "high", "null", "vir02"),
        (4, "low", "yes", "vir04_4c_dvpp"),
        (4, "low", "no", "vir04_3c_ndvpp"),
        (4, "low", "null", "vir04_3c"),
        (4, "high", "yes", "vir04_4c_dvpp"),
        (4, "high", "no", "vir04_3c_ndvpp"),
        (4, "high", "null", "vir04"),
        (3, "low", "null", None),
        (4, "low", "perhaps", None),
    ],
)
def test_cores_and_labels_say_the_template(cores, level, dvpp, template):
    plan = ask(world_of(), "g", cores, level=level, dvpp=dvpp).decide()
    assert given(plan) == ({"g-0": f"0-{template}"} if template else {})


def test_a_multiple_of_a_chips_cores_is_whole_chips():
    plan = ask(world_of(chips=3), "g", 16).decide()
    assert given(plan) == {"g-0": "0,1"}
    assert dict(ask(world_of(), "g", 24).decide().explanations[0].reasons)
    (bind,) = plan.binds[0].binds
    assert bind.annotations.keys() == {CORES, "predicate-time"}


def test_a_gang_within_one_session_fills_the_chip_with_the_least_room_first():
    plan = ask(world_of(), "g", 4, tasks=5, least=1).decide()
    assert given(plan) == {
        "g-0": "0-vir04_3c",
        "g-1": "0-vir04_3c",
        "g-2": "1-vir04_3c",
        "g-3": "1-vir04_3c",
    }
    assert given(ask(world_of(), "h", 4, tasks=5, least=5).decide()) == {}


def test_cpus_of_a_chip_bound_its_parts_and_a_smaller_template_is_taken_where_they_are_short():
    plan = ask(world_of(chips=1), "g", 2, tasks=4, level="high").step()
    assert given(plan) == {f"g-{at}": "0-vir02" for at in range(3)}
    world = world_of(chips=1)
    for cores in (4, 2):
        real = f"Ascend310P-{cores}c-10{cores}-0_{cores}"
        said = {CORES: f"0-vir0{cores}", "huawei.com/AscendReal": real}
        add_pod(world, f"old-{cores}", "", cores, node="n1", annotations=said)
    assert given(ask(world, "h", 2, level="high").decide()) == {"h-0": "0-vir02_1c"}


def test_one_part_of_a_chip_has_its_video_units():
    world = ask(world_of(chips=1), "g", 4, dvpp="yes")
    world.step()
    said = {CORES: "0-vir04_4c_dvpp", "huawei.com/AscendReal": "Ascend310P-4c-100-0_0"}
    add_pod(world, "g-0", "g", 4, node="n1", annotations=said, dvpp="yes")
    assert given(ask(world, "h", 4, dvpp="yes").decide()) == {}
    assert given(ask(world, "i", 4, dvpp="null").decide()) == {}
    assert given(ask(world, "j", 4, dvpp="no").decide()) == {"j-0": "0-vir04_3c_ndvpp"}


def test_a_node_makes_parts_of_one_template_at_a_time_and_one_chip_one_part():
    world = world_of()
    assert given(ask(world, "g", 4).step()) == {"g-0": "0-vir04_3c"}
    assert given(ask(world, "h", 1).decide()) == {}
    assert given(ask(world, "i", 4).decide()) == {"i-0": "1-vir04_3c"}
    said = {CORES: "0-vir04_3c", "huawei.com/AscendReal": "Ascend310P-4c.3cpu-100-0_0"}
    add_pod(world, "g-0", "g", 4, node="n1", annotations=said)
    assert given(world.decide()) in ({"h-0": "0-vir01"}, {"i-0": "0-vir04_3c"})


def test_a_template_gives_way_to_a_smaller_one_for_want_of_room_only():
    world = world_of(chips=3)
    add_pod(world, "old", "", 2, node="n1", annotations={CORES: "0-vir02_1c"})
    assert given(ask(world, "g", 2, level="high").decide()) == {}


def test_a_chip_in_four_groups_gives_single_cores_alone():
    world = world_of(chips=1)
    for at in range(4):
        said = {CORES: "0-vir01", "huawei.com/AscendReal": f"Ascend310P-1c-10{at}-0_{at}"}
        add_pod(world, f"old-{at}", "", 1, node="n1", annotations=said)
    assert given(ask(world, "g", 2).decide()) == {}
    assert given(ask(world, "h", 1).decide()) == {"h-0": "0-vir01"}


def test_broken_chips_are_given_to_no_pod_and_come_back_when_they_are_sound():
    world = tell(world_of(), broken="Ascend310P-0")
    assert given(ask(world, "g", 8).decide()) == {"g-0": "1"}
    ask(world, "h", 16)
    assert given(world.decide()) == {"g-0": "1"}
    assert given(tell(world).decide()) == {"g-0": "0"}
    world.delete(kinds.NPUINFO, "mindx-dl/cluster-info-device-0", "")
    assert given(world.decide()) == {}


def test_a_node_that_mindcluster_sets_apart_takes_no_pod():
    world = world_of()
    name = "cluster-info-node-cm"
    data = {name: json.dumps({"mindx-dl-nodeinfo-n1": {"NodeStatus": "PreSeparate"}})}
    meta = {"name": name, "namespace": "mindx-dl"}
    world.put(kinds.NPUINFO, {"metadata": meta, "data": data})
    plan = ask(world, "g", 1).decide()
    assert dict(plan.explanations[0].reasons) == {REFUSED: 1}


@pytest.mark.parametrize(
    "node",
    [
        {"base": "{"},
        {"base": ""},
        {"accelerator": "huawei-Ascend910"},
        {"accelerator": "Ascend310P"},
        {"servertype": "Ascend310P"},
        {"servertype": "Ascend310P-9"},
    ],
)
def test_a_node_whose_chips_are_not_known_takes_no_pod(node):
    assert given(ask(world_of(**node), "g", 1).decide()) == {}


def test_without_a_word_of_mindcluster_the_nodes_own_list_counts():
    world = add_node(Cluster(conf()))
    assert given(ask(world, "g", 1).decide()) == {}
    told = {"huawei.com/Ascend310P": "Ascend310P-3,Ascend310P-5,Ascend310P-2c-100-5"}
    told["huawei.com/Ascend310P-Unhealthy"] = "Ascend310P-3"
    known = {"accelerator": "huawei-Ascend310P", "servertype": "Ascend310P-8"}
    known |= {"node.kubernetes.io/npu.chip.name": "310P3"}
    has = {"cpu": "9", "pods": "9", CORES: "16"}
    meta = {"name": "n1", "uid": "n1", "annotations": told, "labels": known}
    world.put(kinds.NODE, {"metadata": meta, "status": {"allocatable": has, "capacity": has}})
    assert given(world.decide()) == {"g-0": "5-vir01"}


def test_what_a_cycle_chose_holds_in_the_next_until_the_pod_is_gone():
    world = ask(world_of(), "g", 8, tasks=2, least=2)
    assert given(world.step()) == {"g-0": "0", "g-1": "1"}
    ask(world, "h", 8)
    assert given(world.decide()) == {}
    world.delete(kinds.POD, "ns/g-1", "uid-ns/g-1")
    assert given(world.decide()) == {"h-0": "1"}


def test_a_pod_that_says_a_whole_chip_has_it_however_many_cores_it_has():
    world = world_of()
    add_pod(world, "old", "", 8, node="n1", annotations={CORES: "0"})
    assert given(ask(world, "g", 8).decide()) == {"g-0": "1"}


def test_a_pod_without_the_label_is_given_cores_by_number():
    world = world_of(base="")
    world.group("g", min_member=1)
    world.pod("g-0", "g", requests={CORES: "8"})
    plan = world.decide()
    assert binds_of(plan) == {"g-0": "n1"}
    assert not plan.binds[0].binds[0].annotations


def test_the_fuller_node_is_preferred_and_one_where_no_smaller_template_is_needed():
    world = tell(
        add_node(world_of(", deviceshare.ScheduleWeight: 1", chips=4), "n2"), "n2", number=1
    )
    assert binds_of(ask(world, "g", 1, tasks=1).step()) in ({"g-0": "n1"}, {"g-0": "n2"})
    full = {CORES: "0-vir04_3c", "huawei.com/AscendReal": "Ascend310P-4c-1-0_0"}
    add_pod(world, "old", "", 4, node="n2", annotations=full)
    assert binds_of(ask(world, "h", 8).step()) == {"h-0": "n2"}


def test_what_was_chosen_goes_with_a_recorded_cycle():
    world = ask(world_of(), "g", 4, tasks=1)
    world.step()
    memory = memory_of(world.cluster_state)
    again = Cluster(conf())
    prepare_replay(again.cluster_state, memory)
    ask(tell(add_node(again)), "g", 4, tasks=1)
    restore(again.cluster_state, memory)
    for same in (world, again):
        ask(same, "h", 4)
    assert given(again.decide()) == given(world.decide()) == {"h-0": "1-vir04_3c"}


def test_without_the_flag_no_chip_is_known():
    world = Cluster(conf())
    assert world.cluster_state.store(MindclusterNpus).on
    assert not MindclusterNpus().on
    assert MindclusterNpus().folds() == {}
