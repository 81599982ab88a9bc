"""NodeShards: the configuration, the policies, and how nodes are dealt out (S01 to S03)."""

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from services.controller.adapters.takeovers import ShardTakeovers
from services.controller.config_text import BadConfigError
from services.controller.settings import ControllerSettings
from services.controller.sharding.config import Config, from_flags, parse
from services.controller.sharding.plan import ShardSpec, assign, waves
from services.controller.sharding.policies import NodeLoad, Weighted, policy_of
from shared.api import kinds
from shared.runtime.errors import Conflict
from tests.unit.controller.reconcilers import NAMESPACE, Process, Stage

BASE = Config(period_s=60.0, on_events=True)
Policies = dict[str, dict[str, Any]]
RANGES: dict[str, Policies] = {
    "low": {"allocation-rate": {"minCPUUtil": 0.0, "maxCPUUtil": 0.6}},
    "high": {"allocation-rate": {"minCPUUtil": 0.7, "maxCPUUtil": 1.0}},
}


def text(shards: dict[str, Policies], **more: Any) -> str:
    entries = [
        {"name": name, "policies": [{"name": p, "arguments": a} for p, a in policies.items()]}
        for name, policies in shards.items()
    ]
    return yaml.safe_dump({"schedulerConfigs": entries, **more})


def shards_of(shards: dict[str, Policies]) -> tuple[ShardSpec, ...]:
    return parse(text(shards), BASE).shards


def loads(**shares: float) -> list[NodeLoad]:
    return [NodeLoad(name=name, labels={}, cpu_share=share) for name, share in shares.items()]


# --- policies (S01) ---


@pytest.mark.parametrize(
    ("share", "shard"),
    [(0.0, "low"), (0.6, "low"), (0.604, "low"), (0.606, ""), (0.65, ""), (0.695, "high"),
     (1.0, "high")],
)  # fmt: skip
def test_a_node_is_of_the_shard_whose_range_its_requests_are_in_s01(
    share: float, shard: str
) -> None:
    found = assign(shards_of(RANGES), loads(n=share), {})
    assert found == {name: ("n",) if name == shard else () for name in RANGES}


def test_fuller_nodes_and_those_with_the_label_come_first_s01() -> None:
    rate, warm = policy_of("allocation-rate", {"maxCPUUtil": 0.5}), policy_of("warmup", {})
    limit = Weighted(policy_of("node-limit", {"maxNodes": 2}))
    nodes = [
        *loads(idle=0.0, half=0.25, full=0.5),
        NodeLoad(name="warm", labels={"node.volcano.sh/warmup": "true"}, cpu_share=0.0),
    ]
    plain = ShardSpec(name="s", policies=(Weighted(rate), limit))
    assert assign([plain], nodes, {}) == {"s": ("full", "half")}
    warmed = ShardSpec(name="s", policies=(Weighted(rate), Weighted(warm, 2), limit))
    assert assign([warmed], nodes, {}) == {"s": ("full", "warm")}


def test_a_limit_holds_for_the_whole_shard_however_many_nodes_there_are_s03() -> None:
    nodes = loads(**{f"n{number:03}": 0.0 for number in range(120)})
    limited = {**RANGES["low"], "node-limit": {"maxNodes": 7}}
    assert len(assign(shards_of({"a": limited}), nodes, {})["a"]) == 7


def test_a_node_goes_to_the_first_shard_that_takes_it_s01() -> None:
    anything: Policies = {"warmup": {}}
    found = assign(shards_of({"a": {**anything, "node-limit": {"maxNodes": 1}}, "b": anything}),
                   loads(n1=0.0, n2=0.0), {})  # fmt: skip
    assert found == {"a": ("n1",), "b": ("n2",)}


def test_of_equal_nodes_a_shard_keeps_those_it_has_s03() -> None:
    one = shards_of({"a": {"node-limit": {"maxNodes": 1}}})
    assert assign(one, loads(n1=0.0, n2=0.0), {"a": ("n2",)}) == {"a": ("n2",)}


# --- how much has to change (S03) ---


def swapped(number: int, size: int = 40) -> bool:
    """Return whether a shard of `size` nodes is dealt out anew when some have better ones."""
    nodes = [f"n{n:02}" for n in range(size)]
    warm = [NodeLoad(name=f"w{n}", labels={"node.volcano.sh/warmup": "true"}, cpu_share=0.0)
            for n in range(number)]  # fmt: skip
    shards = shards_of({"a": {"warmup": {}, "node-limit": {"maxNodes": size}}, "b": {"warmup": {}}})
    rest = {one.name for one in warm}
    present = {"a": nodes, "b": sorted(rest)}
    return assign(shards, [*loads(**dict.fromkeys(nodes, 0.0)), *warm], present)["a"] != tuple(
        nodes
    )


def test_fewer_than_a_tenth_of_the_nodes_are_not_exchanged_s03() -> None:
    # The other shard is small, and so one node is a tenth of it: it alone would be written.
    assert swapped(4)
    alone = shards_of({"a": {"warmup": {}, "node-limit": {"maxNodes": 40}}})
    warm = NodeLoad(name="w", labels={"node.volcano.sh/warmup": "true"}, cpu_share=0.0)
    nodes = [f"n{n:02}" for n in range(40)]
    present = {"a": nodes}
    found = assign(alone, [*loads(**dict.fromkeys(nodes, 0.0)), warm], present)
    assert found == {"a": tuple(nodes)}


def test_a_node_that_is_gone_leaves_its_shard_though_another_takes_its_place_s03() -> None:
    nodes = [f"n{n:02}" for n in range(40)]
    shards = shards_of({"a": {"node-limit": {"maxNodes": 40}}})
    found = assign(shards, loads(**dict.fromkeys([*nodes[1:], "new"], 0.0)), {"a": nodes})
    assert found == {"a": tuple(sorted([*nodes[1:], "new"]))}


# --- no node in two shards, ever ---

_NAMES = st.sampled_from([f"n{number}" for number in range(8)])
_SHARES = st.dictionaries(_NAMES, st.sampled_from([0.0, 0.3, 0.65, 0.8, 1.0]))
_LIMITS = st.lists(st.integers(0, 4), min_size=1, max_size=4)


@st.composite
def _dealt(draw: st.DrawFn) -> dict[str, tuple[str, ...]]:
    """Draw NodeShards that have no node in common; some are of no scheduler any more."""
    owners = draw(st.dictionaries(_NAMES, st.sampled_from(["s0", "s1", "s2", "old"])))
    return {name: tuple(sorted(n for n, owner in owners.items() if owner == name))
            for name in sorted({*owners.values(), "s0"})}  # fmt: skip


def _history(
    present: dict[str, tuple[str, ...]], wanted: dict[str, tuple[str, ...]], order: bool
) -> Iterator[dict[str, tuple[str, ...]]]:
    """Yield the NodeShards as they are after each write."""
    now = dict(present)
    for wave in waves(present, wanted):
        for name in sorted(wave, reverse=order):
            now[name] = wave[name]
            yield dict(now)


@given(present=_dealt(), shares=_SHARES, limits=_LIMITS, order=st.booleans())
def test_after_no_write_is_a_node_in_two_shards_s01(
    present: dict[str, tuple[str, ...]], shares: dict[str, float], limits: list[int], order: bool
) -> None:
    shards = shards_of(
        {f"s{n}": {"warmup": {}, "node-limit": {"maxNodes": most}} for n, most in enumerate(limits)}
    )
    wanted = assign(shards, loads(**shares), present)
    last = present
    for last in _history(present, wanted, order):
        every = [node for nodes in last.values() for node in nodes]
        assert len(every) == len(set(every)), last
    assert {name: nodes for name, nodes in last.items() if name in wanted} == wanted
    assert all(not nodes for name, nodes in last.items() if name not in wanted)
    assert assign(shards, loads(**shares), wanted) == wanted, "nothing is dealt out twice"


# --- the configuration (S02) ---


def test_the_flags_are_volcanos_s02() -> None:
    settings = ControllerSettings()
    found = from_flags(settings.scheduler_configs, period_s=1.0, on_events=False)
    assert [shard.name for shard in found.shards] == ["volcano", "agent-scheduler"]
    assert (found.period_s, found.on_events) == (1.0, False)
    dealt = assign(found.shards, loads(idle=0.1, gap=0.65, busy=0.9), {})
    assert dealt == {"volcano": ("idle",), "agent-scheduler": ("busy",)}


def test_a_config_map_says_when_to_deal_or_leaves_it_to_the_flags_s02() -> None:
    found = parse(text(RANGES, shardSyncPeriod="2m", enableNodeEventTrigger=False), BASE)
    assert (found.period_s, found.on_events) == (120.0, False)
    found = parse(text(RANGES), BASE)
    assert (found.period_s, found.on_events) == (60.0, True)


def test_older_fields_stand_for_policies_s02() -> None:
    old = {"name": "a", "cpuUtilizationMax": 0.5, "preferWarmupNodes": True, "maxNodes": 1}
    found = parse(yaml.safe_dump({"schedulerConfigs": [old]}), BASE).shards
    assert found == shards_of(
        {"a": {"allocation-rate": {"minCPUUtil": 0.0, "maxCPUUtil": 0.5}, "warmup": {},
               "node-limit": {"minNodes": 0, "maxNodes": 1}}}
    )  # fmt: skip


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("a: [", "is no YAML"),
        ("", "schedulerConfigs is empty"),
        (text({"": {}}), "schedulerConfigs[0].name: '' is no name"),
        (text({"A b": {}}), "schedulerConfigs[0].name: 'A b' is no name"),
        (text({"a": {"nearest": {}}}), "policies[0] (nearest): 'nearest' is none of"),
        (text({"a": {"warmup": {"maxNodes": 3}}}), "policies[0] (warmup): Object contains unknown"),
        (text({"a": {"warmup": {"warmupLabel": ""}}}), "warmupLabel is empty"),
        (text({"a": {"node-limit": {"minNodes": -1}}}), "minNodes -1 is below 0"),
        (text({"a": {"node-limit": {"minNodes": 3, "maxNodes": 2}}}), "maxNodes 2 is below"),
        (text({"a": {"allocation-rate": {"minCPUUtil": 0.8, "maxCPUUtil": 0.2}}}), "are no range"),
        (text({"a": {"allocation-rate": {"maxCPUUtil": math.nan}}}), "are no range"),
        (text(RANGES, shardSyncPeriod="soon"), "shardSyncPeriod: 'soon' is no duration"),
        (yaml.safe_dump({"schedulerConfigs": [{"name": "a"}, {"name": "a"}]}), "is there twice"),
        (
            yaml.safe_dump(
                {
                    "schedulerConfigs": [
                        {"name": "a", "policies": [{"name": "warmup", "weight": -1}]}
                    ]
                }
            ),
            "policies[0].weight: -1 is below 0",
        ),
    ],
)
def test_a_bad_configuration_is_refused_by_the_name_of_its_field_s02(bad: str, reason: str) -> None:
    with pytest.raises(BadConfigError) as caught:
        parse(bad, BASE)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    "bad", ["a", "a:b:0:1:no:1:2", "a:b:x:1:true:1:2", "a:b:0:1:true:1:", "a:b:1:0:true:1:2"]
)
def test_a_bad_flag_is_refused_s02(bad: str) -> None:
    with pytest.raises(BadConfigError, match="--scheduler-configs"):
        from_flags([bad], period_s=1.0, on_events=True)


# --- the controller, on an API server in memory ---


def put_config(stage: Stage, shards: dict[str, Policies]) -> None:
    meta = {"name": "volcano-sharding-configmap", "namespace": NAMESPACE}
    body = {"metadata": meta, "data": {"sharding.yaml": text(shards)}}
    stage.ask("POST", kinds.CONFIGMAP, body=body)


def add_node(stage: Stage, name: str) -> None:
    stage.create(kinds.NODE, name, {})
    stage.ask("PATCH", kinds.NODE, name, {"status": {"capacity": {"cpu": "4"}}}, "status")


def add_pod(stage: Stage, name: str, node: str, cpu: str, scheduler: str = "another") -> None:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    spec = {"nodeName": node, "schedulerName": scheduler, "containers": [container]}
    stage.create(kinds.POD, name, spec)


def dealt(stage: Stage) -> dict[str, list[str]]:
    return {
        one["metadata"]["name"]: one["spec"]["nodesDesired"] for one in stage.items(kinds.NODESHARD)
    }


async def work(process: Process, seconds: int = 14) -> None:
    async with process.running("shards"):
        for _ in range(seconds):
            process.relist()
            await process.stage.clock.advance(1.0)


@pytest.mark.parametrize("dies_at", range(1, 7))
async def test_shards_follow_their_nodes_whenever_a_process_dies_s01(dies_at: int) -> None:
    stage = Stage()
    put_config(stage, RANGES)
    for name in ("n1", "n2", "n3"):
        add_node(stage, name)
    add_pod(stage, "busy", "n3", "3500m")
    stage.create(kinds.NODESHARD, "stale", {"nodesDesired": ["n1"]})
    for process in (Process(stage, dies_at=dies_at), Process(stage)):
        with contextlib.suppress(BaseExceptionGroup):
            await work(process)
    assert dealt(stage) == {"low": ["n1", "n2"], "high": ["n3"]}

    add_pod(stage, "more", "n1", "3")
    stage.ask("PATCH", kinds.POD, "busy", {"status": {"phase": "Succeeded"}}, "status")
    stage.ask("DELETE", kinds.NODE, "n2")
    await work(Process(stage))
    assert dealt(stage) == {"low": ["n3"], "high": ["n1"]}

    stage.ask("DELETE", kinds.NODESHARD, "high")
    process = Process(stage)
    await work(process)
    assert dealt(stage) == {"low": ["n3"], "high": ["n1"]}
    before = stage.writes.total()
    await work(process)
    assert stage.writes.total() == before, "what is as it should be is not written again"


async def test_a_shard_whose_nodes_are_in_use_is_emptied_and_deleted_when_they_are_left_s03() -> (
    None
):
    stage = Stage()
    put_config(stage, RANGES)
    add_node(stage, "n1")
    stage.create(kinds.NODESHARD, "stale", {"nodesDesired": ["n1"]})
    stage.ask("PATCH", kinds.NODESHARD, "stale", {"status": {"nodesInUse": ["n1"]}}, "status")
    process = Process(stage)
    await work(process)
    assert dealt(stage)["stale"] == []
    stage.ask("PATCH", kinds.NODESHARD, "stale", {"status": {"nodesInUse": []}}, "status")
    await work(process)
    assert dealt(stage) == {"low": ["n1"], "high": []}


async def test_a_config_map_is_followed_and_a_bad_one_changes_nothing_s02() -> None:
    stage = Stage()
    put_config(stage, RANGES)
    add_node(stage, "n1")
    process = Process(stage)
    await work(process)
    stage.ask(
        "PATCH", kinds.CONFIGMAP, "volcano-sharding-configmap", {"data": {"sharding.yaml": "a: ["}}
    )
    add_node(stage, "n2")
    await work(process)
    assert dealt(stage) == {"low": ["n1", "n2"], "high": []}
    other = {"data": {"sharding.yaml": text({"mine": {"node-limit": {"maxNodes": 1}}})}}
    stage.ask("PATCH", kinds.CONFIGMAP, "volcano-sharding-configmap", other)
    await work(process)
    assert dealt(stage) == {"mine": ["n1"]}


LEASE = "second"
LEASE_KEY = f"{NAMESPACE}/{LEASE}"


def claimed(stage: Stage, name: str, *nodes: str) -> None:
    """Have a scheduler use nodes, in the first term of its Lease."""
    lease = {"holderIdentity": "them", "leaseDurationSeconds": 15, "leaseTransitions": 0}
    stage.create(kinds.LEASE, LEASE, lease)
    stage.create(kinds.NODESHARD, name, {"nodesDesired": list(nodes)})
    notes = {"annotations": {"pumice.dev/leadership-term": f"{LEASE_KEY}/uid.0"}}
    stage.ask("PATCH", kinds.NODESHARD, name, {"metadata": notes})
    stage.ask("PATCH", kinds.NODESHARD, name, {"status": {"nodesInUse": list(nodes)}}, "status")


def renew(stage: Stage, **spec: Any) -> None:
    spec = {"renewTime": str(stage.clock.now()), **spec}
    stage.ask("PATCH", kinds.LEASE, LEASE, {"spec": spec})


def one(stage: Stage, kind: kinds.Kind, name: str) -> dict[str, Any]:
    (found,) = (o for o in stage.items(kind) if o["metadata"]["name"] == name)
    return found


async def test_nodes_of_a_scheduler_whose_lease_has_run_out_are_given_to_others_ca12() -> None:
    stage = Stage()
    put_config(stage, {"first": {"node-limit": {"maxNodes": 1}}, "other": {}})
    add_node(stage, "n1")
    claimed(stage, "first", "n1")
    process = Process(stage)
    for _ in range(3):
        await work(process)
        renew(stage)
    assert dealt(stage) == {"first": ["n1"], "other": []}, "it lives"
    await work(process, 40)
    assert dealt(stage) == {"first": [], "other": ["n1"]}
    assert one(stage, kinds.NODESHARD, "first")["status"]["nodesInUse"] == []
    lease = one(stage, kinds.LEASE, LEASE)["spec"]
    assert (lease.get("holderIdentity"), lease["leaseTransitions"]) == (None, 1)
    await work(process, 40)
    assert one(stage, kinds.LEASE, LEASE)["spec"] == lease, "it is held once"
    await work(Process(stage), 40)
    assert dealt(stage) == {"first": [], "other": ["n1"]}, "another process goes on with it"

    renew(stage, holderIdentity="them", leaseTransitions=2)
    await work(process)
    assert dealt(stage) == {"first": ["n1"], "other": []}, "it is back"


async def test_a_scheduler_that_names_no_lease_keeps_its_nodes_ca12() -> None:
    stage = Stage()
    put_config(stage, {"first": {}})
    add_node(stage, "n1")
    claimed(stage, "first", "n1")
    stage.ask(
        "PATCH",
        kinds.NODESHARD,
        "first",
        {"metadata": {"annotations": {"pumice.dev/leadership-term": None}}},
    )
    await work(Process(stage), 60)
    assert one(stage, kinds.NODESHARD, "first")["status"]["nodesInUse"] == ["n1"]


async def test_a_lease_that_is_renewed_in_that_moment_is_left_with_its_holder_ca12(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage()
    put_config(stage, {"first": {}})
    add_node(stage, "n1")
    claimed(stage, "first", "n1")
    process = Process(stage)
    manager = process.manager
    takeovers = ShardTakeovers(manager)
    process.relist()
    shards = dict(process.informers.shards.items())
    assert not await takeovers.absent(shards)
    await stage.clock.advance(30.0)
    get = manager.kube.get  # the moment between its look and its write

    async def late(*asked: Any) -> bytes:
        found = await get(*asked)
        renew(stage)
        return found

    monkeypatch.setattr(manager.kube, "get", late)
    with pytest.raises(Conflict):
        await takeovers.absent(shards)
    assert one(stage, kinds.LEASE, LEASE)["spec"]["holderIdentity"] == "them"
    assert one(stage, kinds.NODESHARD, "first")["status"]["nodesInUse"] == ["n1"]
