"""The leader's last word on each gang that waits, and what is told of it beside a session here."""

from services.scheduler.engine.jobs.records import Job
from services.visibility.answers.decisions import Decided, Decisions, as_decided
from services.visibility.answers.explaining import explain, subject_of
from services.visibility.answers.survey import survey
from shared.api.visibility import Explanation, ResourceShortage
from shared.contracts.messages import Short, WaitExplained
from shared.contracts.streams import WAITING_TTL_S
from tests.support.replicas import World
from tests.unit.visibility.test_explaining_a_job import policy

GANG = "ns/job"
NOW = 1e9


def said(gang: str = GANG, gate: str = "predicate", uid: str = "", **more: object) -> WaitExplained:
    return WaitExplained(gang=gang, uid=uid, term=1, cycle=1, time=NOW - 5, gate=gate, **more)


class Heard:
    """Decisions about one job that waits."""

    def __init__(self, most: int = 10) -> None:
        self.now = 0.0
        self.world = World().queue("default").node("n1", cpu="2").node("n2", cpu="2")
        self.world.gang("job", pods=1, cpu="3")
        self.job: Job = self.world.replica.state.jobs.get(GANG)
        self.decisions = Decisions(lambda: self.now, most)

    def hear(self, gate: str = "predicate", **more: object) -> None:
        self.decisions.hear(said(gate=gate, uid=more.pop("uid", self.job.uid), **more))

    @property
    def decided(self) -> Decided | None:
        return self.decisions.of(self.job)

    def explain(self) -> Explanation:
        rules = policy()
        found = survey(self.world.replica.state, rules, now=NOW)
        subject = subject_of(self.world.replica, "ns", "job")
        why = found.explanations.get(GANG)
        return explain(
            self.world.replica, rules, subject, why,
            now=NOW, decided=self.decided, found_at=found.at,
        )  # fmt: skip


def failed(found: Explanation) -> tuple[str, str]:
    return next(((g.name, g.message) for g in found.gates if g.state == "Failed"), ("", ""))


def test_the_last_word_counts() -> None:
    heard = Heard()
    heard.hear("enqueue")
    heard.hear("predicate")

    assert heard.decided.why.gate == "predicate"
    assert heard.decided.at == NOW - 5


def test_a_word_about_an_earlier_group_of_that_name_does_not_count() -> None:
    heard = Heard()
    heard.hear(uid="old")

    assert heard.decided is None


def test_a_gang_of_which_the_leader_says_that_it_waits_no_longer_is_forgotten() -> None:
    heard = Heard()
    heard.hear()
    heard.hear("")

    assert heard.decided is None
    assert len(heard.decisions) == 0


def test_a_gang_that_has_started_waits_for_nothing_whatever_was_said() -> None:
    heard = Heard()
    heard.hear()
    heard.world.pod("job-0", "job", cpu="3", node="n1", phase="Running")

    assert heard.decided is None


def test_a_word_that_is_not_said_again_is_one_of_a_leader_that_is_gone() -> None:
    heard = Heard()
    heard.hear()
    heard.now = WAITING_TTL_S
    assert heard.decided is not None
    heard.now += 1

    assert heard.decided is None


def test_only_so_many_gangs_are_remembered_and_the_latest_stay() -> None:
    heard = Heard(most=2)
    heard.hear()
    heard.decisions.hear(said("ns/other"))
    heard.hear()
    heard.decisions.hear(said("ns/third"))

    assert len(heard.decisions) == 2
    assert heard.decided is not None


def test_gate_texts_and_amounts_of_an_answer_are_the_leaders() -> None:
    heard = Heard()
    lack = (Short(resource="cpu", requested=3000, largest_free=1500),)
    heard.hear(
        message="0/7 nodes", details=" (1500m free)", nodes=7, reasons={"no": 7}, shortages=lack
    )

    found = heard.explain()

    assert failed(found) == ("predicate", "0/7 nodes (1500m free)")
    assert (found.nodes, [(r.reason, r.nodes) for r in found.reasons]) == (7, [("no", 7)])
    assert found.shortages == (ResourceShortage(resource="cpu", requested="3", free="1500m"),)
    assert found.decided_at == "2001-09-09T01:46:35Z"
    assert found.latest is None
    assert "a node with 3 cpu" in found.would_help


def test_an_answer_tells_of_another_gate_that_a_session_has_found_since() -> None:
    heard = Heard()
    heard.hear("enqueue", message="the queue is full")

    found = heard.explain()

    assert failed(found) == ("enqueue", "the queue is full")
    assert (found.latest.gate, found.latest.at) == ("predicate", "2001-09-09T01:46:40Z")
    assert "Insufficient cpu" in found.latest.message
    assert "a node with 3 cpu" in found.would_help


def test_an_answer_tells_that_nothing_stops_a_job_since() -> None:
    heard = Heard()
    heard.hear(message="0/1 nodes")
    heard.world.node("n3", cpu="4")

    found = heard.explain()

    assert failed(found) == ("predicate", "0/1 nodes")
    assert (found.latest.gate, found.latest.message) == ("", "")
    assert found.would_help == ()


def test_a_session_of_before_the_decision_says_nothing_against_it() -> None:
    heard = Heard()
    heard.hear("enqueue")
    later = heard.decided._replace(at=NOW + 1)
    subject = subject_of(heard.world.replica, "ns", "job")
    why = survey(heard.world.replica.state, policy(), now=NOW).explanations.get(GANG)

    found = explain(
        heard.world.replica, policy(), subject, why, now=NOW, decided=later, found_at=NOW
    )

    assert found.latest is None


def test_a_job_in_line_has_the_leaders_words_and_the_latest_place() -> None:
    heard = Heard()
    heard.hear("queue", message="over quota", details=" (place 9 in queue default)", position=9)
    (waits,) = survey(heard.world.replica.state, policy(), now=NOW).pending

    told = as_decided(waits, heard.decided)

    assert (told.gate, told.message) == ("queue", "over quota (place 9 in queue default)")
    assert told.position == waits.position == 1
    assert told.decided_at == "2001-09-09T01:46:35Z"
    assert waits.decided_at is None
