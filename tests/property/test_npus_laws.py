"""Laws of NPUs on drawn histories (DV3): nothing is given twice, and annotations say all of it."""

import json
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from pumice.testing import Cluster
from services.scheduler.engine.plan import Plan
from services.scheduler.policy.vendors.cards import CardUsage, each
from services.scheduler.policy.vendors.npu_cards import cards_of, shown_shares
from services.scheduler.policy.vendors.npus import Npus
from shared.api import kinds
from shared.api.core import Node
from tests.support.laws import count_hits, needs_hits

CHIPS = ("Ascend310P", "Ascend910B3")
SIZES = {"Ascend310P": (21527, 8), "Ascend910B3": (65536, 20)}
SLICED = {"huawei.com/vnpu-mode": "hami-core"}

cards = st.fixed_dictionaries(
    {
        "count": st.sampled_from([1, 2, 4]),
        "network": st.sampled_from([None, 0, 1]),
        "chip": st.sampled_from(CHIPS),
    }
)
nodes = st.lists(st.lists(cards, min_size=1, max_size=5), min_size=1, max_size=3)
containers = st.fixed_dictionaries(
    {
        "chip": st.sampled_from(CHIPS),
        "number": st.sampled_from([None, 1, 1, 2, 3]),
        "memory": st.sampled_from([None, 1, 3072, 6000, 12288, 21527, 32768, 70000]),
        "cores": st.sampled_from([None, None, 3, 10, 50, 100]),
    }
)
pods = st.fixed_dictionaries(
    {"containers": st.lists(containers, min_size=1, max_size=3), "sliced": st.booleans()}
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("gang"), st.lists(pods, min_size=1, max_size=4), st.booleans()),
        st.tuples(st.just("end"), st.integers(0, 30), st.booleans()),
    ),
    min_size=1,
    max_size=7,
)
ways = st.sampled_from(["", "binpack", "spread"])


def conf(policy: str) -> str:
    stated = f"deviceshare.AscendHAMiVNPUEnable: true, deviceshare.SchedulePolicy: '{policy}'"
    plugin = f"{{name: deviceshare, arguments: {{{stated}, deviceshare.ScheduleWeight: 3}}}}"
    return f'actions: "allocate"\ntiers:\n- plugins: [{{name: gang}}, {plugin}]\n'


def node_of(name: str, drawn: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a node that offers and registers the drawn cards."""
    annotations, offered = {"hami-vnpu-core": "true"}, {"cpu": "64", "pods": "110"}
    for chip in CHIPS:
        memory, cores = SIZES[chip]
        listed = [
            {"id": f"{name}-{at}", "count": card["count"], "devmem": memory, "devcore": cores}
            | ({} if card["network"] is None else {"custominfo": {"NetworkID": card["network"]}})
            for at, card in enumerate(drawn)
            if card["chip"] == chip
        ]
        annotations[f"hami.io/node-register-{chip}"] = json.dumps(listed)
        if listed:
            offered[f"huawei.com/{chip}"] = "99"
    meta = {"name": name, "uid": name, "annotations": annotations}
    return {"metadata": meta, "status": {"allocatable": offered}}


def stated(container: dict[str, Any]) -> dict[str, str]:
    name = f"huawei.com/{container['chip']}"
    asked = {"": container["number"], "-memory": container["memory"], "-core": container["cores"]}
    return {f"{name}{suffix}": str(value) for suffix, value in asked.items() if value is not None}


class History:
    """A cluster whose pods get their annotations as the binder writes them."""

    def __init__(self, policy: str, drawn: list[list[dict[str, Any]]]) -> None:
        self.policy = policy
        self.nodes = {f"n{at}": node_of(f"n{at}", found) for at, found in enumerate(drawn)}
        self.bound: dict[str, tuple[str, dict[str, Any], dict[str, str]]] = {}
        self.gangs = 0
        self.cluster = self.fresh()

    def fresh(self) -> Cluster:
        """Return what a scheduler that starts now learns from the objects."""
        cluster = Cluster(conf(self.policy))
        for document in self.nodes.values():
            cluster.put(kinds.NODE, document)
        for name, (node, spec, annotations) in self.bound.items():
            meta = {"annotations": annotations}
            cluster.pod(name, node=node, metadata=meta, **spec)
        return cluster

    def submit(self, drawn: list[dict[str, Any]], *, whole: bool) -> Plan:
        """Place a gang, and write its binds."""
        self.gangs += 1
        group, specs = f"g{self.gangs}", {}
        self.cluster.group(group, min_member=len(drawn) if whole else 1)
        for at, pod in enumerate(drawn):
            resources = [{"limits": stated(c), "requests": stated(c)} for c in pod["containers"]]
            listed = [{"name": f"c{n}", "resources": each} for n, each in enumerate(resources)]
            mode = SLICED if pod["sliced"] else {}
            specs[f"{group}-{at}"] = ({"containers": listed}, mode)
            meta = {"annotations": dict(mode)}
            self.cluster.pod(f"{group}-{at}", group, metadata=meta, containers=listed)
        plan = self.cluster.step()
        for bind in (bind for gang in plan.binds for bind in gang.binds):
            name = bind.pod.partition("/")[2]
            spec, mode = specs[name]
            self.bound[name] = (bind.node, spec, {**mode, **bind.annotations})
        for name in specs.keys() - self.bound.keys():
            self.cluster.delete(kinds.POD, f"ns/{name}", f"uid-ns/{name}")
        self.cluster.delete(kinds.PODGROUP, f"ns/{group}", f"uid-ns/{group}")
        return plan

    def end(self, number: int) -> None:
        """End one of the pods that run."""
        if self.bound:
            name = sorted(self.bound)[number % len(self.bound)]
            del self.bound[name]
            self.cluster.delete(kinds.POD, f"ns/{name}", f"uid-ns/{name}")


def used_by_annotations(history: History) -> dict[str, CardUsage]:
    used: dict[str, CardUsage] = {}
    for _, _, annotations in history.bound.values():
        for share in each(shown_shares(annotations)):
            used[share.uuid] = used.get(share.uuid, CardUsage()).plus(share)
    return used


def used_in(cluster: Cluster) -> dict[str, CardUsage]:
    state = cluster.cluster_state.store(Npus)
    found = [node.usage() for node in state._nodes.values()]
    return {uuid: use for used in found for uuid, use in used.items() if use.slots}


def check(history: History) -> None:
    """No card is given beyond what it has, nor twice to one pod; annotations say the whole."""
    used = used_by_annotations(history)
    for document in history.nodes.values():
        for card in cards_of(msgspec.convert(document, Node)):
            use = used.get(card.uuid, CardUsage())
            assert use.slots <= card.slots
            assert use.memory <= card.memory
            assert use.cores <= 100
    for node, spec, annotations in history.bound.values():
        shares = list(each(shown_shares(annotations)))
        assert len({share.uuid for share in shares}) == len(shares)
        assert all(share.uuid.startswith(f"{node}-") for share in shares)
        registers = history.nodes[node]["metadata"]["annotations"]
        asked = [c["resources"]["limits"] for c in spec["containers"]]
        for chip in CHIPS:
            if registers[f"hami.io/node-register-{chip}"] == "[]":
                continue
            wanted = sum(int(a.get(f"huawei.com/{chip}", 1)) for a in asked if _asks(a, chip))
            assert len([s for s in shares if s.type == chip]) == wanted
    assert used_in(history.cluster) == used == used_in(history.fresh())


def _asks(asked: dict[str, str], chip: str) -> bool:
    return f"huawei.com/{chip}" in asked or f"huawei.com/{chip}-memory" in asked


@needs_hits(at_least=40)
@given(ways, nodes, steps)
@settings(max_examples=120, deadline=None)
def test_no_npu_is_given_beyond_what_it_has_and_a_restart_reads_back_all_that_was_given(
    policy, drawn, course
):
    history, placed = History(policy, drawn), []
    for kind, what, flag in course:
        if kind == "gang":
            plan = history.submit(what, whole=flag)
            sizes = [len(gang.binds) for gang in plan.binds]
            assert sizes in ([], [len(what)]) if flag else True
            placed += sizes
        else:
            history.end(what)
            if flag:
                history.cluster = history.fresh()
        check(history)
    count_hits(placed)
