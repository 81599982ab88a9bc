"""Laws: no object ends or blocks the scheduler, or meets an error of ours; a healthy gang runs.

Objects of every kind that scheduling reads are drawn from their views, full of nonsense, and folded
beside a healthy gang in a queue of its own. Quarantine is the last line: the law refuses whatever
it would have caught.
"""

import json

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pumice.testing import binds_of
from services.scheduler.decide import configure
from services.scheduler.decision_settings import DecisionSettings
from services.scheduler.scheduler_state import SchedulerState
from shared.api import kinds
from shared.contracts import messages as m
from tests.property.hostile import objects

SETTINGS = {"gang_message": 10, "settle_s": 0}
KINDS = sorted(SchedulerState(DecisionSettings(mindcluster=True), **SETTINGS).kinds)
_ALL = (
    'actions: "enqueue, allocate, preempt, reclaim, gangpreempt, gangreclaim, backfill, shuffle"\n'
    "tiers:\n- plugins:\n  - {name: priority}\n  - {name: gang}\n  - {name: conformance}\n"
    "  - {name: sla}\n  - {name: tdm}\n  - {name: pdb}\n  - {name: cdp}\n- plugins:\n"
)
CONFIGS = {
    "default": configure(),
    "proportion": configure(
        _ALL + "  - {name: overcommit}\n  - {name: drf}\n  - {name: predicates}\n"
        "  - {name: proportion}\n  - {name: nodeorder}\n  - {name: binpack}\n"
        "  - {name: task-topology}\n  - {name: resourcequota}\n"
        "  - {name: nodegroup, arguments: {strict: false}}\n"
    ),
    "capacity": configure(
        _ALL + "  - {name: predicates}\n"
        "  - {name: capacity, enableHierarchy: true, arguments: {ancestorReclaimLevel: 1}}\n"
        "  - {name: nodeorder}\n  - {name: network-topology-aware}\n  - {name: deviceshare, "
        "arguments: {deviceshare.GPUSharingEnable: true}}\n  - {name: numa-aware}\n"
        "  - {name: resource-strategy-fit}\n  - {name: usage}\n  - {name: rescheduling}\n"
    ),
    "vgpu": configure(
        _ALL + "  - {name: drf, enableHierarchy: true}\n  - {name: predicates}\n"
        "  - {name: capacity, arguments: {capacity.DynamicResourceAllocationEnable: true, "
        "capacity.DRAConsumableCapacityEnable: true}}\n"
        "  - {name: deviceshare, arguments: {deviceshare.VGPUEnable: true, "
        "deviceshare.AscendHAMiVNPUEnable: true, "
        "deviceshare.AscendMindClusterVNPUEnable: true}}\n"
    ),
}


def good_gang(*, minimum: dict, each: dict) -> list[tuple[str, dict]]:
    """Return a PodGroup of two in the queue `healthy`, and its pods."""
    return [
        ("podgroups", {"metadata": {"name": "good", "namespace": "fine"},
                       "spec": {"minMember": 2, "queue": "healthy", "minResources": minimum},
                       "status": {"phase": "Pending"}}),
        *(("pods", {"metadata": {"name": f"good-{n}", "namespace": "fine",
                                 "annotations": {"scheduling.k8s.io/group-name": "good"}},
                    "spec": {"schedulerName": "volcano", "containers": [
                        {"name": "c", "resources": {"requests": each}}]},
                    "status": {"phase": "Pending"}}) for n in range(2)),
    ]  # fmt: skip


HEALTHY = [
    ("queues", {"metadata": {"name": "healthy"}, "spec": {"weight": 1, "parent": "root"},
                "status": {"state": "Open"}}),
    ("queues", {"metadata": {"name": "root"}, "status": {"state": "Open"}}),
    ("nodes", {"metadata": {"name": "good"},
               "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}}),
    *good_gang(minimum={"cpu": "2"}, each={"cpu": "1"}),
]  # fmt: skip


def fact(token: str, document: dict, number: str) -> m.Fact:
    meta = dict(document["metadata"])
    namespaced = kinds.KINDS[token].namespaced
    key = f"{meta['namespace']}/{meta['name']}" if namespaced else meta["name"]
    meta.setdefault("uid", f"{token}-{number}")
    body = json.dumps({**document, "metadata": meta}).encode()
    return m.Fact(kind=token, key=key, uid=meta["uid"], rv="1", body=msgspec.Raw(body))


@st.composite
def hostile_facts(draw) -> list[m.Fact]:
    found = []
    for number in range(draw(st.integers(1, 6))):
        token = draw(st.sampled_from(KINDS))
        document = draw(objects(token))
        name = draw(st.sampled_from(["a", "b", "default", "other", "n1"]))
        meta = {**document["metadata"], "name": name, "namespace": "ns", "uid": f"u{number}"}
        if token == "pods" and draw(st.booleans()):
            meta["annotations"] = {**meta["annotations"], "scheduling.k8s.io/group-name": "a"}
        _as_written_by_us(token, document)
        found.append(fact(token, {**document, "metadata": meta}, str(number)))
    return found


def _as_written_by_us(token: str, document: dict) -> None:
    """Leave out what harms other queues in Volcano, too, for those who may write it.

    A PodGroup whose status says that it was admitted reserves its minimum, and what a queue is
    guaranteed is taken from all others.
    """
    if token == "podgroups" and document["status"].get("phase") not in {None, "Pending"}:
        document["spec"].pop("minResources", None)
    if token == "queues":
        document["spec"].pop("guarantee", None)


def _sound(facts: list[m.Fact], config: str) -> list[m.Fact]:
    """Leave out queues where they form a tree: an unsound one admits nothing, as in Volcano."""
    return [each for each in facts if config != "capacity" or each.kind != "queues"]


def scheduler() -> SchedulerState:
    return SchedulerState(DecisionSettings(mindcluster=True), **SETTINGS)


def the_good_gang_is_placed(judged: SchedulerState, config: str) -> None:
    """Run three cycles: none meets an error of ours, and both pods get nodes."""
    placed: dict[str, str] = {}
    for cycle in range(1, 4):
        decision = judged.decide(CONFIGS[config], now=1.8e9, cycle=cycle, token=1)
        assert not decision.exclusions, decision.exclusions
        placed |= {k: v for k, v in binds_of(decision.full_plan).items() if k.startswith("good-")}
        judged.assume_statuses(decision.plan)
    assert len(placed) == 2, (placed, decision.full_plan.explanations)


@pytest.mark.parametrize("config", CONFIGS)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(hostile=hostile_facts(), data=st.data())
def test_whatever_objects_say_nothing_fails_and_a_healthy_gang_is_placed(
    config, hostile, data
) -> None:
    judged = scheduler()
    healthy = [fact(token, document, f"good-{n}") for n, (token, document) in enumerate(HEALTHY)]
    facts = data.draw(st.permutations(_sound(hostile, config))) + healthy
    for failure in judged.fold(facts):
        assert not isinstance(failure.reason, Exception), failure
        assert not failure.key.startswith("fine/"), failure
    the_good_gang_is_placed(judged, config)
    assert judged.is_consistent
    assert judged.audit() == []
    for each in hostile:
        gone = m.Fact(kind=each.kind, key=each.key, uid=each.uid, rv="2", op=m.Op.DELETE)
        assert judged.fold([gone]) == []
    assert judged.audit() == []


NODES = [
    ("nodes", {"metadata": {"name": f"node-{n}"},
               "status": {"allocatable": {"cpu": "16", "memory": "64Gi", "pods": "110"}}})
    for n in range(12)
]  # fmt: skip
EXTREMES = ["1", "17", "65Gi", "7Ei", "1Pi", "9223372036854775807", "1e30", "0", "-1"]
AMOUNTS = st.dictionaries(
    st.sampled_from(["cpu", "memory", "example.com/x", "ephemeral-storage", "nvidia.com/gpu"]),
    st.sampled_from(EXTREMES),
    max_size=4,
)
BEYOND_ALL = st.dictionaries(
    st.sampled_from(["cpu", "memory", "example.com/x"]), st.sampled_from(["7Ei", "1e30"]),
    min_size=1,
)  # fmt: skip
SAME_QUEUE = [
    ("queues", {"metadata": {"name": "root"}, "status": {"state": "Open"}}),
    ("queues", {"metadata": {"name": "healthy"}, "spec": {"weight": 1, "parent": "root"},
                "status": {"state": "Open"}}),
    ("queues", {"metadata": {"name": "other"}, "spec": {"weight": 1, "parent": "root"},
                "status": {"state": "Open"}}),
    *NODES,
    *good_gang(minimum={"cpu": "2", "memory": "2Gi"}, each={"cpu": "1", "memory": "1Gi"}),
]  # fmt: skip


@st.composite
def tenants_facts(draw) -> list[m.Fact]:
    """Draw groups of one pod each, as a tenant writes them; some name a node, and so run."""
    found = []
    for number in range(draw(st.integers(1, 5))):
        queue = draw(st.sampled_from(["healthy", "other"]))
        node = draw(st.sampled_from(["", "node-0", "node-1", "no-such-node"]))
        least = draw(BEYOND_ALL if node else AMOUNTS | BEYOND_ALL)
        phase = draw(st.sampled_from(["Running", "Inqueue", "Pending"])) if node else "Pending"
        meta = {"name": f"bad-{number}", "namespace": "ns"}
        group = {
            "metadata": meta,
            "spec": {"minMember": 1, "queue": queue, "minResources": least},
            "status": {"phase": phase},
        }
        pod = {
            "metadata": {**meta, "annotations": {"scheduling.k8s.io/group-name": meta["name"]}},
            "spec": {
                "schedulerName": "volcano",
                "nodeName": node,
                "containers": [{"name": "c", "resources": {"requests": draw(AMOUNTS)}}],
            },
            "status": {"phase": "Running" if node else "Pending"},
        }
        found += [fact("podgroups", group, f"g{number}"), fact("pods", pod, f"p{number}")]
    return found


@pytest.mark.parametrize("config", CONFIGS)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(hostile=tenants_facts(), data=st.data())
def test_whatever_amounts_a_tenant_states_others_in_the_same_queue_are_placed(
    config, hostile, data
) -> None:
    judged = scheduler()
    healthy = [fact(token, document, f"ok-{n}") for n, (token, document) in enumerate(SAME_QUEUE)]
    assert judged.fold(data.draw(st.permutations(hostile + healthy))) == []
    the_good_gang_is_placed(judged, config)
    assert judged.audit() == []
