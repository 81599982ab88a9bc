"""`pumice.testing`: what an author sees of a plugin that works, and of one that fails."""

import pytest

from pumice.plugins import Reason
from pumice.testing import Cluster, binds_of

CONF = """
actions: "allocate"
tiers:
- plugins: [{name: gang}, {name: predicates}, {name: picky, arguments: {fails: FAILS}}]
"""


class Picky:
    """Keeps off node n1, or fails."""

    name = "picky"

    def __init__(self, arguments):
        self.fails = arguments["fails"]

    def contribute(self, hooks, cluster):
        def judge(_, rows):
            if self.fails:
                raise KeyError("zone")
            return (rows.label("zone") == "a").astype("uint8")

        hooks.predicate(judge, reasons=[Reason("is in zone a")])


def cluster(*, fails: bool) -> Cluster:
    world = Cluster(CONF.replace("FAILS", str(fails).lower()), plugins=[Picky])
    return world.node("n1", labels={"zone": "a"}).node("n2", labels={"zone": "b"})


def test_a_plugin_takes_part_in_the_cycles_of_a_cluster_in_memory():
    world = cluster(fails=False).gang("g", tasks=2)
    assert binds_of(world.step()) == {"g-0": "n2", "g-1": "n2"}
    assert binds_of(world.step()) == {}


def test_a_cycle_in_which_the_plugin_fails_fails_the_test_and_says_why():
    with pytest.raises(AssertionError, match=r"picky.*predicate.*KeyError: 'zone'"):
        cluster(fails=True).gang("g", tasks=1).step()


def test_metadata_that_is_given_for_a_pod_stays_as_it_was():
    metadata = {"labels": {"a": "b"}, "annotations": {"c": "d"}}
    world = cluster(fails=False)
    world.pod("p", metadata=metadata).pod("q", metadata=metadata)
    assert metadata == {"labels": {"a": "b"}, "annotations": {"c": "d"}}
