"""The leader's last word on each gang that waits."""

from pumice.events import GangAdmitted, GangPlaced, GangUnschedulable
from services.visibility.answers.decisions import Decisions


def wait(gang: str, gate: str = "predicate", uid: str = "u") -> GangUnschedulable:
    return GangUnschedulable(
        gang=gang, uid=uid, queue="q", job="", gate=gate, message="", reasons={}, position=1
    )


def test_the_last_word_counts_while_the_gate_is_the_same() -> None:
    decisions = Decisions()
    decisions.hear(wait("ns/a", "enqueue"), 1.0)
    decisions.hear(wait("ns/a", "predicate"), 2.0)

    assert decisions.at("ns/a", "u", "predicate") == 2.0
    assert decisions.at("ns/a", "u", "enqueue") is None


def test_a_word_about_an_earlier_group_of_that_name_does_not_count() -> None:
    decisions = Decisions()
    decisions.hear(wait("ns/a", uid="old"), 1.0)

    assert decisions.at("ns/a", "new", "predicate") is None


def test_a_gang_that_was_admitted_or_placed_waits_no_longer() -> None:
    decisions = Decisions()
    for gang in ("ns/a", "ns/b"):
        decisions.hear(wait(gang), 1.0)

    decisions.hear(GangAdmitted(gang="ns/a", uid="u", queue="q", job=""), 2.0)
    decisions.hear(GangPlaced(gang="ns/b", uid="u", queue="q", job="", pods=1, nodes=("n",)), 2.0)

    assert len(decisions) == 0


def test_only_so_many_gangs_are_remembered_and_the_latest_stay() -> None:
    decisions = Decisions(most=2)
    for number in range(3):
        decisions.hear(wait(f"ns/{number}"), float(number))
    decisions.hear(wait("ns/1"), 9.0)

    assert len(decisions) == 2
    assert decisions.at("ns/0", "u", "predicate") is None
    assert decisions.at("ns/1", "u", "predicate") == 9.0
