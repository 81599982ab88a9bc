"""Pods that want company, shun it, or spread (PL07, PL08): who goes where, and why not."""

import pytest

from pumice.testing import Cluster, binds_of
from shared.api import kinds

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
HOST = "kubernetes.io/hostname"


def racks(*zones: str, **more: str) -> Cluster:
    world = Cluster()
    for number, zone in enumerate(zones):
        labels = {HOST: f"n{number}"} | ({"zone": zone} if zone else {})
        world.node(f"n{number}", labels=labels, **more)
    return world


def term(app: str, key: str, **more):
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **more}


def beside(app: str, key: str, **more):
    return {"podAffinity": {REQUIRED: [term(app, key, **more)]}}


def apart(app: str, key: str, **more):
    return {"podAntiAffinity": {REQUIRED: [term(app, key, **more)]}}


def labelled(app: str, namespace: str = ""):
    return {"labels": {"app": app}} | ({"namespace": namespace} if namespace else {})


def reasons(plan):
    return dict(plan.explanations[0].reasons)


def test_a_gang_that_shuns_itself_gets_one_node_each():
    world = racks("a", "a", "b")
    world.gang("g", tasks=3, affinity=apart("x", HOST), metadata=labelled("x"))
    assert sorted(binds_of(world.decide()).values()) == ["n0", "n1", "n2"]


def test_over_zones_only_as_many_fit_as_there_are_zones():
    world = racks("a", "a", "b")
    world.gang("g", tasks=3, affinity=apart("x", "zone"), metadata=labelled("x"))
    plan = world.decide()
    assert plan.binds == ()
    assert reasons(plan) == {"node(s) didn't match pod anti-affinity rules": 3}


def test_who_is_there_may_keep_others_away():
    world = racks("a", "b").pod("old", node="n0", affinity=apart("x", "zone"))
    world.gang("g", tasks=2, min_member=1, metadata=labelled("x"))
    plan = world.decide()
    assert set(binds_of(plan).values()) == {"n1"}
    world = racks("a").pod("old", node="n0", affinity=apart("x", "zone"))
    world.gang("g", tasks=1, metadata=labelled("x"))
    assert reasons(world.decide()) == {
        "node(s) didn't satisfy existing pods anti-affinity rules": 1
    }


def test_company_is_sought_in_the_domain_of_those_that_are_there():
    world = racks("a", "b", "b").pod("old", node="n1", metadata=labelled("db"))
    world.gang("g", tasks=2, affinity=beside("db", "zone"))
    assert set(binds_of(world.decide()).values()) <= {"n1", "n2"}


def test_who_wants_its_own_kind_begins_anywhere_and_stays_together():
    world = racks("a", "b", "", cpu="8")
    world.gang("g", tasks=3, affinity=beside("x", "zone"), metadata=labelled("x"))
    assert len(set(binds_of(world.decide()).values())) == 1
    other = racks("a", "b").gang("g", tasks=1, affinity=beside("x", "zone"))
    assert reasons(other.decide()) == {"node(s) didn't match pod affinity rules": 2}


def test_terms_mean_the_own_namespace_unless_they_say_otherwise():
    far = labelled("x", "far")
    for more, open_nodes in (({}, {"n0"}), ({"namespaces": ["far"]}, {"n1"})):
        world = racks("a", "b").pod("near", node="n1", metadata=labelled("x"))
        world.pod("far", node="n0", metadata=dict(far))
        world.gang("g", tasks=1, affinity=apart("x", "zone", **more))
        assert set(binds_of(world.decide()).values()) == open_nodes


def test_a_namespace_is_meant_by_its_labels_as_they_are_now():
    selector = {"matchLabels": {"team": "a"}}
    world = racks("a", "b").pod("far", node="n0", metadata=labelled("x", "far"))
    world.gang("g", tasks=1, affinity=beside("x", "zone", namespaceSelector=selector))
    assert world.decide().binds == ()
    space = {"metadata": {"name": "far", "uid": "u", "labels": {"team": "a"}}}
    world.put(kinds.NAMESPACE, space)
    assert binds_of(world.decide()) == {"g-0": "n0"}
    world.delete(kinds.NAMESPACE, "far", "u")
    assert world.decide().binds == ()


def test_match_label_keys_tell_one_revision_from_another():
    world = racks("a", "b")
    world.pod("old", node="n0", metadata={"labels": {"app": "x", "rev": "1"}})
    new = {"labels": {"app": "x", "rev": "2"}}
    world.gang(
        "g", tasks=1, metadata=dict(new), affinity=apart("x", "zone", matchLabelKeys=["rev"])
    )
    world.gang("h", tasks=1, affinity=beside("x", "zone", mismatchLabelKeys=["rev"]))
    world.pod(
        "h-0",
        "h",
        cpu="1",
        metadata=dict(new),
        affinity=beside("x", "zone", mismatchLabelKeys=["rev"]),
    )
    binds = binds_of(world.decide())
    assert binds["h-0"] == "n0"
    assert len(binds) == 2


def test_a_gang_that_is_taken_back_leaves_no_trace():
    world = racks("a", "b", cpu="2")
    world.gang("big", tasks=9, metadata=labelled("x"), created="2026-01-01T00:00:00Z")
    world.gang("g", tasks=1, affinity=apart("x", "zone"), created="2026-01-02T00:00:00Z")
    assert len(binds_of(world.decide())) == 1


def even(key: str, skew: int = 1, when: str = "DoNotSchedule", app: str = "x", **more):
    selector = {"matchLabels": {"app": app}}
    return {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": when} | {
        "labelSelector": selector,
        **more,
    }


def spread_of(world: Cluster) -> list[int]:
    nodes = list(binds_of(world.decide()).values())
    return [nodes.count(name) for name in sorted(set(nodes))]


def test_a_gang_spreads_over_zones_within_its_skew():
    world = racks("a", "b", "c")
    world.gang("g", tasks=7, topologySpreadConstraints=[even("zone")], metadata=labelled("x"))
    assert sorted(spread_of(world)) == [2, 2, 3]


def test_what_cannot_be_spread_is_told_so():
    world = racks("a", "b", "").pod("old", node="n0", metadata=labelled("x"))
    world.node("n1", labels={"zone": "b"}, unschedulable=True)
    world.gang("g", tasks=1, topologySpreadConstraints=[even("zone")], metadata=labelled("x"))
    assert reasons(world.decide()) == {
        "node(s) were unschedulable": 1,
        "node(s) didn't match pod topology spread constraints": 1,
        "node(s) didn't match pod topology spread constraints (missing required label)": 1,
    }


@pytest.mark.parametrize(("least", "placed"), [(2, 4), (3, 2)])
def test_too_few_domains_count_as_empty_ones(least, placed):
    world = racks("a", "b")
    rule = [even("zone", minDomains=least)]
    world.gang("g", tasks=4, min_member=1, topologySpreadConstraints=rule, metadata=labelled("x"))
    assert len(binds_of(world.decide())) == placed


@pytest.mark.parametrize(("policy", "placed"), [("Honor", 4), ("Ignore", 1)])
def test_nodes_that_a_pod_may_not_use_have_no_domains_unless_asked_for(policy, placed):
    world = racks("a", "b")
    rule = [even("zone", nodeAffinityPolicy=policy)]
    world.gang(
        "g",
        tasks=4,
        min_member=1,
        topologySpreadConstraints=rule,
        metadata=labelled("x"),
        nodeSelector={"zone": "a"},
    )
    assert len(binds_of(world.decide())) == placed


@pytest.mark.parametrize(("policy", "placed"), [("Honor", 4), ("Ignore", 1)])
def test_tainted_nodes_have_domains_unless_taints_are_honoured(policy, placed):
    taint = {"key": "k", "effect": "NoSchedule"}
    world = racks("a", "b").node("n1", labels={"zone": "b"}, taints=[taint])
    rule = [even("zone", nodeTaintsPolicy=policy)]
    world.gang("g", tasks=4, min_member=1, topologySpreadConstraints=rule, metadata=labelled("x"))
    assert len(binds_of(world.decide())) == placed


@pytest.mark.parametrize(("weight", "chosen"), [("1", "n1"), ("0", "n0")])
def test_a_node_that_has_the_image_is_preferred_by_weight_pl08(weight, chosen):
    conf = f"""
actions: "allocate"
tiers:
- plugins:
  - {{name: gang}}
  - {{name: nodeorder, arguments: {{imagelocality.weight: {weight}}}}}
"""
    world = Cluster(conf).node("n0")
    image = {"names": ["reg:5000/big:latest", "reg:5000/big@sha256:1"], "sizeBytes": 800_000_000}
    status = {"allocatable": {"cpu": "8", "memory": "16Gi", "pods": "9"}, "images": [image]}
    world.put(kinds.NODE, {"metadata": {"name": "n1", "uid": "u"}, "status": status})
    container = {"name": "c", "image": "reg:5000/big", "resources": {"requests": {"cpu": "1"}}}
    world.group("g").pod("p", "g", containers=[container])
    assert binds_of(world.decide()) == {"p": chosen}


def test_switched_off_checks_are_not_made_pl07():
    conf = """
actions: "allocate"
tiers:
- plugins:
  - {name: gang}
  - name: predicates
    arguments: {predicate.PodAffinityEnable: false, predicate.PodTopologySpreadEnable: false}
"""
    world = Cluster(conf).node("n0", labels={"zone": "a"})
    rules = {"affinity": beside("none", "zone"), "topologySpreadConstraints": [even("nowhere")]}
    world.gang("g", tasks=1, **rules)
    assert binds_of(world.decide()) == {"g-0": "n0"}
