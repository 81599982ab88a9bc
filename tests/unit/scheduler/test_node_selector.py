"""`--node-selector`: a scheduler works with the nodes that have one of some labels (K11)."""

import pytest

from pumice.testing import Cluster, binds_of
from services.scheduler.adapters.conf_file import node_labels
from services.scheduler.engine.state.cluster_state import ClusterState
from services.scheduler.policy.catalog import STATES
from shared.runtime.errors import Rejected

LABELS = [("role", "train"), ("role", "serving")]


def world() -> Cluster:
    found = Cluster(queue=False)
    found.cluster_state = ClusterState(("volcano",), STATES, LABELS)
    return found.queue("default")


def test_only_nodes_with_one_of_the_labels_take_pods_k11():
    cluster = world().node("n1").node("n2", labels={"role": "else"})
    cluster.node("n3", labels={"role": "serving"}).gang("g", tasks=2)
    assert set(binds_of(cluster.step()).values()) == {"n3"}


def test_a_node_takes_pods_from_when_it_has_a_label_until_it_has_none_k11():
    cluster = world().node("n1").gang("g", tasks=1)
    assert binds_of(cluster.step()) == {}
    assert binds_of(cluster.node("n1", labels={"role": "train"}).step()) == {"g-0": "n1"}
    assert binds_of(cluster.node("n1").gang("h", tasks=1).step()) == {}


def test_what_is_on_other_nodes_is_no_part_of_the_cluster_k11():
    cluster = world().node("n1", cpu="8").node("n2", cpu="4", labels={"role": "train"})
    session = cluster.session()
    try:
        assert session.total[session.resource("cpu")] == 4000
    finally:
        session.close()


@pytest.mark.parametrize("text", ["role", "role:", ":train", ""])
def test_a_selector_that_is_no_label_is_refused_with_its_flag(text: str):
    with pytest.raises(Rejected, match=r"--node-selector: .* is not of the form name:value"):
        node_labels([text])


def test_selectors_are_labels_as_upstream_writes_them():
    assert node_labels(["role:train", " a.b/c : d "]) == (("role", "train"), ("a.b/c", "d"))
