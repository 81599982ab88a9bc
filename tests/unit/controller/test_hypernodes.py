"""HyperNodes: counts, the configuration of discovery, and what labels tell (H01 to H04)."""

import contextlib
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import yaml

from services.controller.config_text import BadConfigError
from services.controller.hypernode.config import Discovery, DiscoveryBounds, UfmSource, parse
from services.controller.hypernode.discovery import changes, from_labels, from_ports, ports
from services.controller.hypernode.reconciler import statuses
from shared.api import kinds
from shared.api.topology import HyperNode
from tests.unit.controller.reconcilers import NAMESPACE, Process, Stage

TYPES = {"roce": ("spine", "leaf")}
NODES = {
    "n1": {"spine": "s1", "leaf": "l1"},
    "n2": {"spine": "s1", "leaf": "l1"},
    "n3": {"spine": "s1", "leaf": "l2"},
    "n4": {"spine": "s2", "leaf": "l1"},
    "no-leaf": {"spine": "s2"},
    "no-spine": {"leaf": "l9"},
    "neither": {},
}


def hypernode(name: str, tier: int, *members: dict[str, Any], count: int = 0) -> HyperNode:
    body = {
        "metadata": {"name": name},
        "spec": {"tier": tier, "members": members},
        "status": {"nodeCount": count},
    }
    found: HyperNode = kinds.decode(kinds.HYPERNODE, msgspec.json.encode(body))
    return found


def exact(kind: str, name: str) -> dict[str, Any]:
    return {"type": kind, "selector": {"exactMatch": {"name": name}}}


def test_nodes_are_counted_through_all_levels_and_only_those_that_exist_h01() -> None:
    leaf = hypernode("leaf", 1, {"type": "Node", "selector": {"regexMatch": {"pattern": "^n"}}})
    other = hypernode("other", 1, exact("Node", "m1"), exact("Node", "gone"))
    top = hypernode("top", 2, exact("HyperNode", "leaf"), exact("HyperNode", "other"))
    there = {one.metadata.name: one for one in (leaf, other, top)}
    nodes: dict[str, dict[str, str]] = {"n1": {}, "n2": {}, "m1": {}}
    found = {one.metadata.name: status.node_count for one, status in statuses(there, nodes)}
    assert found == {"leaf": 2, "other": 1, "top": 3}


def test_a_count_that_is_right_is_not_written_again_h01() -> None:
    one = hypernode("a", 1, exact("Node", "n1"), count=1)
    assert list(statuses({"a": one}, {"n1": {}})) == []


def parse_(said: str, **bounds: Any) -> Discovery:
    return parse(said, DiscoveryBounds(**{"namespace": "ns", "hosts": ("*",), **bounds}))


def text(**source: Any) -> str:
    levels = [{"nodeLabel": name} for name in ("spine", "leaf", "kubernetes.io/hostname")]
    entry = {
        "source": "label",
        "enabled": True,
        "config": {"networkTopologyTypes": {"roce": levels}},
    }
    return yaml.safe_dump({"networkTopologyDiscovery": [{**entry, **source}]})


def test_the_label_of_hosts_is_dropped_h04() -> None:
    assert parse_(text()) == Discovery(types=TYPES)


@pytest.mark.parametrize("empty", ["", "{}", "networkTopologyDiscovery: []", "other: 1"])
def test_without_a_source_nothing_is_discovered_h02(empty: str) -> None:
    assert parse_(empty) == Discovery()


def test_a_source_that_is_off_is_left_alone_h02() -> None:
    assert parse_(text(enabled=False)) == Discovery()


UFM = {
    "source": "ufm",
    "enabled": True,
    "interval": "10m",
    "credentials": {"secretRef": {"name": "s", "namespace": "ns"}},
    "config": {"endpoint": "https://ufm", "insecureSkipVerify": True},
}


def of_ufm(**changed: Any) -> str:
    return yaml.safe_dump({"networkTopologyDiscovery": [{**UFM, **changed}]})


def test_a_fabric_manager_is_asked_with_the_credentials_of_a_secret_h03() -> None:
    assert parse_(of_ufm()).ufm == UfmSource(
        endpoint="https://ufm", insecure_skip_verify=True, secret="ns/s", interval_s=600.0
    )
    assert parse_(of_ufm(enabled=False)).ufm is None


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("https://ufm", "https://ufm"),
        ("http://10.0.0.1:8080/", "http://10.0.0.1:8080/"),
        ("ufm.example.com", "https://ufm.example.com"),
        ("ufm:443", "https://ufm:443"),
    ],
)
def test_an_endpoint_without_a_scheme_is_asked_by_https_h03(said: str, asked: str) -> None:
    found = parse_(of_ufm(config={"endpoint": said})).ufm
    assert found is not None
    assert found.endpoint == asked


def test_a_secret_without_a_namespace_is_of_the_config_maps_h03() -> None:
    found = parse_(of_ufm(credentials={"secretRef": {"name": "s"}})).ufm
    assert found is not None
    assert found.secret == "ns/s"


@pytest.mark.parametrize(
    ("hosts", "allowed"),
    [
        ((), False),
        (("ufm",), True),
        (("UFM:8443",), True),
        (("ufm:443",), False),
        (("ufm.example.com", "fm"), False),
        (("*",), True),
    ],
)
def test_only_hosts_that_a_flag_names_get_the_credentials_h03(
    hosts: tuple[str, ...], allowed: bool
) -> None:
    """Who writes the ConfigMap would else have a Secret sent to an address of his own."""
    said = of_ufm(config={"endpoint": "https://ufm:8443/x"})
    if allowed:
        assert parse_(said, hosts=hosts).ufm is not None
        return
    with pytest.raises(BadConfigError, match="--topology-hosts"):
        parse_(said, hosts=hosts)


def port(host: str, switch: str, description: str = "Computer IB Port") -> dict[str, Any]:
    return {
        "description": description,
        "system_name": host,
        "peer_node_name": switch,
        "tier": 1,
        "lid": 7,
    }


def test_computers_that_share_a_switch_are_one_leaf_h03() -> None:
    listed = [
        port("n1", "rail-1"),
        port("n1", "rail-2"),
        port("n2", "rail-1"),
        port("n3", "rail-2"),
        port("n4", "apart"),
        port("stranger", "apart"),
        port("unplugged", ""),
        port("a-last", "zone-z", "Computer EDR Port"),
        port("rail-1", "spine-1", "Switch IB Port"),
    ]
    nodes = {"n1", "n2", "n3", "n4", "n5", "unplugged", "rail-1", "a-last"}
    found = from_ports(ports(msgspec.json.encode(listed)), nodes)
    members = {
        name: [m.selector.exact_match.name for m in one.spec.members if m.selector.exact_match]
        for name, one in found.items()
    }
    assert members == {
        "leaf-hn-0": ["n4"],
        "leaf-hn-1": ["n1", "n2", "n3"],
        "leaf-hn-2": ["a-last"],
        "spine-hn": ["leaf-hn-0", "leaf-hn-1", "leaf-hn-2"],
    }, "leaves come in the order of their switches"
    assert [one.spec.tier for one in found.values()] == [1, 1, 1, 2]
    again = from_ports(ports(msgspec.json.encode(listed[::-1])), nodes)
    assert again == found


def test_a_fabric_without_nodes_has_no_hypernodes_h03() -> None:
    assert from_ports(ports(b"[]"), {"n1"}) == {}


def levels(*names: str) -> list[dict[str, str]]:
    return [{"nodeLabel": name} for name in names]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("a: [", "is no YAML"),
        ("- 1", "Expected `object`, got `array`"),
        (text(source="lldp"), "networkTopologyDiscovery[0].source: 'lldp' is none of label, ufm"),
        (text(enabled="perhaps"), "networkTopologyDiscovery[0].enabled"),
        (text(interval="soon"), "networkTopologyDiscovery[0].interval: 'soon' is no duration"),
        (text(interval="0s"), "networkTopologyDiscovery[0].interval: '0s' is no time"),
        (of_ufm(credentials=None), "networkTopologyDiscovery[0].credentials.secretRef is missing"),
        (of_ufm(config={"endpoint": "ftp://ufm"}), "[0].config.endpoint: 'ftp://ufm' is no http("),
        (of_ufm(config={"endpoint": "a ufm"}), "[0].config.endpoint: 'a ufm' is no http(s)"),
        (of_ufm(config={"endpoint": "a@b"}), "[0].config.endpoint: 'a@b' is no http(s)"),
        (
            of_ufm(credentials={"secretRef": {"name": "db", "namespace": "payments"}}),
            "[0].credentials.secretRef.namespace: 'payments' is not the ConfigMap's own, 'ns'",
        ),
        (of_ufm(config={}), "[0].config: Object missing required field `endpoint`"),
        (text(config={}), "networkTopologyDiscovery[0].config: Object missing required field"),
        (
            text(config={"networkTopologyTypes": {"a" * 21: levels("x", "y")}}),
            f"networkTopologyTypes.{'a' * 21}: a name has 1 to 20 characters",
        ),
        (
            text(config={"networkTopologyTypes": {"": levels("x", "y")}}),
            "networkTopologyTypes.: a name has 1 to 20 characters",
        ),
        (
            text(config={"networkTopologyTypes": {"a.": levels("x", "y")}}),
            "networkTopologyTypes.a.: its HyperNodes cannot be called 'a.'",
        ),
        (
            text(config={"networkTopologyTypes": {"a": levels("x", "x")}}),
            "networkTopologyTypes.a: a label is there twice",
        ),
        (
            text(config={"networkTopologyTypes": {"a": levels("", "x")}}),
            "networkTopologyTypes.a[0].nodeLabel is empty",
        ),
    ],
)
def test_a_bad_configuration_is_refused_by_the_name_of_its_field_h02(bad: str, reason: str) -> None:
    with pytest.raises(BadConfigError) as caught:
        parse_(bad)
    assert reason in str(caught.value)


def tree(found: dict[str, HyperNode], name: str) -> Any:
    """Return the nodes below a HyperNode as nested lists."""
    members = [m.selector.exact_match for m in found[name].spec.members]
    assert all(members), "members are told by name, as Volcano's are"
    names = [exact.name for exact in members if exact]
    return sorted(tree(found, name) if name in found else name for name in names)


def test_nodes_that_agree_in_a_label_and_all_above_are_one_hypernode_h04() -> None:
    found = from_labels(TYPES, NODES)
    shape = sorted(
        (one.spec.tier, one.spec.tier_name, one.metadata.labels[one.spec.tier_name], tree(found, n))
        for n, one in found.items()
    )
    assert shape == [
        (1, "leaf", "l1", ["n1", "n2"]),
        (1, "leaf", "l1", ["n4"]),
        (1, "leaf", "l2", ["n3"]),
        (1, "leaf", "l9", ["no-spine"]),
        (2, "spine", "s1", [["n1", "n2"], ["n3"]]),
        (2, "spine", "s2", [["n4"]]),
    ]
    source = "volcano.sh/network-topology-source"
    assert {one.metadata.labels[source] for one in found.values()} == {"label"}


@pytest.mark.parametrize(
    ("network", "shown"), [("topology_A2", "topology-a2"), ("Net.1", "net.1"), ("a b", "a-b")]
)
def test_a_network_may_be_called_what_volcano_takes_h04(network: str, shown: str) -> None:
    types = parse_(text(config={"networkTopologyTypes": {network: levels("leaf", "host")}})).types
    assert types is not None
    assert all(name.startswith(f"hypernode-{shown}-tier1-") for name in from_labels(types, NODES))


def test_what_was_discovered_counts_the_nodes_that_it_was_discovered_from_h04() -> None:
    found = from_labels(TYPES, {name: have for name, have in NODES.items() if name != "no-spine"})
    counts = [(one.spec.tier, status.node_count) for one, status in statuses(dict(found), NODES)]
    assert sorted(counts) == [(1, 1), (1, 1), (1, 2), (2, 1), (2, 3)]


def test_what_an_earlier_version_found_gets_its_labels_h04() -> None:
    wanted = from_labels({"roce": ("leaf",)}, {"n1": {"leaf": "l1"}})
    (one,) = wanted.values()
    source = {"volcano.sh/network-topology-source": "label"}
    meta = msgspec.structs.replace(one.metadata, labels={**source, "mine": "x"})
    bare = msgspec.structs.replace(one, metadata=meta)
    _, change, _ = changes(wanted, [bare])
    assert change == [(bare, one)]
    meta = msgspec.structs.replace(one.metadata, labels={**one.metadata.labels, "mine": "x"})
    assert changes(wanted, [msgspec.structs.replace(one, metadata=meta)]) == ([], [], [])


def test_the_same_network_has_the_same_names_h04() -> None:
    again = dict(reversed(NODES.items()))
    assert from_labels(TYPES, again) == from_labels(TYPES, NODES)
    other = from_labels({"ROCE2": TYPES["roce"]}, NODES)
    assert not other.keys() & from_labels(TYPES, NODES).keys()
    assert all(name.startswith("hypernode-roce2-tier") for name in other)


def test_a_network_of_hosts_alone_has_no_hypernodes_h04() -> None:
    assert from_labels({"flat": ()}, NODES) == {}


def test_only_what_differs_is_changed_and_only_what_is_ours_h02() -> None:
    wanted = from_labels(TYPES, NODES)
    stranger = hypernode("hand-made", 1, exact("Node", "n1"))
    create, change, delete = changes(wanted, [stranger])
    assert [one.spec.tier for one in create] == sorted(one.spec.tier for one in create)
    assert (change, delete) == ([], [])
    assert changes(wanted, [stranger, *wanted.values()]) == ([], [], [])

    fewer = from_labels(TYPES, {"n1": NODES["n1"]})
    create, change, delete = changes(fewer, [stranger, *wanted.values()])
    assert create == []
    assert [one.spec.tier for one, _ in change] == [1, 2], "each has lost a member"
    assert [one.spec.tier for one in delete] == sorted(
        (one.spec.tier for one in delete), reverse=True
    )
    assert stranger not in delete


def _shape(stage: Stage) -> list[tuple[int, str, int, list[str]]]:
    """Return tier, label's value, count and members of each HyperNode."""
    names = {h["metadata"]["name"]: _value(h) for h in stage.items(kinds.HYPERNODE)}
    return sorted(
        (
            h["spec"]["tier"],
            _value(h),
            h.get("status", {}).get("nodeCount", 0),
            [
                names.get(member["selector"]["exactMatch"]["name"])
                or member["selector"]["exactMatch"]["name"]
                for member in h["spec"]["members"]
            ],
        )
        for h in stage.items(kinds.HYPERNODE)
    )


def _value(hypernode: dict[str, Any]) -> str:
    return str(hypernode["metadata"]["labels"][hypernode["spec"]["tierName"]])


async def _kept(process: Process) -> None:
    """Let the controller of HyperNodes work for a while."""
    async with process.running("network"):
        for _ in range(24):
            process.relist()
            await process.stage.clock.advance(1.0)


@pytest.mark.parametrize("dies_at", range(1, 9))
async def test_a_network_is_discovered_whole_whenever_a_process_dies_h04(dies_at: int) -> None:
    stage = Stage()
    for name, spine, leaf in (("n1", "s", "l1"), ("n2", "s", "l1"), ("n3", "s", "l2")):
        stage.create(kinds.NODE, name, {})
        stage.ask(
            "PATCH", kinds.NODE, name, {"metadata": {"labels": {"spine": spine, "leaf": leaf}}}
        )
    meta = {"name": "topology", "namespace": NAMESPACE}
    body = {"metadata": meta, "data": {"volcano-controller.conf": text()}}
    stage.ask("POST", kinds.CONFIGMAP, body=body)
    lives = [Process(stage, dies_at=dies_at), Process(stage)]
    for process in lives:
        with contextlib.suppress(BaseExceptionGroup):
            await _kept(process)
    assert _shape(stage) == [
        (1, "l1", 2, ["n1", "n2"]),
        (1, "l2", 1, ["n3"]),
        (2, "s", 3, sorted(["l1", "l2"], key=_order(stage))),
    ]

    moved = {"metadata": {"labels": {"leaf": "l2"}}}
    stage.ask("PATCH", kinds.NODE, "n2", moved)
    await _kept(Process(stage))
    assert [(value, members) for _, value, _, members in _shape(stage)[:2]] == [
        ("l1", ["n1"]),
        ("l2", ["n2", "n3"]),
    ]
    before = stage.writes.total()
    await _kept(Process(stage))
    assert stage.writes.total() == before


def _order(stage: Stage) -> Callable[[str], str]:
    """Return what puts values in the order of the HyperNodes' names."""
    names = {_value(h): h["metadata"]["name"] for h in stage.items(kinds.HYPERNODE)}
    return names.__getitem__
