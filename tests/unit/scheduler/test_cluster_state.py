"""Facts fold into the right usage whatever their order; assumptions live until the facts speak."""

import itertools

import pytest

from pumice.testing import Cluster
from services.scheduler.engine.state.cluster_state import BadFact
from shared.api import kinds
from shared.contracts.messages import Bind, Result, Victim
from shared.model.status import TaskStatus


def used_cpu(world: Cluster, node: str) -> int:
    column = world.cluster_state.nodes.column(node)
    return int(world.cluster_state.nodes.ledger.used[0, column])


def waiting_world() -> Cluster:
    return Cluster().node("n1", cpu="4").gang("g", tasks=1, cpu="3")


def test_usage_is_the_same_in_any_order_of_facts():
    def node(world):
        world.node("n1", cpu="8")

    def first(world):
        world.pod("a", cpu="1", node="n1")

    def second(world):
        world.pod("b", cpu="2", node="n1", scheduler="other")

    for order in itertools.permutations([node, first, second, first]):
        world = Cluster()
        for fact in order:
            fact(world)
        assert used_cpu(world, "n1") == 3000, order
        assert world.cluster_state.audit() == []


def test_a_pod_of_another_scheduler_occupies_its_node_but_is_never_placed():
    world = Cluster().node("n1").pod("a", cpu="1", scheduler="other")
    assert world.decide().binds == ()
    assert used_cpu(world, "n1") == 0
    world.pod("a", cpu="1", scheduler="other", node="n1")
    assert used_cpu(world, "n1") == 1000


def test_a_finished_pod_holds_nothing():
    world = Cluster().node("n1").pod("a", "g", cpu="1", node="n1")
    world.pod("a", "g", cpu="1", node="n1", phase="Succeeded")
    assert used_cpu(world, "n1") == 0


def test_pods_of_a_removed_node_count_again_when_it_returns():
    world = Cluster().node("n1").pod("a", cpu="1", node="n1").delete(kinds.NODE, "n1")
    world.node("n2").node("n1")
    assert (used_cpu(world, "n1"), used_cpu(world, "n2")) == (1000, 0)
    assert world.cluster_state.audit() == []


def test_the_deletion_of_a_later_pod_of_that_name_leaves_nothing_of_that_name():
    """Facts in between were skipped: the last one of a name counts."""
    world = Cluster().node("n1").pod("a", cpu="1", node="n1", uid="first")
    world.delete(kinds.POD, "ns/a", uid="second")
    assert used_cpu(world, "n1") == 0
    assert world.cluster_state.pod("ns/a") is None


@pytest.mark.parametrize("uid", ["uid-ns/g", "another"])
def test_the_deletion_of_a_group_leaves_no_group_of_that_name(uid):
    world = Cluster().queue("default").group("g", minimum=1)
    world.delete(kinds.PODGROUP, "ns/g", uid=uid)
    assert world.cluster_state.jobs.get("ns/g") is None


def test_another_uid_under_the_same_name_is_another_pod():
    world = Cluster().node("n1").pod("a", "g", cpu="1", node="n1", uid="old")
    world.pod("a", "g", cpu="2", uid="new")
    assert used_cpu(world, "n1") == 0
    assert [task.uid for task in world.cluster_state.tasks()] == ["new"]


def test_a_published_bind_counts_at_once():
    world = waiting_world()
    world.step()
    assert used_cpu(world, "n1") == 3000
    assert world.job("g").by_status[TaskStatus.BINDING]


@pytest.mark.parametrize("result", [Result.CONFLICT, Result.GONE, Result.FAILED])
def test_an_outcome_that_says_no_ends_the_assumption(result):
    world = waiting_world()
    world.step()
    world.cluster_state.outcome("1-0", [("uid-ns/g-0", result)])
    assert used_cpu(world, "n1") == 0
    assert world.cluster_state.assumed == 0


def test_bound_alone_does_not_end_an_assumption():
    world = waiting_world()
    world.step()
    world.cluster_state.outcome("1-0", [("uid-ns/g-0", Result.BOUND)])
    assert used_cpu(world, "n1") == 3000


def test_the_outcome_of_another_intent_does_not_end_an_assumption():
    world = waiting_world()
    world.step()
    world.cluster_state.outcome("0-7", [("uid-ns/g-0", Result.FAILED)])
    assert used_cpu(world, "n1") == 3000


def test_a_stale_fact_without_a_node_does_not_end_an_assumption():
    world = waiting_world()
    world.step()
    world.pod("g-0", "g", cpu="3")
    assert used_cpu(world, "n1") == 3000


def test_the_fact_that_shows_the_bind_ends_the_assumption_wherever_it_was_bound():
    world = waiting_world().node("n2", cpu="4")
    world.step()
    world.pod("g-0", "g", cpu="3", node="n2")
    assert (used_cpu(world, "n1"), used_cpu(world, "n2")) == (0, 3000)
    assert world.cluster_state.assumed == 0


def test_nothing_is_assumed_of_a_pod_that_is_seen_bound() -> None:
    """As after a restart, when outcomes of pods that run for long are read again."""
    world = Cluster().node("n1", cpu="4").node("n2", cpu="4").pod("a", "g", cpu="3", node="n2")
    world.cluster_state.assume("1-0", [Bind(pod="ns/a", uid="uid-ns/a", node="n1")])
    assert (used_cpu(world, "n1"), used_cpu(world, "n2")) == (0, 3000)
    assert world.cluster_state.assumed == 0


def test_assumptions_may_come_before_the_pods_they_are_about():
    world = Cluster().node("n1", cpu="4")
    world.cluster_state.assume("7-1", [Bind(pod="ns/g-0", uid="uid-ns/g-0", node="n1")])
    assert used_cpu(world, "n1") == 0
    world.gang("g", tasks=1, cpu="3")
    assert used_cpu(world, "n1") == 3000
    assert world.decide().binds == ()


def test_a_victim_is_leaving_until_it_is_gone():
    world = Cluster().node("n1").pod("a", "g", cpu="1", node="n1")
    world.cluster_state.assume_evictions("1-0", [Victim(pod="ns/a", uid="uid-ns/a")])
    world.pod("a", "g", cpu="1", node="n1")
    assert world.job("g").by_status[TaskStatus.RELEASING]
    world.cluster_state.outcome("1-0", [("uid-ns/a", Result.SPARED)])
    assert world.job("g").by_status[TaskStatus.RUNNING]


def test_an_impossible_amount_is_refused_with_the_name_and_counts_as_absent():
    world = Cluster().node("n1").pod("a", cpu="1", node="n1")
    with pytest.raises(BadFact, match=r"pods ns/a .*'lots' is no quantity"):
        world.pod("a", cpu="lots", node="n1")
    assert used_cpu(world, "n1") == 0


def test_a_new_resource_widens_everything_that_is_kept():
    world = Cluster().node("n1").gang("g", tasks=1, cpu="1")
    world.decide()
    names = {f"vendor.com/r{number}": "4" for number in range(30)}
    world.node("n2", **{name.replace("/", "__"): text for name, text in names.items()})
    world.pod("h", "h", requests=names).group("h")
    assert {bind.pod for gang in world.decide().binds for bind in gang.binds} == {"ns/g-0", "ns/h"}
    assert world.cluster_state.audit() == []


def test_a_phase_that_was_wanted_holds_until_the_object_shows_it():
    world = Cluster().node("n1").group("g", phase="Pending", minResources={"cpu": "1"})
    world.step()
    assert world.job("g").phase == "Inqueue"
    world.group("g", phase="Pending", minResources={"cpu": "1"})
    assert world.job("g").phase == "Inqueue"
    assert world.decide().podgroups == ()


def test_a_group_that_was_made_again_starts_anew():
    world = Cluster().node("n1").group("g", phase="Pending")
    world.step()
    world.group("g", phase="", uid="another")
    assert world.job("g").is_pending


def test_a_pod_joins_no_gang_of_another_namespace():
    world = Cluster().node("n1", cpu="4").gang("g", tasks=1, cpu="1")
    world.pod("joins", "g", cpu="1", metadata={"namespace": "tenant"})
    assert [task.name for task in world.job("g").tasks.values()] == ["g-0"]
