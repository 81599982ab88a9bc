"""Laws of chips that MindCluster cuts, on drawn histories (DV3): none is cut beyond what it has."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pumice.testing import Cluster
from services.scheduler.policy.vendors.cards import CardUsage, each
from services.scheduler.policy.vendors.mind_chips import CORES, shown_chips
from services.scheduler.policy.vendors.mindcluster import MindclusterNpus
from shared.api import kinds
from tests.support.laws import LISTENING, count_hits, needs_hits

PLUGIN = "{name: deviceshare, arguments: {deviceshare.AscendMindClusterVNPUEnable: true}}"
CONF = f'actions: "allocate"\ntiers:\n- plugins: [{{name: gang}}, {PLUGIN}]\n'
NPUS = {"accelerator": "huawei-Ascend310P", "servertype": "Ascend310P-8"}

pods = st.fixed_dictionaries(
    {
        "cores": st.sampled_from([1, 1, 2, 2, 4, 8, 16, 3]),
        "vnpu-level": st.sampled_from(["low", "high"]),
        "vnpu-dvpp": st.sampled_from(["null", "yes", "no"]),
    }
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("gang"), st.lists(pods, min_size=1, max_size=4), st.booleans()),
        st.tuples(st.just("end"), st.integers(0, 30), st.booleans()),
        st.tuples(st.just("made"), st.integers(0, 30), st.booleans()),
    ),
    min_size=2,
    max_size=9,
)


@pytest.fixture(autouse=True)
def listening(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have clusters of these tests listen to MindCluster."""
    monkeypatch.setattr("pumice.testing.STATES", LISTENING)


class History:
    """Nodes with chips, and pods whose annotations are as binder and device plugin write them."""

    def __init__(self, chips: list[int]) -> None:
        self.chips = chips
        self.bound: dict[str, tuple[str, dict[str, Any], dict[str, str]]] = {}
        self.gangs = 0
        self.cluster = self.fresh()

    def fresh(self) -> Cluster:
        """Return what a scheduler that starts now learns from the objects."""
        cluster = Cluster(CONF)
        for at, count in enumerate(self.chips):
            listed = ",".join(f"Ascend310P-{chip}" for chip in range(count))
            has = {"cpu": "64", "pods": "110", CORES: str(8 * count)}
            labels = NPUS | {"node.kubernetes.io/npu.chip.name": "310P3"}
            told = {"huawei.com/Ascend310P": listed}
            meta = {"name": f"n{at}", "uid": f"n{at}", "annotations": told, "labels": labels}
            status = {"allocatable": has, "capacity": has}
            cluster.put(kinds.NODE, {"metadata": meta, "status": status})
        for name in self.bound:
            self.show(cluster, name)
        return cluster

    def show(self, cluster: Cluster, name: str) -> None:
        """Tell a cluster what the object of a bound pod says."""
        node, pod, annotations = self.bound[name]
        add(cluster, name, "", pod, node=node, annotations=annotations)

    def submit(self, drawn: list[dict[str, Any]], *, whole: bool) -> list[str]:
        """Place a gang, and write its binds; return who is placed."""
        self.gangs += 1
        group = f"g{self.gangs}"
        named = {f"{group}-{at}": pod for at, pod in enumerate(drawn)}
        self.cluster.group(group, min_member=len(drawn) if whole else 1)
        for name, pod in named.items():
            add(self.cluster, name, group, pod)
        placed = [bind for gang in self.cluster.step().binds for bind in gang.binds]
        for bind in placed:
            name = bind.pod.partition("/")[2]
            self.bound[name] = (bind.node, named[name], dict(bind.annotations))
            self.show(self.cluster, name)
        for name in named.keys() - self.bound.keys():
            self.cluster.delete(kinds.POD, f"ns/{name}", f"uid-ns/{name}")
        return [bind.pod for bind in placed]

    def change(self, kind: str, number: int) -> None:
        """End a pod, or have the device plugin make its part."""
        if not self.bound:
            return
        name = sorted(self.bound)[number % len(self.bound)]
        if kind == "made":
            self.bound[name][2]["huawei.com/AscendReal"] = f"Ascend310P-1c-100-0_{number % 4}"
            self.show(self.cluster, name)
        else:
            del self.bound[name]
            self.cluster.delete(kinds.POD, f"ns/{name}", f"uid-ns/{name}")


def add(cluster: Cluster, name: str, group: str, pod: dict[str, Any], **more: Any) -> None:
    """Put a pod."""
    labels = {key: value for key, value in pod.items() if key != "cores"}
    labels["ring-controller.atlas"] = "ascend-310P"
    meta = {"labels": labels, "annotations": more.pop("annotations", {})}
    stated = {CORES: str(pod["cores"])}
    containers = [{"name": "c", "resources": {"limits": stated, "requests": stated}}]
    cluster.pod(name, group, metadata=meta, containers=containers, **more)


def check(history: History) -> None:
    """Every chip bears what it has given, and a restart finds all of it in annotations."""
    used: dict[tuple[str, str], CardUsage] = {}
    for node, pod, annotations in history.bound.values():
        shares = list(each(shown_chips(annotations)))
        assert sum(share.cores or 8 for share in shares) == pod["cores"]
        for share in shares:
            at = (node, share.uuid)
            used[at] = used.get(at, CardUsage()).plus(share)
    for use in used.values():
        assert use.cores <= 8
        assert use.memory <= 7
        assert use.slots == 1 or "" not in use.types
    for cluster in (history.cluster, history.fresh()):
        nodes = cluster.cluster_state.store(MindclusterNpus)._nodes
        found = {(n, c): u for n, of in nodes.items() for c, u in of.usage().items() if u.slots}
        assert {at: (u.slots, u.types) for at, u in found.items()} == {
            at: (u.slots, u.types) for at, u in used.items()
        }


@needs_hits(at_least=20)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=2), steps)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_no_chip_is_cut_beyond_what_it_has_and_a_restart_reads_back_all_that_was_given(
    chips, course
):
    history, placed = History(chips), []
    for kind, what, flag in course:
        if kind == "gang":
            found = history.submit(what, whole=flag)
            assert not flag or len(found) in {0, len(what)}
            placed += found
        else:
            history.change(kind, what)
            if flag:
                history.cluster = history.fresh()
        check(history)
    count_hits(placed)
