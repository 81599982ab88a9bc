"""GPU cards: shared by memory or taken whole, and never twice (PL18, DV1)."""

import pytest

from pumice.testing import Cluster, binds_of
from services.scheduler.config import BadConfig
from services.scheduler.decide import configure
from services.scheduler.messages import commands
from shared.api import kinds
from shared.contracts.messages import Bind, Result

INDEX = "volcano.sh/gpu-index"


def conf(way: str) -> str:
    plugin = f"{{name: deviceshare, arguments: {{deviceshare.{way}: true}}}}"
    return f'actions: "allocate"\ntiers:\n- plugins: [{{name: gang}}, {plugin}]\n'


def world_of(way: str, *, cards: int = 2, memory: int = 16, unhealthy: str = "") -> Cluster:
    has = {"cpu": "8", "memory": "16Gi", "pods": "20"}
    has |= {"volcano.sh/gpu-memory": str(cards * memory), "volcano.sh/gpu-number": str(cards)}
    annotations = {"volcano.sh/gpu-unhealthy-ids": unhealthy} if unhealthy else {}
    meta = {"name": "n1", "uid": "n1", "annotations": annotations}
    document = {"metadata": meta, "status": {"allocatable": has, "capacity": has}}
    return Cluster(conf(way)).put(kinds.NODE, document)


def sharing(world: Cluster, tasks: int, memory: int) -> Cluster:
    asked = {"volcano.sh/gpu-memory": str(memory)}
    return world.gang("g", tasks=tasks, min_member=1, requests=asked)


def cards_of(plan) -> dict[str, str]:
    return {
        bind.pod.partition("/")[2]: bind.annotations[INDEX]
        for gang in plan.binds
        for bind in gang.binds
    }


def test_memory_must_be_free_on_one_card_not_in_sum():
    plan = sharing(world_of("GPUSharingEnable"), 4, 10).decide()
    assert cards_of(plan) == {"g-0": "0", "g-1": "1"}
    assert dict(plan.explanations[0].reasons) == {"GpuShare no enough gpu memory on node": 1}


def test_small_pods_fill_a_card_before_the_next():
    plan = sharing(world_of("GPUSharingEnable"), 4, 5).decide()
    assert cards_of(plan) == {"g-0": "0", "g-1": "0", "g-2": "0", "g-3": "1"}


def test_what_a_cycle_chose_holds_in_the_next_and_travels_with_the_binding():
    world = sharing(world_of("GPUSharingEnable"), 2, 10)
    plan = world.step()
    (command,) = commands(plan, token=1, gang_message=100)
    assert [bind.annotations[INDEX] for bind in command.binds] == ["0", "1"]
    world.gang("h", tasks=1, requests={"volcano.sh/gpu-memory": "8"})
    assert binds_of(world.decide()) == {}
    world.delete(kinds.POD, "ns/g-1", "uid-ns/g-1")
    assert cards_of(world.decide())["h-0"] == "1"


def test_a_pod_that_runs_has_the_cards_that_it_says():
    world = world_of("GPUSharingEnable")
    said = {"annotations": {INDEX: "1"}}
    world.pod("old", node="n1", requests={"volcano.sh/gpu-memory": "10"}, metadata=said)
    assert cards_of(sharing(world, 1, 10).decide()) == {"g-0": "0"}


def test_whole_cards_go_to_one_pod_each_and_broken_ones_to_nobody():
    world = world_of("GPUNumberEnable", cards=4, unhealthy="1")
    world.gang("g", tasks=2, min_member=1, requests={"volcano.sh/gpu-number": "2"})
    plan = world.decide()
    assert cards_of(plan) == {"g-0": "0,2"}
    assert dict(plan.explanations[0].reasons) == {"GpuNumber no enough gpu number on node": 1}


def test_a_card_of_a_bind_that_failed_is_given_to_one_pod_only():
    asked = {"volcano.sh/gpu-number": "1"}
    world = world_of("GPUNumberEnable").gang("g", tasks=1, requests=asked)
    assert cards_of(world.step()) == {"g-0": "0"}
    world.cluster_state.outcome("1-0", [("uid-ns/g-0", Result.FAILED)])
    world.pod("g-0", "g", requests=asked, schedulingGates=[{"name": "held"}])
    assert cards_of(world.gang("h", tasks=1, requests=asked).step()) == {"h-0": "0"}
    world.pod("g-0", "g", requests=asked)
    assert cards_of(world.decide(now=1e9)) == {"g-0": "1"}


def test_a_new_leader_goes_by_the_cards_of_binds_that_are_under_way():
    asked = {"volcano.sh/gpu-number": "1"}
    world = world_of("GPUNumberEnable").gang("g", tasks=1, requests=asked)
    bind = Bind(pod="ns/g-0", uid="uid-ns/g-0", node="n1", annotations={INDEX: "1"})
    world.cluster_state.assume("1-0", [bind])
    assert cards_of(world.gang("h", tasks=2, min_member=1, requests=asked).step()) == {"h-0": "0"}


@pytest.mark.parametrize(
    "arguments",
    [
        "deviceshare.GPUSharingEnable: true, deviceshare.GPUNumberEnable: true",
        "deviceshare.VGPUEnable: true, deviceshare.GPUNumberEnable: true",
        "deviceshare.SchedulePolicy: random",
        "deviceshare.GPUExclusiveRules: {a: b}",
        "deviceshare.GPUExclusiveRules: [{a: 3}]",
    ],
)
def test_what_cannot_be_honoured_is_refused_when_it_is_configured(arguments):
    plugin = f"{{name: deviceshare, arguments: {{{arguments}}}}}"
    with pytest.raises(BadConfig, match="deviceshare"):
        configure(f'actions: "allocate"\ntiers:\n- plugins: [{plugin}]\n')
