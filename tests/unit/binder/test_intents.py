"""What an answer of the API server means for an intent (CA05 to CA08, D03, SS11)."""

import json

import msgspec
import pytest

from services.binder.adapters.cluster import failed_response, snapshot_of
from services.binder.adapters.commands import failed_outcome
from services.binder.adapters.throttle import ConcurrencyLimiter, LimiterSettings
from services.binder.intents import bind as bind_steps
from services.binder.intents import evict as evict_steps
from services.binder.intents.evict import Delete, Nomination, PatchConditions
from services.binder.intents.steps import (
    MESSAGE_MAX,
    ApiResponse,
    Get,
    IntentProgress,
    PodSnapshot,
    ResponseKind,
    RetryDelays,
    Wait,
    ended,
)
from shared.contracts.messages import (
    Bind,
    Evict,
    ItemOutcome,
    Preemptor,
    Result,
    Retry,
    Victim,
)
from shared.kube.errors import Denied, Status
from tests.support.world import bind_of

WANTED = Bind(pod="ns/p", uid="u1", node="n1")
VICTIM = Victim(pod="ns/v", uid="u2", job="ns/j", node="n2")
DELAYS = RetryDelays(first_s=1, factor=2, cap_s=5, attempts=3)


def said(answer: str, **kwargs) -> ApiResponse:
    return ApiResponse(kind=ResponseKind(answer), **kwargs)


def shown(**kwargs) -> ApiResponse:
    return said("done", snapshot=PodSnapshot(**{"uid": "u1", "rv": "7", **kwargs}))


@pytest.mark.parametrize(
    ("reply", "attempt", "result", "retry"),
    [
        (said("done"), 1, Result.BOUND, None),
        (said("gone"), 1, Result.GONE, None),
        (said("refused"), 1, Result.FAILED, Retry.NEVER),
    ],
    ids=lambda value: value.kind.value if isinstance(value, ApiResponse) else None,
)
def test_a_clear_answer_to_a_bind_ends_it(reply, attempt, result, retry) -> None:
    outcome = bind_steps.after_post(WANTED, reply, attempt=attempt, delays=DELAYS)
    assert (outcome.result, outcome.retry) == (result, retry)
    assert (outcome.pod, outcome.uid) == ("ns/p", "u1")


def test_a_conflict_is_resolved_by_a_look() -> None:
    assert bind_steps.after_post(WANTED, said("conflict"), attempt=1, delays=DELAYS) == Get()


@pytest.mark.parametrize(
    ("seen", "result", "node", "retry"),
    [
        (shown(node="n1"), Result.BOUND, "n1", None),
        (shown(node="n9"), Result.CONFLICT, "n9", None),
        (shown(uid="other", node="n1"), Result.GONE, "", None),
        (said("gone"), Result.GONE, "", None),
        (shown(deleting=True), Result.FAILED, "", Retry.NEVER),
        (shown(node="n1", deleting=True), Result.BOUND, "n1", None),
        (shown(foreign="its schedulerName is 'other'"), Result.FAILED, "", Retry.NEVER),
    ],
    ids=["there", "elsewhere", "namesake", "gone", "deleting", "there and deleting", "foreign"],
)
def test_a_look_says_how_a_bind_ended(seen, result, node, retry) -> None:
    outcome = bind_steps.after_get(WANTED, seen, attempt=1, delays=DELAYS)
    assert (outcome.result, outcome.node, outcome.retry) == (result, node, retry)


def test_a_conflict_outcome_carries_what_was_observed() -> None:
    outcome = bind_steps.after_get(WANTED, shown(node="n9"), attempt=1, delays=DELAYS)
    assert (outcome.node, outcome.rv) == ("n9", "7")


def test_a_busy_server_is_waited_for_along_the_ladder_and_as_long_as_it_asks() -> None:
    def wait(attempt: int, **kwargs) -> float:
        step = bind_steps.after_post(WANTED, said("busy", **kwargs), attempt=attempt, delays=DELAYS)
        assert isinstance(step, Wait)
        return step.seconds

    assert [wait(1), wait(2)] == [1, 2]
    assert wait(1, retry_after_s=4) == 4
    assert wait(1, retry_after_s=3600) == 60


def test_an_intent_only_fails_after_a_look_that_shows_the_pod_unbound() -> None:
    last = {"attempt": 3, "delays": DELAYS}
    assert bind_steps.after_post(WANTED, said("busy"), **last) == Get()
    assert isinstance(bind_steps.after_get(WANTED, said("busy"), **last), Wait)
    outcome = bind_steps.after_get(WANTED, shown(), **last)
    assert (outcome.result, outcome.retry) == (Result.FAILED, Retry.LATER)
    assert bind_steps.after_get(WANTED, shown(node="n1"), **last).result is Result.BOUND


def test_an_unbound_pod_is_posted_again_before_the_last_attempt() -> None:
    assert isinstance(bind_steps.after_get(WANTED, shown(), attempt=1, delays=DELAYS), Wait)


def after_conditions(reply: ApiResponse, **kwargs):
    arguments = {"rv": "7", "attempt": 1, "delete_sent": False, "delays": DELAYS, **kwargs}
    return evict_steps.after_conditions(VICTIM, reply, **arguments)


def after_delete(reply: ApiResponse, **kwargs):
    arguments = {"attempt": 1, "delete_sent": False, "delays": DELAYS, **kwargs}
    return evict_steps.after_delete(VICTIM, reply, **arguments)


def after_get(reply: ApiResponse, **kwargs):
    return evict_steps.after_get(VICTIM, reply, **{"attempt": 1, "delays": DELAYS, **kwargs})


@pytest.mark.parametrize(
    "reply",
    [said("done", snapshot=PodSnapshot(uid="u2", rv="7")), said("refused")],
    ids=["conditions written or there before", "conditions refused"],
)
def test_a_living_victim_is_always_deleted_whatever_became_of_its_conditions_d03(reply) -> None:
    assert after_conditions(reply) == Delete("7")


def test_a_victim_is_written_to_at_the_version_that_showed_it_unfinished() -> None:
    assert after_get(
        said("done", snapshot=PodSnapshot(uid="u2", rv="8", phase="Running"))
    ) == PatchConditions("8")
    marked = said("done", snapshot=PodSnapshot(uid="u2", rv="9", phase="Running"))
    assert after_conditions(marked, rv="8") == Delete("9")


def test_a_victim_of_no_gang_of_ours_is_never_written_to() -> None:
    foreign = said(
        "done", snapshot=PodSnapshot(uid="u2", rv="8", foreign="its schedulerName is 'other'")
    )
    for attempt in (1, 8):
        outcome = after_get(foreign, attempt=attempt)
        assert isinstance(outcome, ItemOutcome)
        assert (outcome.result, outcome.retry) == (Result.FAILED, Retry.NEVER)
        assert outcome.message == "not a pod of a gang of ours: its schedulerName is 'other'"


@pytest.mark.parametrize(
    ("pod", "why"),
    [
        (
            {"schedulerName": "volcano"},
            "it has no annotation scheduling.k8s.io/group-name and no spec.schedulingGroup",
        ),
        ({"schedulerName": "volcano", "schedulingGroup": {"podGroupName": "g"}}, ""),
        ({}, "its schedulerName is ''"),
        ({"schedulerName": "default-scheduler"}, "its schedulerName is 'default-scheduler'"),
    ],
)
def test_a_pod_is_ours_by_its_scheduler_and_its_group(pod: dict, why: str) -> None:
    metadata = {"name": "v", "namespace": "ns", "uid": "u2", "resourceVersion": "8"}
    body = {"metadata": metadata, "spec": pod, "status": {"phase": "Running"}}
    assert snapshot_of(json.dumps(body).encode(), ("volcano",)).foreign == why
    if pod.get("schedulerName") == "volcano":
        metadata["annotations"] = {"scheduling.k8s.io/group-name": "g"}
        assert snapshot_of(json.dumps(body).encode(), ("volcano",)).foreign == ""


@pytest.mark.parametrize("after", [after_conditions, after_delete])
def test_a_victim_that_has_changed_meanwhile_is_looked_at_again(after) -> None:
    assert after(said("conflict")) == Get()


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_victim_that_has_finished_is_spared(phase) -> None:
    finished = said("done", snapshot=PodSnapshot(uid="u2", rv="9", phase=phase))
    for outcome in (
        after_get(finished),
        after_get(finished, attempt=3),
        after_conditions(finished),
    ):
        assert outcome.result is Result.SPARED
        assert phase in outcome.message


def test_a_victim_that_ends_well_because_it_was_told_to_stop_was_evicted() -> None:
    leaving = said("done", snapshot=PodSnapshot(uid="u2", rv="9", phase="Succeeded", deleting=True))
    assert after_get(leaving, delete_sent=True).result is Result.EVICTED
    assert after_get(said("gone"), delete_sent=True).result is Result.EVICTED


def test_a_victim_that_is_leaving_already_counts_as_evicted() -> None:
    leaving = said("done", snapshot=PodSnapshot(uid="u2", deleting=True))
    assert after_conditions(leaving).result is Result.EVICTED


def test_a_delete_without_an_answer_is_tried_again_and_gone_is_then_our_doing() -> None:
    assert after_delete(said("done")).result is Result.EVICTED
    assert isinstance(after_delete(said("busy")), Wait)
    assert after_conditions(said("gone"), delete_sent=True).result is Result.EVICTED
    assert after_conditions(said("gone")).result is Result.GONE
    assert after_delete(said("refused")).retry is Retry.NEVER


@pytest.mark.parametrize(
    ("reply", "result"),
    [
        (said("gone"), Result.GONE),
        (said("done", snapshot=PodSnapshot(uid="u2", deleting=True)), Result.EVICTED),
        (said("done", snapshot=PodSnapshot(uid="other")), Result.GONE),
        (said("done", snapshot=PodSnapshot(uid="u2")), Result.FAILED),
    ],
    ids=["gone", "deleting", "namesake", "alive"],
)
def test_after_the_last_attempt_a_look_decides_an_eviction(reply, result) -> None:
    assert after_delete(said("busy"), attempt=3) == Get()
    outcome = evict_steps.after_get(VICTIM, reply, attempt=3, delays=DELAYS)
    assert outcome.result is result
    assert isinstance(evict_steps.after_get(VICTIM, said("busy"), attempt=3, delays=DELAYS), Wait)


def test_the_conditions_of_an_eviction_are_those_of_d03() -> None:
    patch = evict_steps.eviction_conditions("preempt", now="2026-01-01T00:00:00Z")
    conditions = patch["status"]["conditions"]
    assert [(c["type"], c["status"], c["reason"]) for c in conditions] == [
        ("DisruptionTarget", "True", "PreemptionByScheduler"),
        ("Ready", "False", "Evict"),
    ]


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        (said("done", snapshot=PodSnapshot(uid="p")), Nomination.PROCEED),
        (said("gone"), Nomination.SPARE),
        (said("done", snapshot=PodSnapshot(uid="p", deleting=True)), Nomination.SPARE),
        (said("done", snapshot=PodSnapshot(uid="p", node="n5")), Nomination.SPARE),
        (said("refused"), Get()),
        (
            said("done", snapshot=PodSnapshot(uid="p", foreign="it has no annotation")),
            Nomination.FAIL,
        ),
    ],
    ids=["needs room", "gone", "deleting", "bound", "refused", "of no gang"],
)
def test_victims_are_spared_unless_the_preemptor_still_needs_their_room(reply, verdict) -> None:
    assert evict_steps.after_nomination(reply, attempt=1, delays=DELAYS) == verdict


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        (said("done", snapshot=PodSnapshot(uid="p", node="n5")), Nomination.SPARE),
        (said("done", snapshot=PodSnapshot(uid="other")), Nomination.SPARE),
        (said("gone"), Nomination.SPARE),
        (said("done", snapshot=PodSnapshot(uid="p")), Nomination.FAIL),
        (said("busy"), Wait(1)),
    ],
    ids=["bound", "namesake", "gone", "waiting", "no answer"],
)
def test_a_preemptor_that_cannot_be_nominated_is_looked_at(reply, verdict) -> None:
    preemptor = Preemptor(pod="ns/p", uid="p", node="n3")
    step = evict_steps.after_preemptor_get(preemptor, reply, attempt=1, delays=DELAYS)
    assert step == verdict


def test_a_nomination_names_the_node_ss11() -> None:
    preemptor = Preemptor(pod="ns/p", uid="u", node="n3")
    *tests, write = evict_steps.nomination(preemptor, "volcano")
    assert write == {"op": "add", "path": "/status/nominatedNodeName", "value": "n3"}
    assert {(test["op"], test["path"], test["value"]) for test in tests} == {
        ("test", "/metadata/uid", "u"),
        ("test", "/spec/schedulerName", "volcano"),
    }


def test_an_intent_ends_once_all_its_items_have_in_the_order_of_the_intent() -> None:
    gang = bind_of(WANTED, Bind(pod="b", uid="u3", node="n"), key="ns/j")
    progress = IntentProgress(gang)
    progress.record(1, ended(gang.binds[1], Result.GONE))
    with pytest.raises(AssertionError):
        progress.outcome(instance="b", now=1)
    progress.record(0, ended(gang.binds[0], Result.BOUND))
    outcome = progress.outcome(instance="b", now=1)
    assert [item.uid for item in outcome.items] == ["u1", "u3"]
    assert (outcome.intent, outcome.job) == ("i", "ns/j")
    with pytest.raises(AssertionError):
        progress.record(0, ended(gang.binds[0], Result.GONE))


def test_messages_of_the_api_server_are_cut_so_that_an_outcome_fits_its_command() -> None:
    reply = said("refused", message="x" * 10_000)
    assert len(bind_steps.after_post(WANTED, reply, attempt=1, delays=DELAYS).message) == 200


def test_a_long_refusal_keeps_its_object_and_its_reason() -> None:
    policy = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: " + "x" * 80
    why = f'pods "{"n" * 63}" is forbidden: {policy}: no pods after five'
    status = Status(code=403, reason="Forbidden", message=why)
    reply = failed_response(Denied("POST /api/v1/namespaces/ns/pods/p/binding", status))
    message = ended(WANTED, Result.FAILED, message=reply.message).message
    assert message.startswith('pods "nnn')
    assert message.endswith("no pods after five")
    assert len(message) == MESSAGE_MAX


def test_a_limit_grows_slowly_and_halves_once_per_overload() -> None:
    limiter = ConcurrencyLimiter(LimiterSettings(start=10, least=2, most=12, slow_s=1, hold_s=0.5))
    for number in range(200):
        limiter.answered(latency_s=0.01, overloaded=False, now_s=float(number))
    assert limiter.limit == 12
    for _ in range(5):
        limiter.answered(latency_s=0.01, overloaded=True, now_s=300)
    assert limiter.limit == 6
    limiter.answered(latency_s=3, overloaded=False, now_s=301)
    assert limiter.limit == 3
    for number in range(10):
        limiter.answered(latency_s=0, overloaded=True, now_s=400.0 + number)
    assert limiter.limit == 2


@pytest.mark.parametrize(
    ("payload", "items"),
    [
        ({"type": "bind", "v": 1, "id": "i7", "binds": [{"pod": "ns/p", "uid": "u"}]}, 1),
        ({"type": "evict", "v": 1, "id": "i7", "victims": [{"pod": "a"}, {"pod": "b"}]}, 2),
        ({"type": "dance", "id": "i7"}, 0),
    ],
    ids=["bind", "evict", "unknown"],
)
def test_an_unreadable_command_fails_if_its_id_can_be_read(payload, items) -> None:
    outcome = failed_outcome(msgspec.json.encode(payload), "field missing", instance="b", now=1)
    assert outcome is not None
    assert outcome.intent == "i7"
    assert len(outcome.items) == items
    assert all(item.retry is Retry.NEVER for item in outcome.items)


@pytest.mark.parametrize("payload", [b"", b"{", b"x\x9c", b'{"id": 5}', b"[]"])
def test_a_command_without_a_readable_id_has_no_outcome(payload) -> None:
    assert failed_outcome(payload, "broken", instance="b", now=1) is None


def test_an_eviction_has_no_job_of_its_own() -> None:
    intent = Evict(id="e", cycle=1, reason="preempt", victims=(VICTIM,))
    progress = IntentProgress(intent)
    progress.record(0, ended(VICTIM, Result.EVICTED))
    assert progress.outcome(instance="b", now=1).job == ""
