"""The last explanation of each gang that waits goes to the bus, on a change, and goes with it."""

import pytest

from pumice.testing import Cluster
from services.scheduler.engine.plan import Explanation, Plan
from services.scheduler.told_waits import ToldWaits
from services.scheduler.wait_explanations import AGAIN_S, FIGURES_S, WaitExplanations
from shared.contracts import messages as m
from shared.contracts.streams import WAITING_TTL_S


def why(job: str = "ns/a", gate: str = "predicate", message: str = "no", **more) -> Explanation:
    return Explanation(
        job=job, job_uid=more.pop("uid", "u"), queue="q", gate=gate, message=message, **more
    )


class Leader:
    """Tells of cycles a tenth of a second apart what they found."""

    def __init__(self, settle_s: float = 1.0) -> None:
        self.explanations = WaitExplanations(settle_s)
        self.jobs = Cluster().cluster_state.jobs
        self.now = 0.0
        self.cycle = 0

    def after(self, seconds: float, *found: Explanation) -> list[m.WaitExplained]:
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
    (again,) = leader.after(AGAIN_S, why())
    assert again == first
    assert AGAIN_S < WAITING_TTL_S


def test_a_parked_gang_keeps_its_explanation_until_it_is_looked_at_again():
    leader = Leader()
    (first,) = leader.after(2, why())
    leader.explanations.park("ns/a")
    assert leader.after(5) == []
    assert leader.after(AGAIN_S) == [first]
    leader.explanations.resume(["ns/a"])
    (told,) = leader.after(1)
    assert told.gate == ""


def test_figures_of_a_gang_that_is_parked_meanwhile_are_told_all_the_same():
    leader = Leader()
    leader.after(2, why())
    leader.after(0.1, why(details=" (needs 3)"))
    leader.explanations.park("ns/a")
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
    told = ToldWaits(1.0, explains=False)
    plan, jobs = Plan(cycle=1, explanations=(why(),)), Cluster().cluster_state.jobs
    assert [told.review(plan, jobs, (), now=float(now), term=1)[1] for now in range(9)] == [[]] * 9


def test_a_gang_that_waits_for_its_owner_is_told_of_later():
    cluster = Cluster()
    cluster.node("n0", cpu="4")
    cluster.group("g", min_member=2, phase="Inqueue")
    cluster.pod("g-0", "g", cpu="1")
    told = ToldWaits(1.0)
    found: list[tuple[float, m.WaitExplained]] = []
    for step in range(150):
        now = step / 10
        plan: Plan = cluster.decide()
        _, changes = told.review(plan, cluster.cluster_state.jobs, (), now=now, term=1)
        found += ((now, change) for change in changes)
    ((at, change),) = found
    assert at >= 10.0
    assert (change.gang, change.gate) == ("ns/g", "gang")
