"""Queries of a mirror on a real nats-server, with the rights of visibility."""

import time
from pathlib import Path

import pytest

from pumice.events import GangAdmitted, GangPlaced, JobPhaseChanged, PodBound
from pumice.events.envelope import encode
from services.visibility.adapters.query_service import QueryService
from services.visibility.interface import Queries
from shared.api import keys
from shared.api import time as times
from shared.api.usage_reports import UsageReportSpec, UsageReportStatus
from shared.api.visibility import ExpectedStart, Explanation, QueueTree
from shared.contracts import codec
from shared.contracts import messages as m
from shared.contracts.messages import Result
from shared.runtime.errors import Rejected, Retryable
from shared.runtime.values import Seconds
from tests.contract.scheduler.scheduler_stage import STREAMS, SUBJECTS, Stage
from tests.contract.visibility.conftest import Instance, pending, question, until_pending
from tests.support import world
from tests.support.wait import until
from tests.unit.visibility.mirrors import job_of_tasks

FOLLOWERS = 4
"""Those of STATE, OUTCOME, WAITING and USAGE."""


async def test_the_first_question_after_a_quiet_time_sees_what_has_just_come(
    stage: Stage, answers: QueryService
):
    await stage.cluster(nodes=1, cpu="4")

    def known() -> bool:
        answers._owner._require_synced()  # asked otherwise, it would read as messages come
        return True

    await until(known, deadline_s=20, describe="the state is folded")
    for number in range(20):
        await stage.fact("queues", f"q{number}", world.queue(f"q{number}"))

    trees = await answers.queue_trees()

    assert {f"q{number}" for number in range(20)} <= {tree.metadata.name for tree in trees}


async def test_while_nobody_asks_nothing_is_read_and_the_next_question_sees_everything(
    stage: Stage, instance: Instance
):
    await stage.cluster(nodes=1, cpu="4")
    async with instance(idle_after=Seconds(1.0)) as answers:
        assert isinstance(answers, QueryService)
        pace = answers._owner.pace
        await until(lambda: pace.paused == FOLLOWERS, deadline_s=30, describe="the pause")
        await stage.gang("big", 1, cpu="9")
        assert pace.paused == FOLLOWERS

        [job] = await answers.pending_jobs()

        assert job.metadata.name == "big"
        assert job.expected_start is not None
        assert not pace.paused


async def test_nothing_is_answered_before_the_state_is_known(stage: Stage, answers: Queries):
    stage.marking = False
    await stage.cluster(nodes=1)

    with pytest.raises(Retryable, match="not synced"):
        await answers.pending_jobs()


async def test_jobs_that_wait_are_told_as_facts_come(stage: Stage, answers: Queries):
    await stage.cluster(nodes=1, cpu="4")
    await stage.gang("big", 1, cpu="9")
    await until_pending(answers, "big")

    await stage.fact("podgroups", "ns/big", None, "uid-ns/big")
    await stage.fact("pods", "ns/big-0", None, "uid-ns/big-0")

    await until_pending(answers)


async def test_a_pod_counts_on_its_node_from_the_outcome_of_its_bind(
    stage: Stage, answers: Queries
):
    await stage.cluster(nodes=1, cpu="4")
    await stage.start()
    await stage.gang("first", 1, cpu="4")
    [command] = await stage.until_commands(1)
    await stage.gang("second", 1, cpu="4")

    await stage.outcome(command, Result.BOUND)

    async def counted() -> bool:
        try:
            [tree] = await answers.queue_trees()
        except Retryable:
            return False
        return _cpu(tree) == "4"

    await until(counted, deadline_s=10, describe=lambda: "the pod is not counted")
    await until_pending(answers, "second")


def _cpu(tree: QueueTree) -> str:
    return next(each.allocated for each in tree.resources if each.resource == "cpu")


async def test_a_what_if_says_where_the_scheduler_then_binds(stage: Stage, answers: Queries):
    await stage.cluster(nodes=2, cpu="4")
    await stage.gang("big", 1, cpu="9")
    await until_pending(answers, "big")

    answer = await answers.what_if("ns", question(job=job_of_tasks("train", worker=(1, "3"))))

    assert answer.starts_now
    assert answer.decided_in_ms > 0
    await stage.start()
    await stage.gang("train", 1, cpu="3")
    [command] = await stage.until_commands(1)
    assert [placed.node for placed in answer.placements] == [b.node for b in command.binds]


async def test_a_job_that_came_after_the_last_survey_is_explained_by_a_new_one(
    stage: Stage, answers: Queries
):
    await stage.cluster(nodes=1, cpu="4")
    await stage.gang("big", 1, cpu="9")
    await until_pending(answers, "big")
    await stage.gang("larger", 1, cpu="10")

    found = await answers.explanation("ns", "larger")

    assert found is not None
    assert [gate.name for gate in found.gates if gate.state == "Failed"] == ["quota"]


async def test_all_who_ask_at_a_time_share_one_survey(stage: Stage, answers: Queries):
    await stage.cluster(nodes=1, cpu="4")
    await stage.gang("big", 1, cpu="9")
    await until_pending(answers, "big")

    assert await answers.queue_trees() is await answers.queue_trees()


async def test_a_what_if_changes_nothing_for_those_who_ask_later(stage: Stage, answers: Queries):
    await stage.cluster(nodes=1, cpu="4")
    await stage.gang("big", 1, cpu="9")
    await until_pending(answers, "big")
    before = await answers.queue_trees()

    answer = await answers.what_if("ns", question(job=job_of_tasks("train", worker=(1, "3"))))

    assert answer.starts_now
    assert await answers.queue_trees() == before
    assert await pending(answers) == ["big"]


async def test_a_question_with_a_fault_names_the_field(stage: Stage, answers: Queries):
    await stage.cluster()
    await until_pending(answers)

    with pytest.raises(Rejected) as refused:
        await answers.what_if("ns", question(drainNodes=["nowhere"]))

    assert refused.value.field == "spec.drainNodes[0]"


async def test_a_report_says_that_accounting_is_absent_and_comes_from_it_later(
    stage: Stage, answers: Queries, tmp_path: Path
):
    await stage.cluster()
    await until_pending(answers)
    spec = UsageReportSpec(report="usage", user="ann")
    with pytest.raises(Retryable, match="add-on accounting, which does not run"):
        await answers.usage_report(spec)
    shares = (await answers.usage_report(UsageReportSpec(report="shares"))).shares
    assert "default" in {row.queue for row in shares}

    await stage.fleet.start("accounting", database=f"sqlite:///{tmp_path}/usage.db")

    async def reported() -> UsageReportStatus | None:
        try:
            return await answers.usage_report(spec)
        except Retryable:
            return None

    found = await until(reported, describe=stage.fleet.logs)
    assert found is not None
    assert (found.user, found.rows) == ("ann", ())
    with pytest.raises(Rejected) as refused:
        await answers.usage_report(UsageReportSpec(report="usage", by=("node",)))
    assert refused.value.field == "spec.by"


async def test_an_explanation_names_gate_and_help(stage: Stage, answers: Queries):
    await stage.cluster(nodes=2, cpu="4")
    await stage.gang("big", 1, cpu="5")
    await until_pending(answers, "big")

    found = await answers.explanation("ns", "big")

    assert found is not None
    assert [gate.name for gate in found.gates if gate.state == "Failed"] == ["predicate"]
    assert "a node with 5 cpu and 1Gi memory" in found.would_help
    assert await answers.explanation("ns", "missing") is None


async def told_by_the_leader(answers: Queries, name: str) -> Explanation:
    """Return an explanation once it is the leader's."""
    last: Explanation | None = None

    async def told() -> bool:
        nonlocal last
        last = await answers.explanation("ns", name)
        return last is not None and last.decided_at is not None

    await until(told, deadline_s=30, describe=lambda: f"the leader's word is not told: {last}")
    assert last is not None
    return last


async def waiting(stage: Stage, name: str) -> m.WaitExplained | None:
    """Return the last word on a gang that is on the bus."""
    message = await stage.bus.last(STREAMS.waiting.name, SUBJECTS.waiting(f"ns/{name}"))
    return codec.decode_waiting(message.payload) if message is not None else None


async def test_an_explanation_is_what_the_leader_has_decided(stage: Stage, answers: Queries):
    await stage.cluster(nodes=2, cpu="4")
    await stage.gang("big", 1, cpu="5")
    await until_pending(answers, "big")
    before = await answers.explanation("ns", "big")
    assert before is not None
    assert before.decided_at is None

    await stage.start()
    found = await told_by_the_leader(answers, "big")

    said = await waiting(stage, "big")
    assert said is not None
    assert found.decided_at == times.format_seconds(said.time)
    [failed] = [gate for gate in found.gates if gate.state == "Failed"]
    assert (failed.name, failed.message) == (said.gate, said.message + said.details)
    [pending] = await answers.pending_jobs()
    assert (pending.gate, pending.decided_at) == (said.gate, found.decided_at)


async def test_a_leader_with_other_rules_is_told_of_with_what_a_session_here_finds(
    stage: Stage, answers: Queries, tmp_path: Path
):
    conf = tmp_path / "scheduler.conf"
    conf.write_text(
        """actions: "enqueue, allocate"
tiers:
- plugins: [{name: gang}, {name: predicates}]
"""
    )
    await stage.cluster(nodes=2, cpu="4")
    queue = {"metadata": {"name": "default", "uid": "uid-default"}, "status": {"state": "Open"}}
    queue["spec"] = {"capability": {"cpu": "2"}}
    await stage.fact("queues", "default", queue)
    await stage.gang("big", 1, cpu="5")
    await stage.start(scheduler_conf=str(conf))
    await until_pending(answers, "big")

    found = await told_by_the_leader(answers, "big")

    said = await waiting(stage, "big")
    assert said is not None
    assert [gate.name for gate in found.gates if gate.state == "Failed"] == ["predicate"]
    assert found.latest is not None
    assert found.latest.gate == "quota"


async def test_the_last_word_on_a_gang_goes_when_it_has_started(stage: Stage, answers: Queries):
    await stage.cluster(nodes=1, cpu="4")
    await stage.gang("big", 1, cpu="5")
    await stage.start()
    await until_pending(answers, "big")
    await told_by_the_leader(answers, "big")

    await stage.fact("nodes", "n1", {**world.node("n1", cpu="8"), "kind": "Node"})
    await stage.until_commands(1)

    async def gone() -> bool:
        said = await waiting(stage, "big")
        return said is None or not said.gate

    await until(gone, deadline_s=30, describe=lambda: "the last word is still there")


async def test_a_new_leader_says_anew_why_gangs_wait(stage: Stage, answers: Queries):
    await stage.cluster(nodes=2, cpu="4")
    await stage.gang("big", 1, cpu="5")
    await stage.start()
    await until_pending(answers, "big")
    await told_by_the_leader(answers, "big")
    first = await waiting(stage, "big")
    assert first is not None

    stage.kill_first()
    await stage.start("b")

    async def again() -> bool:
        said = await waiting(stage, "big")
        return said is not None and said.term > first.term

    await until(again, deadline_s=30, describe=lambda: "the new leader has not said it")


async def test_the_life_of_a_job_that_is_gone_is_told_from_events(stage: Stage, answers: Queries):
    await stage.cluster()
    await until_pending(answers)
    gang = "ns/train-u1"
    events = [
        JobPhaseChanged(job="ns/train", uid="u1", phase="Pending", queue="default"),
        GangAdmitted(gang=gang, uid="g1", queue="default", job="ns/train"),
        GangPlaced(gang=gang, uid="g1", queue="default", job="ns/train", pods=1, nodes=("n0",)),
        PodBound(pod="ns/train-w-0", uid="p1", node="n0", gang=gang, job="ns/train"),
        JobPhaseChanged(job="ns/train", uid="u1", phase="Completed", queue="default"),
        JobPhaseChanged(job="ns/other", uid="u2", phase="Pending", queue="default"),
    ]
    publisher = stage.bus.publisher(STREAMS.events.name)
    for number, event in enumerate(events):
        payload = encode(event, id=str(number), time=1e9 + number, source="test")
        await publisher.publish(SUBJECTS.event(event.topic, event.key), payload)

    found = await answers.timeline("ns", "train")

    assert found is not None
    assert (found.phase, found.queue) == ("Completed", "default")
    told = [entry.what for entry in found.entries]
    assert told == ["Created", "Waits", "Phase", "Admitted", "Placed", "Bound", "Ended"]
    assert found.entries[1].seconds == 1.0
    assert await answers.timeline("ns", "missing") is None


async def expected_start(answers: Queries) -> ExpectedStart:
    """Return when the one job that waits is expected to start, once that is known."""
    last: object = None

    async def expected() -> bool:
        nonlocal last
        try:
            last = [job.expected_start for job in await answers.pending_jobs()]
        except Retryable as error:
            last = str(error)
            return False
        # A busy machine may break the first play off before anything has started in it.
        return len(last) == 1 and last[0] is not None and last[0].median is not None

    await until(expected, deadline_s=60, describe=lambda: str(last))
    assert isinstance(last, list)
    (found,) = last
    return found


async def test_expected_starts_come_from_what_jobs_of_the_same_name_took(
    stage: Stage, answers: Queries
):
    publisher = stage.bus.publisher(STREAMS.events.name)
    for number in range(30):
        event = JobPhaseChanged(
            job=f"ns/train-{number}", uid=f"u{number}", phase="Completed", previous="Running",
            queue="default", template="ns/train", seconds_running=3600.0,
        )  # fmt: skip
        payload = encode(event, id=str(number), time=1e9 + number, source="test")
        await publisher.publish(SUBJECTS.event(event.topic, event.key), payload)
    await stage.cluster(nodes=1, cpu="4")
    await stage.group("train-99", 1, "Running")
    await stage.pod("train-99", 0, cpu="4", node="n0")
    await stage.gang("next", 1, cpu="4")
    begun = time.time()
    found = await expected_start(answers)
    assert found.basis.startswith("history")
    assert 3_000 < times.parse(found.median) - begun < 4_500
    assert found.latest >= found.median
    why = await answers.explanation("ns", "next")
    assert why is not None
    assert why.expected_start is not None


async def test_a_visibility_that_is_started_anew_imagines_the_jobs_to_come_that_the_one_before_did(
    stage: Stage, instance: Instance
):
    publisher = stage.bus.publisher(STREAMS.events.name)
    begun = time.time()
    for number in range(12):
        event = GangAdmitted(
            gang=f"ns/small-{number}", uid=f"s{number}", queue="default", template="ns/small",
            created=times.format_seconds(begun - 1_700.0 * (12 - number)), min_member=1,
            min_resources={"cpu": "2"}, seconds_stated=1_000.0,
        )  # fmt: skip
        payload = encode(event, id=f"s{number}", time=1e9 + number, source="test")
        await publisher.publish(SUBJECTS.event(event.topic, event.key), payload)
    await stage.cluster(nodes=1, cpu="4")
    for name, seconds in (("first", "3600"), ("second", "7200")):
        await stage.group(name, 1, "Running", annotations={keys.EXPECTED_DURATION: seconds})
        await stage.pod(name, 0, cpu="2", node="n0")
    await stage.gang("next", 1, cpu="4")

    waits_s = []
    for _ in range(2):
        async with instance() as answers:
            found = await expected_start(answers)
            waits_s.append(times.parse(found.median) - time.time())

    # Both run out after 7,200 s; a small job that has come by then is in the way, for 1,000 s each.
    assert 7_400.0 < waits_s[0] < 10_000.0
    assert waits_s[1] == pytest.approx(waits_s[0], abs=200.0)
