"""Of waits only those are told that last and that only the cluster can end, once per cause."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pumice.testing import Cluster
from services.scheduler.engine.plan import Explanation, Plan
from services.scheduler.waiting import IncompleteGangs, Waits, cause_of
from shared.contracts.messages import Bind


def world(*, least: int, pods: int, phase: str = "Inqueue", node: str = "4") -> Cluster:
    cluster = Cluster()
    cluster.node("n0", cpu=node)
    cluster.group("g", min_member=least, phase=phase)
    for index in range(pods):
        cluster.pod(f"g-{index}", "g", cpu="1")
    return cluster


class Teller:
    """Decides every tenth of a second and keeps what subscribers would hear."""

    def __init__(self, settle_s: float = 1.0) -> None:
        self.waits = Waits(settle_s)
        self.now = 0.0
        self.told: list[str] = []

    def cycles(self, cluster: Cluster, count: int) -> None:
        for _ in range(count):
            self.now += 0.1
            self.hear(cluster.decide(), cluster)

    def hear(self, plan: Plan, cluster: Cluster) -> None:
        due = self.waits.lasting(plan.explanations, cluster.cluster_state.jobs, now=self.now)
        self.told += [cause_of(wait) for wait in due]


def test_a_healthy_gang_whose_pods_come_one_by_one_is_never_told_of():
    cluster, teller = world(least=4, pods=0), Teller()
    for index in range(4):
        teller.cycles(cluster, 30)
        cluster.pod(f"g-{index}", "g", cpu="1")
    plan = cluster.decide()
    assert len(plan.binds) == 1
    teller.hear(plan, cluster)
    assert teller.told == []


def test_a_gang_that_does_not_fit_is_told_of_once_after_the_time():
    cluster, teller = world(least=6, pods=6), Teller()
    teller.cycles(cluster, 9)
    assert teller.told == []
    teller.cycles(cluster, 100)
    assert len(teller.told) == 1


def test_a_wait_is_told_again_when_its_cause_is_another():
    cluster, teller = world(least=6, pods=6), Teller()
    teller.cycles(cluster, 20)
    cluster.node("n0", cpu="4", unschedulable=True)
    teller.cycles(cluster, 20)
    assert len(teller.told) == len(set(teller.told)) == 2


@given(st.lists(st.integers(1, 5000), min_size=2, max_size=2))
def test_amounts_are_no_part_of_a_cause(free: list[int]):
    causes = {
        cause_of(
            Explanation(
                job="ns/g",
                queue="q",
                gate="enqueue",
                message=f"queue q has {amount}m cpu left of {amount}.5Gi",
            )
        )
        for amount in free
    }
    assert len(causes) == 1


@pytest.mark.parametrize("phase", ["Inqueue", "Pending"])
def test_a_gang_is_being_made_while_pods_come_and_a_while_longer(phase):
    cluster, making = world(least=4, pods=1, phase=phase), IncompleteGangs(10.0)
    jobs = cluster.cluster_state.jobs
    assert making.review(["ns/g"], jobs, now=0.0) == {"ns/g"}
    assert making.review(["ns/g"], jobs, now=9.0) == {"ns/g"}
    cluster.pod("g-1", "g", cpu="1")
    assert making.review(["ns/g"], jobs, now=18.0) == {"ns/g"}
    assert making.review(["ns/g"], jobs, now=28.0) == set()
    cluster.pod("g-2", "g", cpu="1")
    cluster.pod("g-3", "g", cpu="1")
    assert making.review(["ns/g"], jobs, now=29.0) == set()


def test_a_group_that_its_queue_keeps_out_is_not_being_made():
    cluster = world(least=4, pods=0, phase="Pending")
    assert IncompleteGangs(10.0).review(["ns/g"], cluster.cluster_state.jobs, now=0.0) == set()


def test_a_gang_whose_pods_are_being_bound_is_under_way_until_it_stands_still():
    cluster, making = world(least=2, pods=2), IncompleteGangs(10.0)
    state = cluster.cluster_state
    group = state.jobs.get("ns/g")
    assert group is not None
    binds = [Bind(pod=task.key, uid=task.uid, node="n0") for task in group.tasks.values()]
    state.assume("one", binds)
    assert making.review(["ns/g"], state.jobs, now=0.0) == {"ns/g"}
    cluster.pod("g-0", "g", cpu="1", node="n0")
    assert making.review(["ns/g"], state.jobs, now=9.0) == {"ns/g"}
    assert making.review(["ns/g"], state.jobs, now=18.0) == {"ns/g"}
    assert making.review(["ns/g"], state.jobs, now=19.0) == set(), "no pod was bound for 10 s"
    cluster.pod("g-1", "g", cpu="1", node="n0")
    assert making.review(["ns/g"], state.jobs, now=20.0) == set(), "all are bound"
