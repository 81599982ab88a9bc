"""Devices for claims, by Kubernetes' rules: pools, requests, constraints, alternatives, limits."""

from typing import Any

import pytest
from msgspec import convert

from services.scheduler.policy.devices.requests import DeviceRefusal
from shared.api.resource import DeviceTaintRule
from tests.unit.scheduler.devices import (
    DRIVER,
    Offer,
    card,
    device,
    device_class,
    first_of,
    nodes_in,
    part_of_card,
    request,
    slice_of,
    spec_of,
)

SHORT = "cannot allocate all claims"


def test_the_first_free_devices_in_the_order_of_pools_slices_and_lists_are_taken():
    offer = Offer(
        slice_of("b", ["b0"], node="n1", pool="p", count=2),
        slice_of("a", ["a1", "a0"], node="n1", pool="p", count=2),
        slice_of("z", ["z0"], node="n1", pool="another"),
    )
    assert offer.names(spec_of(request(count=3))) == [["z0", "a1", "a0"]]
    taken = [f"{DRIVER}/p/a1"]
    assert offer.names(spec_of(request(count=2)), taken=taken) == [["z0", "a0"]]


def test_a_request_for_more_than_is_free_gets_nothing():
    offer = Offer(slice_of("s", ["d0", "d1"], node="n1", pool="p"))
    assert offer.names(spec_of(request(count=3))) == SHORT
    assert offer.names(spec_of(request(count=2)), taken=[f"{DRIVER}/p/d1"]) == SHORT


def test_several_claims_of_a_pod_get_different_devices_or_none():
    offer = Offer(slice_of("s", ["d0", "d1"], node="n1"))
    one = spec_of(request())
    assert offer.names(one, one) == [["d0"], ["d1"]]
    assert offer.names(one, one, one) == SHORT


def test_an_earlier_claim_leaves_the_device_that_only_a_later_one_can_use():
    offer = Offer(slice_of("s", [device("a", big=True), device("b", big=False)], node="n1"))
    big = f'device.attributes["{DRIVER}"].big'
    assert offer.names(spec_of(request()), spec_of(request("r", big))) == [["b"], ["a"]]


def test_conditions_of_class_and_request_both_hold():
    offer = Offer(
        slice_of("s", [device("a", kind="x", n=1), device("b", kind="x", n=2)], node="n1"),
        classes=[device_class("gpu", f'device.attributes["{DRIVER}"].kind == "x"')],
    )
    assert offer.names(spec_of(request("r", f'device.attributes["{DRIVER}"].n > 1'))) == [["b"]]


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("device.driver ==", "CEL compile error"),
        (f'device.attributes["{DRIVER}"].none == 1', "no such key: none"),
        ("device.driver", "neither true nor false"),
    ],
)
def test_a_condition_that_cannot_be_judged_is_a_fault_of_its_claim(expression, text):
    offer = Offer(slice_of("s", ["d0"], node="n1"))
    found = offer.ask(spec_of(request("r", expression)))
    assert isinstance(found, DeviceRefusal)
    assert found.fault
    assert text in found.text
    assert offer.names(spec_of(request())) == [["d0"]], "others do not suffer"


def test_a_condition_is_not_asked_about_devices_that_are_not_needed():
    offer = Offer(slice_of("s", [device("a", n=1), device("b")], node="n1"))
    n_is_1 = request("r", f'device.attributes["{DRIVER}"].n == 1')
    assert offer.names(spec_of(n_is_1)) == [["a"]]


def test_a_class_that_does_not_exist_is_named():
    offer = Offer(slice_of("s", ["d0"], node="n1"))
    found = offer.names(spec_of(request("r", device_class="none")))
    assert found == "request r: device class none does not exist"


# --- pools ---------------------------------------------------------------------------------------


def test_only_the_newest_generation_of_a_pool_counts():
    old = slice_of("old", ["gone"], node="n1", pool="p")
    new = slice_of("new", ["d0"], node="n1", pool="p", generation=2)
    assert Offer(old, new).names(spec_of(request())) == [["d0"]]
    assert Offer(old, new).names(spec_of(request(count=2))) == SHORT


def test_a_pool_that_is_not_wholly_published_offers_nothing():
    offer = Offer(
        slice_of("s", ["d0"], node="n1", count=2), slice_of("t", ["e0"], node="n1", pool="q")
    )
    assert offer.names(spec_of(request())) == [["e0"]]
    found = offer.ask(spec_of(request(allocationMode="All")))
    assert isinstance(found, DeviceRefusal)
    assert "being updated" in found.text


def test_a_newer_generation_for_another_node_ends_the_old_one_everywhere():
    offer = Offer(
        slice_of("old", ["d0"], node="n1", pool="p"),
        slice_of("new", ["d0"], node="n2", pool="p", generation=2),
    )
    assert offer.names(spec_of(request())) == SHORT


def test_a_pool_with_two_devices_of_one_name_offers_nothing():
    offer = Offer(slice_of("s", ["d0", "d0"], node="n1"))
    assert offer.names(spec_of(request())) == SHORT
    assert "invalid" in offer.names(spec_of(request(allocationMode="All")))


def test_pools_reach_a_node_by_name_by_labels_or_everywhere():
    offer = Offer(
        slice_of("s", ["local"], node="n1"),
        slice_of("t", ["rack"], nodeSelector=nodes_in("a")),
        slice_of("u", ["net"], allNodes=True),
        labels={"n1": {"rack": "a"}, "n2": {"rack": "b"}},
    )
    every = spec_of(request(allocationMode="All"))
    assert offer.names(every) == [["local", "rack", "net"]]
    assert offer.names(every, node="n2") == [["net"]]


def test_devices_of_one_slice_may_be_on_different_nodes():
    devices = [{"name": "a", "nodeName": "n1"}, {"name": "b", "nodeName": "n2"}]
    offer = Offer(slice_of("s", devices, perDeviceNodeSelection=True))
    assert offer.names(spec_of(request()), node="n2") == [["b"]]


def test_an_allocation_says_which_nodes_reach_its_devices():
    offer = Offer(
        slice_of("a", ["rack"], nodeSelector=nodes_in("a")),
        slice_of("b", ["net"], allNodes=True),
        slice_of("z", ["local"], node="n1"),
        labels={"n1": {"rack": "a"}},
    )
    (rack,), (both,) = offer.ask(spec_of(request())), offer.ask(spec_of(request(count=2)))
    assert rack.node_selector == both.node_selector
    assert rack.node_selector.node_selector_terms[0].match_expressions[0].key == "rack"
    (local,) = offer.ask(spec_of(request(count=3)))
    (need,) = local.node_selector.node_selector_terms[0].match_fields
    assert (need.key, need.values) == ("metadata.name", ("n1",))
    (net,) = offer.ask(spec_of(request()), taken=[f"{DRIVER}/a/rack"])
    assert net.node_selector is None


# --- modes ---------------------------------------------------------------------------------------


def test_all_devices_means_all_that_meet_the_conditions_and_each_must_be_free():
    offer = Offer(
        slice_of("s", [device("a", n=1), device("b", n=2), device("c", n=2)], node="n1", pool="p")
    )
    twos = spec_of(request("r", f'device.attributes["{DRIVER}"].n == 2', allocationMode="All"))
    assert offer.names(twos) == [["b", "c"]]
    assert offer.names(twos, taken=[f"{DRIVER}/p/a"]) == [["b", "c"]]
    assert offer.names(twos, taken=[f"{DRIVER}/p/b"]) == SHORT


def test_all_of_no_devices_is_not_met():
    assert Offer().names(spec_of(request(allocationMode="All"))) == SHORT


def test_admin_access_gives_devices_that_are_in_use_but_none_twice_to_one_claim():
    offer = Offer(slice_of("s", ["d0", "d1"], node="n1", pool="p"))
    admin = spec_of(request("r", adminAccess=True, count=2))
    taken = [f"{DRIVER}/p/d0", f"{DRIVER}/p/d1"]
    (found,) = offer.ask(admin, taken=taken)
    assert [(r.device, r.admin_access) for r in found.devices.results] == [
        ("d0", True),
        ("d1", True),
    ]
    assert offer.names(spec_of(request("r", adminAccess=True, count=3))) == SHORT


def test_a_claim_has_32_devices_at_most():
    offer = Offer(slice_of("s", [f"d{n}" for n in range(40)], node="n1"))
    assert len(offer.names(spec_of(request(count=32)))[0]) == 32
    found = offer.ask(spec_of(request(count=33)))
    assert isinstance(found, DeviceRefusal)
    assert found.fault
    assert isinstance(
        offer.ask(spec_of(request("a", count=20), request("b", count=20))), DeviceRefusal
    )


# --- constraints ---------------------------------------------------------------------------------


def numa(*values: int) -> dict:
    devices = [device(f"d{at}", numa=value) for at, value in enumerate(values)]
    return slice_of("s", devices, node="n1", pool="p")


def test_devices_may_have_to_share_an_attribute():
    same = {"constraints": [{"matchAttribute": f"{DRIVER}/numa"}]}
    assert Offer(numa(0, 1, 0, 1, 1)).names(spec_of(request(count=3), **same)) == [
        ["d1", "d3", "d4"]
    ]
    assert Offer(numa(0, 1, 0, 1)).names(spec_of(request(count=3), **same)) == SHORT


def test_a_device_without_the_attribute_cannot_share_it():
    same = {"constraints": [{"matchAttribute": f"{DRIVER}/numa"}]}
    offer = Offer(slice_of("s", ["bare", device("d", numa=1)], node="n1"))
    assert offer.names(spec_of(request(), **same)) == [["d"]]


def test_devices_may_have_to_differ_in_an_attribute():
    differ = {"constraints": [{"distinctAttribute": f"{DRIVER}/numa"}]}
    assert Offer(numa(0, 0, 1)).names(spec_of(request(count=2), **differ)) == [["d0", "d2"]]
    assert Offer(numa(0, 0)).names(spec_of(request(count=2), **differ)) == SHORT


def test_a_constraint_holds_for_the_requests_that_it_names():
    same = {"constraints": [{"matchAttribute": f"{DRIVER}/numa", "requests": ["a", "b"]}]}
    found = Offer(numa(0, 1, 1)).names(spec_of(request("a"), request("b"), request("c"), **same))
    assert found == [["d1", "d2", "d0"]]


def test_a_search_without_solution_among_many_equal_devices_ends_soon():
    same = {"constraints": [{"matchAttribute": f"{DRIVER}/numa"}]}
    offer = Offer(numa(*(n % 8 for n in range(64))))
    requests = [request(f"r{n}", count=3) for n in range(3)]
    assert SHORT in offer.names(spec_of(*requests, **same))


# --- alternatives --------------------------------------------------------------------------------


def test_the_first_alternative_that_can_be_had_is_taken_and_named():
    offer = Offer(slice_of("s", ["d0", "d1"], node="n1"))
    choice = first_of("r", request("four", count=4), request("two", count=2), request("one"))
    (found,) = offer.ask(spec_of(choice))
    assert [result.request for result in found.devices.results] == ["r/two", "r/two"]


def test_a_second_best_alternative_serves_when_a_later_request_needs_what_is_left():
    offer = Offer(slice_of("s", ["d0", "d1"], node="n1"))
    choice = first_of("r", request("two", count=2), request("one"))
    assert offer.names(spec_of(choice, request("s"))) == [["d0", "d1"]]


# --- taints, counters, parameters ----------------------------------------------------------------


def test_a_tainted_device_is_for_requests_that_tolerate_it():
    taints = [{"key": "broken", "effect": "NoSchedule", "value": "x"}]
    offer = Offer(slice_of("s", [{"name": "d0", "taints": taints}], node="n1"))
    assert offer.names(spec_of(request())) == SHORT
    for toleration in ({"operator": "Exists"}, {"key": "broken", "value": "x"}):
        assert offer.names(spec_of(request(tolerations=[toleration]))) == [["d0"]]
    wrong = {"key": "broken", "value": "y"}
    assert offer.names(spec_of(request(tolerations=[wrong]))) == SHORT


@pytest.mark.parametrize(
    ("selector", "free"),
    [
        pytest.param({}, [], id="all-devices"),
        pytest.param({"driver": DRIVER, "pool": "n1", "device": "d0"}, ["d1"], id="one"),
        pytest.param({"device": "d1"}, ["d0"], id="by-name"),
        pytest.param({"driver": "nic.example.com"}, ["d0", "d1"], id="of-another-driver"),
        pytest.param(None, ["d0", "d1"], id="no-selector-no-device"),
    ],
)
def test_a_rule_taints_the_devices_that_it_selects(selector: Any, free: list[str]):
    offer = Offer(slice_of("s", ["d0", "d1"], node="n1"))
    spec = {"deviceSelector": selector, "taint": {"key": "worn", "effect": "NoExecute"}}
    offer.inventory.put_taint_rule("r", convert({"spec": spec}, DeviceTaintRule))
    tolerant = request(tolerations=[{"key": "worn", "operator": "Exists"}])
    assert offer.names(spec_of(tolerant)) == [["d0"]]
    found = offer.names(spec_of(request()))
    assert found == ([free[:1]] if free else "cannot allocate all claims")
    offer.inventory.remove_taint_rule("r")
    assert offer.names(spec_of(request())) == [["d0"]]


def test_a_taint_without_effect_on_scheduling_keeps_nothing_off():
    taints = [{"key": "noted", "effect": "None"}]
    offer = Offer(slice_of("s", [{"name": "d0", "taints": taints}], node="n1"))
    assert offer.names(spec_of(request())) == [["d0"]]


def partitioned() -> Offer:
    """A card of 40Gi as a whole, or as parts of 20Gi and 10Gi."""
    parts = [
        part_of_card("whole", "40Gi"),
        part_of_card("half-a", "20Gi"),
        part_of_card("half-b", "20Gi"),
        part_of_card("q", "10Gi"),
    ]
    return Offer(
        card("a", node="n1", pool="p"),
        slice_of("b", parts, node="n1", pool="p", count=2),
    )


def test_parts_of_a_card_are_given_while_its_counters_last():
    offer = partitioned()
    assert offer.names(spec_of(request())) == [["whole"]]
    assert offer.names(spec_of(request(count=2))) == [["half-a", "half-b"]]
    assert offer.names(spec_of(request(count=3))) == SHORT
    assert offer.names(spec_of(request()), taken=[f"{DRIVER}/p/half-b"]) == [["half-a"]]
    assert offer.names(spec_of(request()), taken=[f"{DRIVER}/p/whole"]) == SHORT


PREPARED = {"bindingConditions": ["ready"], "bindingFailureConditions": ["no"]}


def test_a_device_that_has_to_be_prepared_is_given_with_its_conditions():
    offer = Offer(slice_of("s", [{"name": "b", **PREPARED}, "c"], node="n1"))
    (found,) = offer.ask(spec_of(request(count=2)))
    first, second = found.devices.results
    assert (first.binding_conditions, first.binding_failure_conditions) == (("ready",), ("no",))
    assert (second.binding_conditions, second.binding_failure_conditions) == ((), ())


def test_pools_whose_devices_need_no_preparation_come_first():
    slow = slice_of("a", ["d0", {"name": "d1", **PREPARED}], node="n1", pool="a")
    offer = Offer(slow, slice_of("b", ["d2"], node="n1", pool="b"))
    assert offer.names(spec_of(request())) == [["d2"]]
    assert offer.names(spec_of(request(count=2))) == [["d2", "d0"]]


def test_what_binds_to_a_node_is_for_that_node_alone():
    fabric = slice_of("f", [{"name": "d0", "bindsToNode": True, **PREPARED}], allNodes=True)
    (found,) = Offer(fabric).ask(spec_of(request()), node="n2")
    assert found.node_selector is not None
    (term,) = found.node_selector.node_selector_terms
    assert [need.values for need in term.match_fields] == [("n2",)]


def test_parameters_of_class_and_claim_travel_with_the_devices():
    opaque = {"driver": DRIVER, "parameters": {"a": 1}}
    offer = Offer(
        slice_of("s", ["d0", "d1"], node="n1"),
        classes=[device_class("gpu", config=[{"opaque": opaque}])],
    )
    config = [{"requests": ["b"], "opaque": opaque}, {"requests": ["none"], "opaque": opaque}]
    (found,) = offer.ask(spec_of(request("a"), request("b"), config=config))
    assert [(c.source, c.requests, c.opaque) for c in found.devices.config] == [
        ("FromClass", (), opaque),
        ("FromClaim", ("b",), opaque),
    ]
