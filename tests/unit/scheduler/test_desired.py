"""A wish that nothing comes of is wished again, and lives on the bus until then."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.decision import Decision
from services.scheduler.desired import FIRST_S, LONGEST_S, DesiredStatus, Reminders
from services.scheduler.messages import (
    ADMISSION_DEFERRAL_S,
    PLACEMENT_DEFERRAL_S,
    RUNNING_DEFERRAL_S,
)
from services.scheduler.scheduler_state import SchedulerState
from shared.contracts import messages as m
from tests.support import world
from tests.unit.scheduler.test_scheduler_state import (
    add_group,
    add_pod,
    put,
    scheduler,
    small_world,
    step,
)


def wish(uid: str = "u", phase: str = "Inqueue") -> DesiredStatus:
    wanted = m.DesiredPodGroup(key=f"ns/{uid}", uid=uid, phase=phase, rv="5")
    return DesiredStatus(kind="podgroups", message=wanted)


@given(st.floats(0.1, 50.0))
def test_there_is_a_wish_on_the_bus_as_long_as_one_is_needed(beat_s: float):
    reminders, now = Reminders(), 0.0
    reminders.sent([wish()], now=now)
    lives_until = now + wish().ttl_s
    for _ in range(400):
        now += beat_s
        assert now < lives_until
        for again in reminders.due(now=now, is_outstanding=lambda _: True):
            lives_until = now + again.ttl_s
            assert again.ttl_s <= 2 * LONGEST_S
            assert again.message.rv == "", "whatever is in the way, the binder looks"


def test_what_the_world_shows_is_forgotten():
    reminders = Reminders()
    reminders.sent([wish("a"), wish("b")], now=0.0)
    again = reminders.due(now=FIRST_S, is_outstanding=lambda wish: wish.message.uid == "a")
    assert [wish.message.uid for wish in again] == ["a"]
    assert len(reminders) == 1


def test_only_the_last_wish_about_an_object_is_repeated():
    reminders = Reminders()
    reminders.sent([wish(phase="Inqueue")], now=0.0)
    reminders.sent([wish(phase="Running")], now=30.0)
    assert reminders.due(now=FIRST_S + 1, is_outstanding=lambda _: True) == []
    (again,) = reminders.due(now=FIRST_S + 30, is_outstanding=lambda _: True)
    assert isinstance(again.message, m.DesiredPodGroup)
    assert again.message.phase == "Running"


def test_a_scheduler_wishes_again_what_was_lost_and_not_what_is_shown():
    under = scheduler()
    small_world(under)
    add_group(under, "lost", "Pending")
    add_group(under, "shown", "Pending")
    first = {wish.message.key for wish in step(under, 0.0, 1).statuses}
    assert {"ns/lost", "ns/shown"} <= first
    add_group(under, "shown", "Inqueue")
    again = {wish.message.key: wish.message.rv for wish in step(under, 61.0, 2).statuses}
    assert again.get("ns/lost") == ""
    assert "ns/shown" not in again


def test_a_new_term_goes_by_what_objects_show():
    under = scheduler()
    small_world(under)
    add_group(under, "g", "Pending")
    assert [w.message.key for w in step(under, 0.0, 1).statuses if w.kind == "podgroups"] == [
        "ns/g"
    ]
    assert step(under, 0.1, 2).statuses == []
    under.recover([], [])
    assert [w.message.key for w in step(under, 0.2, 3).statuses if w.kind == "podgroups"] == [
        "ns/g"
    ]


def test_a_wish_names_the_version_that_was_decided_on_and_what_stays():
    under = scheduler(settle_s=0.0)
    small_world(under)
    shown = {
        "type": "Unschedulable",
        "status": "True",
        "reason": "NotEnoughTasks",
        "message": "m",
        "transitionID": "12",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    said = {"uid": "g", "metadata": {"resourceVersion": "41"}, "status": {"conditions": [shown]}}
    put(under, "podgroups", world.stored_group("ns/g", phase="Pending", **said))
    (wanted,) = [w.message for w in step(under, 0.0, 1).statuses if w.kind == "podgroups"]
    assert isinstance(wanted, m.DesiredPodGroup)
    assert (wanted.phase, wanted.rv) == ("Inqueue", "41")
    (kept,) = wanted.conditions
    assert (kept.transition_id, kept.last_transition_time) == ("12", "2026-01-01T00:00:00Z")


def jobs_group(
    to: SchedulerState, name: str, phase: str = "", *, job: bool = True, **status: Any
) -> None:
    owner = world.job_owner("j", "j") | ({} if job else {"apiVersion": "batch/v1"})
    meta = {"resourceVersion": "1", "ownerReferences": [owner]}
    body = world.stored_group(f"ns/{name}", uid=name, phase=phase, metadata=meta, status=status)
    put(to, "podgroups", body)


def bound(to: SchedulerState, name: str, of: str, phase: str) -> None:
    put(to, "pods", world.stored_pod(f"ns/{name}", uid=name, group=of, node="n1", phase=phase))


def deferrals(decision: Decision) -> dict[str, int]:
    return {s.message.key: s.deferral_s for s in decision.statuses if s.kind == "podgroups"}


def test_the_admission_of_a_jobs_group_may_be_one_write_with_what_follows():
    under = scheduler()
    small_world(under)
    jobs_group(under, "of-job")
    jobs_group(under, "of-other", job=False)
    assert deferrals(step(under, 0.0, 1)) == {"ns/of-job": ADMISSION_DEFERRAL_S, "ns/of-other": 0}
    assert deferrals(step(under, 61.0, 2)) == {"ns/of-job": 0, "ns/of-other": 0}, "said again"


def test_the_group_of_a_single_pod_may_be_one_write_from_its_admission_to_its_running_pod():
    under = scheduler(settle_s=0.0)
    small_world(under)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p", "controller": True}
    meta = {"resourceVersion": "1", "ownerReferences": [owner]}
    put(under, "podgroups", world.stored_group("ns/single", uid="g", phase="", metadata=meta))
    put(under, "pods", world.stored_pod("ns/p", uid="p", group="single"))
    assert deferrals(step(under, 0.0, 1)) == {"ns/single": ADMISSION_DEFERRAL_S}
    bound(under, "p", "single", "Pending")
    assert deferrals(step(under, 0.1, 2)) == {"ns/single": ADMISSION_DEFERRAL_S}
    bound(under, "p", "single", "Running")
    assert deferrals(step(under, 0.2, 3)) == {"ns/single": ADMISSION_DEFERRAL_S}


def test_the_placement_of_a_jobs_group_may_wait_until_its_pods_run_and_a_moment_more():
    under = scheduler(settle_s=0.0)
    small_world(under)
    jobs_group(under, "of-job", "Inqueue")
    add_pod(under, "of-job-0", "of-job")
    step(under, 0.0, 1)
    bound(under, "of-job-0", "of-job", "Pending")
    assert deferrals(step(under, 0.1, 2)) == {"ns/of-job": PLACEMENT_DEFERRAL_S}
    bound(under, "of-job-0", "of-job", "Running")
    assert deferrals(step(under, 0.2, 3)) == {"ns/of-job": RUNNING_DEFERRAL_S}


def test_a_placement_is_written_at_once_while_the_admission_is_not_shown():
    under = scheduler(settle_s=0.0)
    small_world(under)
    jobs_group(under, "of-job")
    step(under, 0.0, 1)
    add_pod(under, "of-job-0", "of-job")
    step(under, 0.1, 2)
    bound(under, "of-job-0", "of-job", "Pending")
    assert deferrals(step(under, 0.2, 3)) == {"ns/of-job": 0}


def test_mere_counts_of_a_jobs_group_may_wait_and_those_of_others_not():
    under = scheduler(settle_s=0.0)
    small_world(under)
    ready = "tasks in gang are ready to be scheduled"
    scheduled = {"type": "Scheduled", "status": "True", "reason": ready}
    for name, is_job in (("of-job", True), ("of-other", False)):
        jobs_group(under, name, "Running", job=is_job, running=2, conditions=[scheduled])
        bound(under, f"{name}-0", name, "Running")
        bound(under, f"{name}-1", name, "Running")
    step(under, 0.0, 1)
    for name in ("of-job", "of-other"):
        bound(under, f"{name}-1", name, "Succeeded")
    wanted = deferrals(step(under, 0.1, 2))
    assert wanted == {"ns/of-job": RUNNING_DEFERRAL_S, "ns/of-other": 0}


def test_the_end_of_a_jobs_group_is_written_only_if_the_group_stays():
    under = scheduler(settle_s=0.0)
    small_world(under)
    for name in ("stays", "goes"):
        jobs_group(under, name, "Running", running=1)
        bound(under, f"{name}-0", name, "Running")
    step(under, 0.0, 1)
    for name in ("stays", "goes"):
        bound(under, f"{name}-0", name, "Succeeded")
    ends = [s for s in step(under, 0.1, 2).statuses if s.kind == "podgroups"]
    assert {s.message.key for s in ends} == {"ns/stays", "ns/goes"}
    assert all(s.ttl_s < s.deferral_s for s in ends), "gone from the stream when it would be due"
    assert under.fold([world.gone("podgroups", "ns/goes", "goes")]) == []
    (again,) = [s for s in step(under, FIRST_S + 1, 3).statuses if s.kind == "podgroups"]
    assert (again.message.key, again.deferral_s) == ("ns/stays", 0)
    assert again.ttl_s > 2 * ends[0].ttl_s


def test_a_gang_that_was_told_why_it_waits_is_told_at_once_that_it_waits_no_more():
    under = scheduler(settle_s=0.0)
    small_world(under)
    why = {"type": "Unschedulable", "status": "True", "reason": "NotEnoughTasks", "message": "m"}
    jobs_group(under, "of-job", "Inqueue", conditions=[why])
    add_pod(under, "of-job-0", "of-job")
    step(under, 0.0, 1)
    bound(under, "of-job-0", "of-job", "Pending")
    assert deferrals(step(under, 0.1, 2)) == {"ns/of-job": 0}
