"""Of waits only those are told that last and that only the cluster can end, once per cause."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pumice.testing import Cluster
from services.scheduler.engine.plan import JobExplanation, Plan
from services.scheduler.status_writer import IncompleteGangs
from services.scheduler.waiting import (
    FIGURES_S,
    REPUBLISH_S,
    WaitExplanations,
    WaitReports,
    Waits,
    cause_of,
)
from shared.contracts import messages as m
from shared.contracts.messages import Bind
from shared.contracts.streams import WAITING_TTL_S


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
            JobExplanation(
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


def why(job: str = "ns/a", gate: str = "predicate", message: str = "no", **more) -> JobExplanation:
    return JobExplanation(
        job=job, job_uid=more.pop("uid", "u"), queue="q", gate=gate, message=message, **more
    )


class Leader:
    """Tells of cycles a tenth of a second apart what they found."""

    def __init__(self, settle_s: float = 1.0) -> None:
        self.explanations = WaitExplanations(settle_s)
        self.jobs = Cluster().cluster_state.jobs
        self.now = 0.0
        self.cycle = 0

    def after(self, seconds: float, *found: JobExplanation) -> list[m.WaitExplained]:
        told = []
        for _ in range(round(10 * seconds)):
            self.now += 0.1
            self.cycle += 1
            told += self.explanations.changes(
                found, self.jobs, now=self.now, cycle=self.cycle, term=7
            )
        return told


def test_a_wait_is_told_once_it_has_stood_for_a_while_and_then_no_more():
    leader = Leader()
    assert leader.after(0.9, why()) == []
    (told,) = leader.after(60, why())
    assert (told.gang, told.uid, told.gate, told.message, told.term) == (
        "ns/a", "u", "predicate", "no", 7,
    )  # fmt: skip
    assert told.time == pytest.approx(0.1)
    assert told.cycle == 1


def test_another_gate_is_told_as_soon_as_it_stands_and_figures_alone_seldom():
    leader = Leader()
    assert len(leader.after(2, why())) == 1
    (told,) = leader.after(2, why(gate="queue"))
    assert told.gate == "queue"

    figures = [
        each
        for step in range(300)
        for each in leader.after(0.1, why(gate="queue", details=f" (needs {step})"))
    ]

    assert len(figures) == 30 / FIGURES_S
    assert len(leader.after(FIGURES_S + 1, why(gate="queue", details=" (needs 299)"))) == 1


def test_what_is_free_at_the_moment_is_told_with_the_next_message_only():
    leader = Leader()
    leader.after(2, why(details=" (needs 4, 3 free)"))
    assert leader.after(60, why(details=" (needs 4, 2 free)")) == []
    (told,) = leader.after(FIGURES_S, why(details=" (needs 5, 2 free)"))
    assert told.details == " (needs 5, 2 free)"


def test_an_explanation_that_is_again_as_it_was_told_before_is_the_last_word():
    leader = Leader()
    leader.after(2, why())
    leader.after(0.5, why(gate="queue"))
    told = leader.after(20, why())
    assert {each.gate for each in told} <= {"predicate"}


def test_that_a_gang_waits_no_longer_is_told_if_its_wait_was():
    leader = Leader()
    leader.after(2, why())
    (told,) = leader.after(5)
    assert (told.gang, told.gate) == ("ns/a", "")
    leader.after(0.5, why("ns/b"))
    assert leader.after(5) == []


def test_a_gang_of_the_same_name_is_another_one():
    leader = Leader()
    leader.after(2, why())
    told = leader.after(2, why(uid="other"))
    assert [each.uid for each in told if each.gate] == ["other"]


def test_what_stands_is_told_again_before_it_expires_as_it_was_decided():
    leader = Leader()
    (first,) = leader.after(2, why())
    (again,) = leader.after(REPUBLISH_S, why())
    assert again == first
    assert REPUBLISH_S < WAITING_TTL_S


def test_an_unschedulable_gang_keeps_its_explanation_until_it_is_looked_at_again():
    leader = Leader()
    (first,) = leader.after(2, why())
    leader.explanations.suspend("ns/a")
    assert leader.after(5) == []
    assert leader.after(REPUBLISH_S) == [first]
    leader.explanations.resume(["ns/a"])
    (told,) = leader.after(1)
    assert told.gate == ""


def test_figures_of_a_gang_that_is_unschedulable_meanwhile_are_told_all_the_same():
    leader = Leader()
    leader.after(2, why())
    leader.after(0.1, why(details=" (needs 3)"))
    leader.explanations.suspend("ns/a")
    (told,) = leader.after(FIGURES_S)
    assert told.details == " (needs 3)"


def test_a_new_leader_tells_everything_anew():
    leader = Leader()
    leader.after(2, why())
    leader.explanations.forget()
    assert len(leader.after(2, why())) == 1


def test_many_waits_that_stand_cost_no_message():
    leader = Leader()
    found = [why(f"ns/{number}", position=number) for number in range(500)]
    assert len(leader.after(2, *found)) == 500
    assert leader.after(10, *found) == []


def test_nothing_is_explained_where_pods_wait_without_groups():
    told = WaitReports(1.0, explains=False)
    plan, jobs = Plan(cycle=1, explanations=(why(),)), Cluster().cluster_state.jobs
    assert [told.review(plan, jobs, (), now=float(now), term=1)[1] for now in range(9)] == [[]] * 9


def test_a_gang_that_waits_for_its_owner_is_told_of_later():
    cluster = Cluster()
    cluster.node("n0", cpu="4")
    cluster.group("g", min_member=2, phase="Inqueue")
    cluster.pod("g-0", "g", cpu="1")
    told = WaitReports(1.0)
    found: list[tuple[float, m.WaitExplained]] = []
    for step in range(150):
        now = step / 10
        plan: Plan = cluster.decide()
        _, changes = told.review(plan, cluster.cluster_state.jobs, (), now=now, term=1)
        found += ((now, change) for change in changes)
    ((at, change),) = found
    assert at >= 10.0
    assert (change.gang, change.gate) == ("ns/g", "gang")
