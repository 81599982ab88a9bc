"""What the binder cannot do is asked for again later and later, and holds up nobody else."""

from itertools import pairwise

import msgspec
import pytest

from services.scheduler.decide import configure
from services.scheduler.decision import Decision
from services.scheduler.engine.state.refusals import LONGEST_S, Refusals
from services.scheduler.scheduler_state import SchedulerState
from shared.contracts import messages as m
from tests.support import world
from tests.unit.scheduler.test_scheduler_state import (
    add_group,
    add_pod,
    groups_of,
    put,
    scheduler,
    small_world,
    step,
)

WHY = "admission webhook says no"
CYCLE_S = 0.125
"""Eight cycles a second, as in a busy cluster."""


def ended(command: m.Command, result: m.Result, retry: m.Retry | None = None) -> m.Outcome:
    items = command.binds if isinstance(command, m.BindGang) else command.victims
    job = command.job if isinstance(command, m.BindGang) else ""
    return m.Outcome(
        intent=command.id,
        job=job,
        items=tuple(
            m.ItemOutcome(pod=i.pod, uid=i.uid, result=result, retry=retry, message=WHY)
            for i in items
        ),
        instance="binder-0",
        time=1e9,
    )


def refuse(by: SchedulerState, decision: Decision, *pods: str) -> list[str]:
    """Let the binder refuse the binds of some pods, and do all others; return those asked for."""
    asked = [bind.uid for c in decision.commands for bind in c.binds]
    for command in decision.commands:
        items = []
        for bind in command.binds:
            no = bind.uid in pods
            items.append(
                m.ItemOutcome(
                    pod=bind.pod,
                    uid=bind.uid,
                    result=m.Result.FAILED if no else m.Result.BOUND,
                    node="" if no else bind.node,
                    retry=m.Retry.NEVER if no else None,
                    message=WHY if no else "",
                )
            )
            if not no:
                add_pod(by, bind.uid, command.job.removeprefix("ns/"), bind.node)
        by.outcomes(
            [
                m.Outcome(
                    intent=command.id,
                    job=command.job,
                    items=tuple(items),
                    instance="b",
                    time=1e9,
                )
            ]
        )
    return asked


def asked_at(
    by: SchedulerState,
    seconds: float,
    *,
    start: float = 0.0,
    cycle: int = 1,
    every_s: float = CYCLE_S,
) -> list[float]:
    """Run cycles for some time; return when the refused pod was asked for."""
    times = []
    for number in range(int(seconds / every_s)):
        now = start + number * every_s
        if "bad-0" in refuse(by, step(by, now, cycle + number), "bad-0"):
            times.append(now)
    return times


def test_a_refused_bind_is_asked_for_after_intervals_that_double_up_to_five_minutes():
    under = scheduler()
    small_world(under)
    add_group(under, "bad", "Inqueue")
    add_pod(under, "bad-0", "bad")
    times = asked_at(under, 900, every_s=1.0)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    # An interval begins with the cycle after the one that asked.
    assert [gap - 1.0 for gap in gaps] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]


@pytest.mark.parametrize("retry", [m.Retry.NEVER, m.Retry.LATER])
def test_the_condition_of_the_group_and_of_the_pod_says_who_refused_and_when_it_is_tried_again(
    retry,
):
    under = scheduler(settle_s=0.1)
    small_world(under)
    add_group(under, "bad", "Inqueue")
    add_pod(under, "bad-0", "bad")
    told: dict[str, str] = {}
    for number in range(200):
        decision = step(under, number * CYCLE_S, number + 1)
        under.outcomes([ended(c, m.Result.FAILED, retry) for c in decision.commands])
        for wish in decision.statuses:
            for condition in getattr(wish.message, "conditions", ()):
                told[f"{wish.message.key} {condition.type}"] = condition.message
    line = f"the API server refused to bind it: {WHY}: tried again in 16 s"
    assert line in told["ns/bad Unschedulable"]
    assert told["ns/bad-0 PodScheduled"] == line


def test_a_held_pod_writes_one_status_for_each_interval_and_not_one_for_each_cycle():
    under = scheduler(settle_s=0.1)
    small_world(under)
    add_group(under, "bad", "Inqueue")
    add_pod(under, "bad-0", "bad")
    said = 0
    for number in range(480):
        decision = step(under, number * CYCLE_S, number + 1)
        refuse(under, decision, "bad-0")
        said += "ns/bad" in groups_of(decision)
    assert said <= 2 * 6, "a minute has six intervals"


@pytest.mark.parametrize("result", [m.Result.CONFLICT, m.Result.GONE])
def test_what_the_world_decides_otherwise_is_decided_again_at_once(result):
    under = scheduler()
    small_world(under)
    add_group(under, "g", "Inqueue")
    add_pod(under, "g-0", "g")
    for number in range(5):
        (command,) = step(under, number * CYCLE_S, number + 1).commands
        assert [bind.pod for bind in command.binds] == ["ns/g-0"]
        under.outcomes([ended(command, result)])


def test_the_other_pods_of_its_gang_and_other_gangs_go_on():
    under = scheduler()
    small_world(under)
    add_group(under, "bad", "Inqueue")
    for number in range(3):
        add_pod(under, f"bad-{number}", "bad")
    assert sorted(refuse(under, step(under, 0.0, 1), "bad-0")) == ["bad-0", "bad-1", "bad-2"]
    add_pod(under, "bad-3", "bad")
    add_group(under, "good", "Inqueue")
    add_pod(under, "good-0", "good")
    assert sorted(refuse(under, step(under, 0.1, 2), "bad-0")) == ["bad-3", "good-0"]


def test_a_gang_that_needs_the_refused_pod_takes_no_room_for_the_rest_of_it():
    under = scheduler()
    small_world(under)
    add_group(under, "bad", "Inqueue", minMember=3)
    for number in range(3):
        add_pod(under, f"bad-{number}", "bad")
    decision = step(under, 0.0, 1)
    under.outcomes([ended(c, m.Result.FAILED, m.Retry.NEVER) for c in decision.commands])
    add_group(under, "good", "Inqueue", minMember=8)
    for number in range(8):
        add_pod(under, f"good-{number}", "good")
    asked = refuse(under, step(under, 0.1, 2))
    assert sorted(asked) == [f"good-{number}" for number in range(8)]


def _other_requests(by: SchedulerState) -> None:
    add_pod(by, "bad-0", "bad", nodeSelector={})
    add_pod(by, "bad-0", "bad", tolerations=[{"operator": "Exists"}])


def _other_labels(by: SchedulerState) -> None:
    meta = {"name": "bad-0", "namespace": "ns", "uid": "bad-0", "labels": {"team": "a"}}
    meta["annotations"] = {"scheduling.k8s.io/group-name": "bad"}
    spec = {"schedulerName": "volcano", "containers": [{"name": "c"}]}
    put(by, "pods", {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}})


def _other_queue(by: SchedulerState) -> None:
    put(by, "queues", world.stored_queue("other", uid="q2"))
    add_group(by, "bad", "Inqueue", queue="other")


@pytest.mark.parametrize("change", [_other_requests, _other_labels, _other_queue])
def test_it_is_tried_at_once_and_from_the_first_interval_on_when_it_changes(change):
    under = scheduler()
    small_world(under)
    add_group(under, "bad", "Inqueue")
    add_pod(under, "bad-0", "bad")
    assert len(asked_at(under, 40)) == 6
    change(under)
    assert asked_at(under, 4, start=40, cycle=1000) == [40, 41.125, 43.25]


def test_a_new_status_of_the_pod_changes_nothing_about_it():
    under = scheduler()
    small_world(under)
    add_group(under, "bad", "Inqueue")
    add_pod(under, "bad-0", "bad")
    asked_at(under, 40)
    add_pod(under, "bad-0", "bad")
    add_group(under, "bad", "Inqueue")
    assert asked_at(under, 20, start=40, cycle=1000) == []


def test_a_pod_of_the_same_name_begins_anew_and_one_that_is_gone_is_forgotten():
    under = scheduler()
    small_world(under)
    add_group(under, "bad", "Inqueue")
    add_pod(under, "bad-0", "bad")
    asked_at(under, 40)
    under.fold([m.Fact(kind="pods", key="ns/bad-0", uid="bad-0", rv="9", op=m.Op.DELETE)])
    step(under, 40.0, 999)
    assert not under.memory()[0]["refusals"]


def test_whoever_leads_next_goes_on_with_the_intervals():
    first, second = scheduler(), scheduler()
    outcomes = []
    for under in (first, second):
        small_world(under)
        add_group(under, "bad", "Inqueue")
        add_pod(under, "bad-0", "bad")
    for number in range(320):
        for command in step(first, number * CYCLE_S, number + 1).commands:
            outcomes.append(ended(command, m.Result.FAILED, m.Retry.NEVER))
            first.outcomes(outcomes[-1:])
    second.outcomes(outcomes)
    second.recover([], outcomes)
    assert len(outcomes) == 6
    assert asked_at(second, 40, start=41, cycle=1000) == [41 + 32]


def test_a_recorded_cycle_holds_back_whom_the_first_one_held_back():
    first = scheduler()
    small_world(first)
    add_group(first, "bad", "Inqueue")
    add_pod(first, "bad-0", "bad")
    asked_at(first, 3)
    memory, waiting_groups = first.memory()
    memory = msgspec.json.decode(msgspec.json.encode(memory))
    again = scheduler()
    again.prepare_replay(memory)
    small_world(again)
    add_group(again, "bad", "Inqueue")
    add_pod(again, "bad-0", "bad")
    again.restore(memory, waiting_groups)
    assert again.decide(configure(), now=3.0, cycle=9, token=1).commands == []


def test_a_clock_that_is_set_back_holds_nobody_for_longer_than_the_longest_interval():
    under = scheduler()
    small_world(under)
    add_group(under, "bad", "Inqueue")
    add_pod(under, "bad-0", "bad")
    refuse(under, step(under, 1e6, 1), "bad-0")
    step(under, 1e6 + 0.1, 2)
    assert "bad-0" in refuse(under, step(under, 1e6 - 2 * LONGEST_S, 3))


def test_an_outcome_that_is_read_twice_counts_once():
    refusals = Refusals()
    for _ in range(3):
        refusals.note("u", "1-1-0", WHY, is_bind=True)
    refusals.note("u", "1-2-0", WHY, is_bind=True)
    assert [refusal.times for refusal in refusals.items()] == [2]


PREEMPT = (
    'actions: "allocate, preempt"\ntiers: [{plugins: [{name: priority}, {name: gang}]},'
    " {plugins: [{name: predicates}, {name: nodeorder}]}]\n"
)


def test_a_victim_that_cannot_be_evicted_is_left_alone_and_another_one_goes():
    under, conf = scheduler(), configure(PREEMPT)
    small_world(under)
    put(under, "priorityclasses", {"metadata": {"name": "high", "uid": "c"}, "value": 1000})
    add_group(under, "low", "Running")
    for number in range(8):
        add_pod(under, f"low-{number}", "low", "n1", priority=1)
    add_group(under, "high", "Inqueue", priorityClassName="high")
    add_pod(under, "high-0", "high", priority=1000)
    victims = []
    for number in range(3):
        (command,) = step(under, number * CYCLE_S, number + 1, conf).commands
        assert isinstance(command, m.Evict)
        victims.append(command.victims[0].uid)
        under.outcomes([ended(command, m.Result.FAILED, m.Retry.NEVER)])
    assert len(set(victims)) == 3


def test_a_pod_whose_bind_is_always_refused_leaves_the_only_room_to_another():
    """Reported as kai-scheduler#2074: first in line, it took the GPU in every cycle."""
    under = scheduler()
    put(under, "nodes", world.stored_node("n1", uid="n1", cpu="1", memory="8Gi", pods="20"))
    put(under, "queues", world.stored_queue("default", uid="q"))
    for name in ("cursed", "later-blessed"):
        add_group(under, name, "Inqueue")
        add_pod(under, f"{name}-0", name, cpu="1")
    assert refuse(under, step(under, 0.0, 1), "cursed-0") == ["cursed-0"]
    decision = step(under, 0.1, 2)
    assert refuse(under, decision, "cursed-0") == ["later-blessed-0"]
    assert "Running" not in {group.phase for group in groups_of(decision).values()}
