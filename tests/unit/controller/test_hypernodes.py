"""HyperNodes: counts, the configuration of discovery, and what labels tell (H01 to H04)."""

from typing import Any

import msgspec
import pytest
import yaml

from services.controller.hypernode import ufm
from services.controller.hypernode.config import BadConfigError, Discovery, UfmSource, parse
from services.controller.hypernode.discovery import changes, discovered
from services.controller.hypernode.status import statuses
from shared.api import kinds
from shared.api.topology import HyperNode

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


def text(**source: Any) -> str:
    levels = [{"nodeLabel": name} for name in ("spine", "leaf", "kubernetes.io/hostname")]
    entry = {
        "source": "label",
        "enabled": True,
        "config": {"networkTopologyTypes": {"roce": levels}},
    }
    return yaml.safe_dump({"networkTopologyDiscovery": [{**entry, **source}]})


def test_the_label_of_hosts_is_dropped_h04() -> None:
    assert parse(text()) == Discovery(types=TYPES)


@pytest.mark.parametrize("empty", ["", "{}", "networkTopologyDiscovery: []", "other: 1"])
def test_without_a_source_nothing_is_discovered_h02(empty: str) -> None:
    assert parse(empty) == Discovery()


def test_a_source_that_is_off_is_left_alone_h02() -> None:
    assert parse(text(enabled=False)) == Discovery()


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
    assert parse(of_ufm()).ufm == UfmSource(
        endpoint="https://ufm", insecure_skip_verify=True, secret="ns/s", interval_s=600.0
    )
    assert parse(of_ufm(enabled=False)).ufm is None


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
        port("rail-1", "spine-1", "Switch IB Port"),
    ]
    nodes = {"n1", "n2", "n3", "n4", "n5", "unplugged", "rail-1"}
    found = ufm.discovered(ufm.ports(msgspec.json.encode(listed)), nodes)
    members = {
        name: [m.selector.exact_match.name for m in one.spec.members if m.selector.exact_match]
        for name, one in found.items()
    }
    assert members == {
        "leaf-hn-0": ["n1", "n2", "n3"],
        "leaf-hn-1": ["n4"],
        "spine-hn": ["leaf-hn-0", "leaf-hn-1"],
    }
    assert [one.spec.tier for one in found.values()] == [1, 1, 2]
    again = ufm.discovered(ufm.ports(msgspec.json.encode(listed[::-1])), nodes)
    assert again == found


def test_a_fabric_without_nodes_has_no_hypernodes_h03() -> None:
    assert ufm.discovered(ufm.ports(b"[]"), {"n1"}) == {}


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
        (of_ufm(config={"endpoint": "ufm:80"}), "[0].config.endpoint: 'ufm:80' is no http(s)"),
        (of_ufm(config={}), "[0].config: Object missing required field `endpoint`"),
        (text(config={}), "networkTopologyDiscovery[0].config: Object missing required field"),
        (
            text(config={"networkTopologyTypes": {"a" * 21: levels("x", "y")}}),
            f"networkTopologyTypes.{'a' * 21}: a name has at most 20",
        ),
        (
            text(config={"networkTopologyTypes": {"a b": levels("x", "y")}}),
            "networkTopologyTypes.a b: a name has",
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
        parse(bad)
    assert reason in str(caught.value)


def test_nodes_that_agree_in_a_label_and_all_above_are_one_hypernode_h04() -> None:
    found = discovered(TYPES, NODES)
    below = {
        name: {
            tuple(sorted(member.selector.label_match.match_labels.items()))
            if member.selector.label_match
            else found[member.selector.exact_match.name].spec.tier
            for member in one.spec.members
            if member.selector.label_match or member.selector.exact_match
        }
        for name, one in found.items()
    }
    lowest = [members for name, members in below.items() if "-tier1-" in name]
    assert sorted(map(sorted, lowest)) == [
        [(("leaf", "l1"), ("spine", "s1"))],
        [(("leaf", "l1"), ("spine", "s2"))],
        [(("leaf", "l2"), ("spine", "s1"))],
        [(("leaf", "l9"),)],
    ]
    assert len([name for name in found if "-tier2-" in name]) == 2
    assert all(
        one.metadata.labels == {"volcano.sh/network-topology-source": "label"}
        for one in found.values()
    )


def test_what_was_discovered_counts_the_nodes_that_it_was_discovered_from_h04() -> None:
    found = discovered(TYPES, {name: have for name, have in NODES.items() if name != "no-spine"})
    counts = [(one.spec.tier, status.node_count) for one, status in statuses(dict(found), NODES)]
    assert sorted(counts) == [(1, 1), (1, 1), (1, 2), (2, 1), (2, 3)]


def test_the_same_network_has_the_same_names_h04() -> None:
    again = dict(reversed(NODES.items()))
    assert discovered(TYPES, again) == discovered(TYPES, NODES)
    other = discovered({"ROCE2": TYPES["roce"]}, NODES)
    assert not other.keys() & discovered(TYPES, NODES).keys()
    assert all(name.startswith("hypernode-roce2-tier") for name in other)


def test_a_network_of_hosts_alone_has_no_hypernodes_h04() -> None:
    assert discovered({"flat": ()}, NODES) == {}


def test_only_what_differs_is_changed_and_only_what_is_ours_h02() -> None:
    wanted = discovered(TYPES, NODES)
    stranger = hypernode("hand-made", 1, exact("Node", "n1"))
    create, change, delete = changes(wanted, [stranger])
    assert [one.spec.tier for one in create] == sorted(one.spec.tier for one in create)
    assert (change, delete) == ([], [])
    assert changes(wanted, [stranger, *wanted.values()]) == ([], [], [])

    fewer = discovered(TYPES, {"n1": NODES["n1"]})
    create, change, delete = changes(fewer, [stranger, *wanted.values()])
    assert create == []
    assert [one.spec.tier for one, _ in change] == [2]
    assert [one.spec.tier for one in delete] == sorted(
        (one.spec.tier for one in delete), reverse=True
    )
    assert stranger not in delete
