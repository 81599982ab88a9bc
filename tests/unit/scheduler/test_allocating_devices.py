"""Devices that a session allocates: for gangs, under preemption, and until claims show it."""

from typing import Any

import msgspec
import pytest
from msgspec import structs

from pumice.testing import Cluster, binds_of
from services.scheduler.adapters.expressions import waiting_evaluator
from services.scheduler.policy.catalog import states
from services.scheduler.policy.devices.selectors import DeviceContent, Evaluator, Verdict
from services.scheduler.policy.states.claims import Devices
from shared.api import kinds
from shared.contracts.messages import Result
from tests.unit.scheduler.devices import (
    DRIVER,
    claim,
    device,
    device_class,
    request,
    slice_of,
    using,
)
from tests.unit.scheduler.hostile_expressions import HOSTILE

CONF = """
actions: "allocate, backfill, preempt"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: predicates}]
"""


def world_of(devices: dict[str, int], conf: str = CONF) -> Cluster:
    """Return nodes with so many devices each."""
    world = Cluster(conf)
    for node, count in devices.items():
        world.node(node)
        offer(world, node, count)
    world.put(kinds.DEVICECLASS, device_class())
    return world


def offer(world: Cluster, node: str, count: int) -> None:
    names = [f"d{number}" for number in range(count)]
    world.put(kinds.RESOURCESLICE, slice_of(node, names, node=node))


def gang(world: Cluster, name: str, size: int) -> None:
    """Add a gang whose pods have a claim each."""
    world.group(name, min_member=size)
    for number in range(size):
        claim(world, f"{name}-{number}")
        world.pod(f"{name}-{number}", name, cpu="1", **using(f"{name}-{number}"))


def given(plan: Any) -> dict[str, list[str]]:
    """Return pod → devices that travel with its bind."""
    found = {}
    for each in plan.binds:
        for bind in each.binds:
            allocations = [msgspec.json.decode(use.allocation) for use in bind.devices]
            found[bind.pod.partition("/")[2]] = [
                f"{result['pool']}/{result['device']}"
                for allocation in allocations
                for result in allocation["devices"]["results"]
            ]
    return found


def allocated(*devices: str, pods: tuple[str, ...] = (), node: str = "") -> dict[str, Any]:
    """Return the status of a claim that has devices, given as `pool/device`."""
    results = [
        {"request": "r", "driver": DRIVER, "pool": pool, "device": name}
        for pool, _, name in (each.partition("/") for each in devices)
    ]
    need = {"key": "metadata.name", "operator": "In", "values": [node]}
    place = {"nodeSelector": {"nodeSelectorTerms": [{"matchFields": [need]}]}} if node else {}
    reserved = [{"resource": "pods", "name": uid, "uid": uid} for uid in pods]
    return {"allocation": {"devices": {"results": results}, **place}, "reservedFor": reserved}


def test_claims_get_their_devices_in_the_order_in_which_the_pod_names_them():
    """A claim with admin access takes what is in use, which no claim after it does."""
    world = world_of({"n1": 1})
    claim(world, "a-admin", request(adminAccess=True))
    claim(world, "b-plain")
    world.group("g").pod("p", "g", **using("b-plain", "a-admin"))
    assert given(world.decide()) == {"p": ["n1/d0", "n1/d0"]}


def test_each_pod_of_a_gang_gets_a_device_of_its_own():
    world = world_of({"n1": 2, "n2": 1})
    gang(world, "g", 3)
    found = given(world.decide())
    assert sorted(device for (device,) in found.values()) == ["n1/d0", "n1/d1", "n2/d0"]


def test_a_gang_that_lacks_one_device_gets_none_and_says_of_which_class():
    world = world_of({"n1": 2})
    gang(world, "g", 3)
    plan = world.decide()
    assert binds_of(plan) == {}
    (why,) = plan.explanations
    assert [reason for reason in why.reasons if "ns/g-" in reason and "1 gpu" in reason]
    gang(world, "h", 2)
    assert len(given(world.decide())) == 2, "what was tried for the first is free again"


def test_pods_that_share_a_claim_go_where_its_devices_are():
    world = world_of({"n1": 1, "n2": 1})
    claim(world, "c")
    world.group("g", min_member=3)
    for number in range(3):
        world.pod(f"g-{number}", "g", cpu="1", **using("c"))
    plan = world.decide()
    assert len(set(binds_of(plan).values())) == 1
    assert len({device for (device,) in given(plan).values()}) == 1


def test_a_claim_is_used_by_256_pods_at_most():
    world = world_of({"n1": 1})
    pods = tuple(f"other-{number}" for number in range(255))
    claim(world, "c", status=allocated("n1/d0", pods=pods))
    world.group("g")
    for number in range(2):
        world.pod(f"g-{number}", "g", cpu="1", **using("c"))
    assert len(binds_of(world.decide())) == 1


def test_devices_of_claims_that_others_allocated_are_taken():
    world = world_of({"n1": 2})
    claim(world, "other", status=allocated("n1/d0", pods=("someone",)))
    gang(world, "g", 1)
    assert given(world.decide()) == {"g-0": ["n1/d1"]}


def test_a_device_counts_as_taken_from_the_publication_of_its_bind_until_the_claim_shows_it():
    world = world_of({"n1": 1})
    gang(world, "g", 1)
    assert given(world.step()) == {"g-0": ["n1/d0"]}
    gang(world, "h", 1)
    assert binds_of(world.step()) == {}
    claim(world, "g-0", status=allocated("n1/d0", pods=("uid-ns/g-0",), node="n1"))
    assert binds_of(world.step()) == {}
    claim(world, "g-0", status={})
    world.pod("g-0", "g", cpu="1", node="n1", phase="Succeeded", **using("g-0"))
    assert given(world.step()) == {"h-0": ["n1/d0"]}


def test_a_device_of_a_bind_that_failed_is_free_again():
    world = world_of({"n1": 1})
    gang(world, "g", 1)
    plan = world.step()
    (bind,) = plan.binds[0].binds
    world.cluster_state.outcome("", [(bind.uid, Result.FAILED)])
    world.cluster_state.drop_assumptions()
    world.pod("g-0", "g", cpu="1", deleting=True, **using("g-0"))
    gang(world, "h", 1)
    assert given(world.decide()) == {"h-0": ["n1/d0"]}


def test_an_allocated_claim_travels_with_its_bind_as_allocated():
    world = world_of({"n1": 1, "n2": 1})
    claim(world, "c", status=allocated("n2/d0", node="n2"))
    world.group("g").pod("g-0", "g", cpu="1", **using("c"))
    plan = world.decide()
    assert binds_of(plan) == {"g-0": "n2"}
    (use,) = plan.binds[0].binds[0].devices
    assert (use.claim, use.uid, use.allocated) == ("ns/c", "uid-c", True)


def test_a_claim_that_is_being_deleted_is_not_used():
    world = world_of({"n1": 1})
    claim(world, "c", deletionTimestamp="2026-01-01T00:00:00Z")
    world.group("g").pod("g-0", "g", cpu="1", **using("c"))
    plan = world.decide()
    assert binds_of(plan) == {}
    assert "being deleted" in next(iter(plan.explanations[0].reasons))


def test_a_condition_that_cannot_be_judged_stops_its_claim_alone_and_is_told():
    world = world_of({"n1": 2})
    claim(world, "bad", request("r", f'device.attributes["{DRIVER}"].none == 1'))
    world.group("b").pod("b-0", "b", cpu="1", **using("bad"))
    gang(world, "g", 1)
    plan = world.decide()
    assert list(given(plan)) == ["g-0"]
    assert {e.job: "no such key: none" in str(e.reasons) for e in plan.explanations} == {
        "ns/b": True
    }


def test_new_slices_and_classes_are_heeded():
    world = world_of({"n1": 0})
    gang(world, "g", 1)
    assert binds_of(world.decide()) == {}
    world.put(
        kinds.RESOURCESLICE,
        slice_of("n1", [device("a", n=1), device("b", n=2)], node="n1", generation=2),
    )
    assert given(world.decide()) == {"g-0": ["n1/a"]}
    world.put(kinds.DEVICECLASS, device_class("gpu", f'device.attributes["{DRIVER}"].n == 2'))
    assert given(world.decide()) == {"g-0": ["n1/b"]}
    world.put(kinds.RESOURCECLAIM, {"metadata": {"name": "x", "namespace": "ns"}, "spec": {}})
    assert given(world.decide()) == {"g-0": ["n1/b"]}


class Counting(Evaluator):
    """Evaluates through another evaluator once told to, and counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, DeviceContent]] = []
        self.knows = True
        self.fails = ""
        self._evaluator = waiting_evaluator()

    @property
    def failure(self) -> str:
        return self.fails

    def begin(self) -> None:
        self._evaluator.begin()

    def verdict(self, owner: str, expression: str, device: DeviceContent) -> Verdict | None:
        self.asked.append((owner, expression, device))
        return self._evaluator.verdict(owner, expression, device) if self.knows else None


@pytest.fixture
def counting(monkeypatch) -> Counting:
    evaluator = Counting()
    monkeypatch.setattr("pumice.testing.STATES", states(evaluator=evaluator))
    return evaluator


@pytest.mark.parametrize("asked", [{"count": 4}, {"allocationMode": "All"}], ids=["four", "all"])
def test_a_claim_waits_until_its_conditions_are_evaluated_and_others_do_not(asked, counting):
    world = world_of({"n1": 4})
    claim(world, "c", request("r", f'device.driver == "{DRIVER}"', **asked))
    world.group("g").pod("g-0", "g", cpu="1", **using("c"))
    counting.knows = False
    plan = world.decide()
    assert binds_of(plan) == {}
    (why,) = plan.explanations
    assert "the CEL selectors of ns/c are being evaluated" in str(why.reasons)
    counting.fails = "no process can be started: Cannot allocate memory"
    (why,) = world.decide().explanations
    assert f"the CEL selectors of ns/c cannot be evaluated: {counting.fails}" in str(why.reasons)
    counting.fails = ""
    gang(world, "other", 1)
    assert list(given(world.decide())) == ["other-0"]
    counting.knows = True
    world.delete(kinds.POD, "ns/other-0", "uid-ns/other-0")
    assert given(world.decide()) == {"g-0": ["n1/d0", "n1/d1", "n1/d2", "n1/d3"]}


def test_nodes_are_not_looked_at_again_before_something_new_is_known(counting):
    world = world_of({f"n{number}": 4 for number in range(20)})
    claim(world, "c", request("r", f'device.driver == "{DRIVER}"'))
    world.group("g").pod("g-0", "g", cpu="1", **using("c"))
    counting.knows = False
    world.decide()
    first = len(counting.asked)
    world.decide()
    assert len(counting.asked) - first < 10 < first
    assert {owner for owner, _, _ in counting.asked} == {"ns"}


def test_devices_that_look_the_same_are_asked_about_once(counting):
    world = world_of({"n1": 4, "n2": 4})
    world.group("g", min_member=5)
    for number in range(5):
        claim(world, f"c{number}", request("r", f'device.driver == "{DRIVER}"'))
        world.pod(f"g-{number}", "g", cpu="1", **using(f"c{number}"))
    assert len(given(world.decide())) == 5
    assert len(set(counting.asked)) == 1
    first = len(counting.asked)
    assert len(given(world.decide())) == 5
    assert len(counting.asked) == first, "what is known of a version of a device stays known"


# --- preemption ----------------------------------------------------------------------------------


def preempting() -> Cluster:
    world = world_of({"n1": 1})
    for name, value in (("low", 10), ("high", 1000)):
        world.put(kinds.PRIORITYCLASS, {"metadata": {"name": name, "uid": name}, "value": value})
    claim(world, "low-0", status=allocated("n1/d0", pods=("uid-ns/low-0",), node="n1"))
    world.group("low", min_member=0, phase="Running", priorityClassName="low")
    world.pod("low-0", "low", cpu="1", node="n1", priority=10, **using("low-0"))
    world.group("high", priorityClassName="high")
    claim(world, "high-0")
    return world


def test_a_pod_is_evicted_for_the_device_that_it_has():
    world = preempting()
    world.pod("high-0", "high", cpu="1", priority=1000, **using("high-0"))
    plan = world.decide()
    assert [e.pod for e in plan.evictions] == ["ns/low-0"]
    assert binds_of(plan) == {}, "the device is in use until the claim says otherwise"


def test_a_preemptor_waits_for_the_device_while_its_claim_has_it_and_evicts_no_other_pod():
    world = preempting()
    world.node("n2")
    offer(world, "n2", 1)
    claim(world, "other-0", status=allocated("n2/d0", pods=("uid-ns/other-0",), node="n2"))
    world.group("other", min_member=0, phase="Running", priorityClassName="low")
    world.pod("other-0", "other", cpu="1", node="n2", priority=10, **using("other-0"))
    world.pod("high-0", "high", cpu="1", priority=1000, **using("high-0"))
    assert [e.pod for e in world.step().evictions] == ["ns/low-0"]
    for _ in range(2):
        plan = world.step()
        assert (plan.evictions, binds_of(plan)) == ((), {})
    world.delete(kinds.POD, "ns/low-0", "uid-ns/low-0")
    plan = world.step()
    assert (plan.evictions, binds_of(plan)) == ((), {}), "its claim is still allocated"
    claim(world, "low-0")
    assert given(world.step()) == {"high-0": ["n1/d0"]}


def test_no_pod_is_evicted_where_the_node_would_lack_devices_all_the_same():
    world = preempting()
    claim(world, "high-0", request(count=2))
    world.pod("high-0", "high", cpu="1", priority=1000, **using("high-0"))
    assert world.decide().evictions == ()


# --- a leader after another ----------------------------------------------------------------------


def test_the_next_leader_goes_by_the_devices_of_published_binds():
    world, after = world_of({"n1": 2}), world_of({"n1": 2})
    gang(world, "g", 1)
    claim(world, "later")
    plan = world.decide()
    gang(after, "g", 1)
    (published,) = plan.binds[0].binds
    (use,) = published.devices
    second = msgspec.json.decode(use.allocation)
    second["devices"]["results"][0]["device"] = "d1"
    use = structs.replace(use, allocation=msgspec.Raw(msgspec.json.encode(second)))
    after.cluster_state.assume("4-2-0", [structs.replace(published, devices=(use,))])
    gang(after, "h", 1)
    assert given(after.decide()) == {"h-0": ["n1/d0"]}
    gang(after, "i", 1)
    assert len(given(after.decide())) == 1


def test_a_recorded_cycle_takes_the_devices_of_published_binds_along():
    world = world_of({"n1": 1})
    gang(world, "g", 1)
    world.step()
    devices, again = world.cluster_state.store(Devices), Devices()
    kept = msgspec.json.decode(msgspec.json.encode(devices.dump()))
    assert list(kept) == ["ns/g-0"]
    again.restore(kept)
    assert again.dump() == devices.dump()


# --- devices that two claims have ----------------------------------------------------------------


def test_a_free_device_is_better_than_one_that_is_about_to_be_given_back():
    world = world_of({"n1": 1, "n2": 1})
    claim(world, "ended", status=allocated("n1/d0", pods=("uid-of-a-pod-that-is-gone",)))
    gang(world, "g", 1)
    assert given(world.decide()) == {"g-0": ["n2/d0"]}


def test_a_pod_waits_for_a_device_that_is_about_to_be_given_back():
    world = world_of({"n1": 1})
    claim(world, "ended", status=allocated("n1/d0", pods=("uid-of-a-pod-that-is-gone",)))
    gang(world, "g", 1)
    assert binds_of(world.step()) == {}
    claim(world, "ended")
    assert given(world.step()) == {"g-0": ["n1/d0"]}


def test_no_pod_of_a_gang_is_bound_while_two_claims_have_one_device():
    """Two schedulers may choose a device in the same moment; nothing in Kubernetes forbids it."""
    world = world_of({"n1": 2})
    gang(world, "g", 2)
    claim(world, "g-0", status=allocated("n1/d0", node="n1"))
    claim(world, "theirs", status=allocated("n1/d0", pods=("a-pod-of-theirs",), node="n1"))
    plan = world.decide()
    assert binds_of(plan) == {}
    assert "n1/d0 of resource claim ns/g-0 is still in use" in plan.explanations[0].message
    claim(world, "theirs")
    assert sorted(given(world.decide())) == ["g-0", "g-1"]


# --- conditions beyond their limit ---------------------------------------------------------------


def test_a_condition_beyond_its_limit_stops_its_claim_alone_and_names_claim_request_and_limit():
    world = world_of({"n1": 2})
    claim(world, "bad", request("r", HOSTILE["lists bound twice"]))
    world.group("b").pod("b-0", "b", cpu="1", **using("bad"))
    gang(world, "g", 1)
    for _ in range(2):
        plan = world.decide()
        assert list(given(plan)) == ["g-0"]
        (why,) = plan.explanations
        assert why.job == "ns/b"
        (reason,) = (each for each in why.reasons if "CEL" in each)
        assert "resource claim ns/bad: request r: CEL limit exceeded" in reason
        assert "100 ms of processor time" in reason
        assert "cel.bind(a0, [1, 1]" in reason


def test_claims_with_costly_conditions_cost_a_decision_as_many_questions_as_others(counting):
    def questions(expression: str) -> int:
        world = world_of({f"n{number}": 2 for number in range(5)})
        counting.asked.clear()
        for number in range(50):
            claim(world, f"c{number}", request("r", f"{number} < 0 || {expression}"))
            world.group(f"c{number}").pod(f"c{number}-0", f"c{number}", **using(f"c{number}"))
        world.decide()
        return len(counting.asked)

    counting.knows = False
    assert questions(HOSTILE["lists bound twice"]) == questions("true")
