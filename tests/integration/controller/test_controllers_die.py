"""Controllers that die, and several that share the work, on a real API server."""

import base64
import random
import time
from itertools import count

import pytest

from pumice.local.control_plane import ControlPlane
from shared.api import keys
from shared.api.kinds import JOB
from shared.api.time import format_seconds, parse
from shared.kube.config import connect
from tests.integration.controller.conftest import Hand, services_of_a_test
from tests.integration.controller.crons import jobs_of, make, wait_status
from tests.support.fleet import Fleet
from tests.support.wait import until
from tests.support.world import job, queue, task

pytestmark = pytest.mark.asyncio(loop_scope="session")


services = services_of_a_test


def on(event: str, action: str) -> dict[str, str]:
    return {"event": event, "action": action}


async def test_killed_after_the_kill_a_restart_counts_once(services: Fleet, hand: Hand) -> None:
    """Between a job's kill and its status write, at the named fault point."""
    dying = await services.start("controller", fault="controller.after-kill")
    await hand.submit(job("killed", task("a", 3), policies=[on("PodFailed", "RestartJob")]))
    await hand.wait_pods(3)
    await hand.run_all()
    await hand.wait_job("killed", "Running")
    await hand.report("killed-a-0", "Failed", 1)
    await dying.died_at_its_fault()
    await services.start("controller", instance="b")
    await hand.wait_pods(3, **{"volcano.sh/job-version": "1"})
    await hand.run_all()
    running = await hand.wait_job("killed", "Running")
    assert running["status"]["retryCount"] == 1
    assert running["status"]["version"] == 1


async def test_killed_between_a_phase_and_its_effects_an_order_is_carried_out_once(
    services: Fleet, hand: Hand
) -> None:
    """The phase is written with the Command's uid, so the next process ends what it says (J05)."""
    # Passages: the job enters Pending, Running, Aborting.
    dying = await services.start("controller", fault="controller.after-status@3")
    await hand.submit(job("ordered", task("a", 2)))
    await hand.wait_pods(2)
    await hand.run_all()
    running = await hand.wait_job("ordered", "Running")
    meta = running["metadata"]
    target = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "name": "ordered",
        "uid": meta["uid"],
    }
    order = {
        "apiVersion": "bus.volcano.sh/v1alpha1",
        "kind": "Command",
        "metadata": {"name": "abort-ordered"},
        "action": "AbortJob",
        "target": target,
    }
    await hand.api.create("commands", order, hand.namespace)
    await dying.died_at_its_fault()
    assert len(await hand.api.items("commands", hand.namespace)) == 1
    assert len(await hand.pods()) == 2
    await services.start("controller", instance="b")
    aborted = await hand.wait_job("ordered", "Aborted")
    await hand.wait_pods(0)
    went_through = [condition["status"] for condition in aborted["status"]["conditions"]]
    assert went_through == ["Pending", "Running", "Aborting", "Aborted"]
    assert aborted["status"].get("retryCount", 0) == 0

    async def no_command() -> bool:
        return await hand.api.items("commands", hand.namespace) == []

    await until(no_command, deadline_s=20, describe="the recorded Command is deleted")


async def test_killed_after_the_group_the_job_is_made_of_one_group(
    services: Fleet, hand: Hand
) -> None:
    """J27: the successor finds the PodGroup that no status and no pod speaks of yet."""
    dying = await services.start("controller", fault="controller.after-group")
    await hand.submit(job("begun", task("a", 2), plugins={"svc": []}))
    await dying.died_at_its_fault()
    (group,) = await hand.api.items("podgroups", hand.namespace)
    await services.start("controller", instance="b")
    await hand.wait_pods(2)
    assert await hand.api.get("configmaps", hand.namespace, "begun-svc")
    await hand.run_all()
    running = await hand.wait_job("begun", "Running")
    assert running["status"].get("version", 0) == 0
    (same,) = await hand.api.items("podgroups", hand.namespace)
    assert same["metadata"]["uid"] == group["metadata"]["uid"]


async def test_killed_between_two_pods_the_rest_is_made_and_none_twice(
    services: Fleet, hand: Hand
) -> None:
    dying = await services.start("controller", fault="controller.mid-create@2")
    await hand.submit(job("half", task("a", 6)))
    await dying.died_at_its_fault()
    made = {name: pod["metadata"]["uid"] for name, pod in (await hand.pods()).items()}
    assert len(made) >= 2
    await services.start("controller", instance="b")
    whole = await hand.wait_pods(6)
    assert sorted(whole) == [f"half-a-{index}" for index in range(6)]
    assert made.items() <= {name: pod["metadata"]["uid"] for name, pod in whole.items()}.items()


async def test_killed_between_marks_and_phase_a_task_is_restarted_once(
    services: Fleet, hand: Hand
) -> None:
    """J21: the marks of a kill of a part say what is left of it."""
    dying = await services.start("controller", fault="controller.after-mark")
    restart = [{"event": "PodFailed", "action": "RestartTask"}]
    await hand.submit(job("part", task("a", 3, policies=restart), task("b", 1)))
    before = {name: pod["metadata"]["uid"] for name, pod in (await hand.wait_pods(4)).items()}
    await hand.run_all()
    await hand.wait_job("part", "Running")
    await hand.report("part-a-0", "Failed", 1)
    await dying.died_at_its_fault()
    await services.start("controller", instance="b")

    async def renewed() -> bool:
        now = {name: pod["metadata"]["uid"] for name, pod in (await hand.pods()).items()}
        new = {name for name, uid in now.items() if before.get(name) != uid}
        return len(now) == 4 and new == {"part-a-0", "part-a-1", "part-a-2"}

    await until(renewed, deadline_s=30, describe="the task's three pods are new, the other is not")
    await hand.run_all()
    running = await hand.wait_job("part", "Running")
    assert running["status"]["retryCount"] == 1


async def test_killed_while_a_queue_closes_the_queues_below_it_close_too(
    services: Fleet, hand: Hand
) -> None:
    """Q04: the order is deleted after its last change, so the next process carries it out."""
    anywhere = {"queue_commands_from": "*"}
    dying = await services.start("controller", fault="controller.after-queue-change", **anywhere)
    halves, half = f"halves-{hand.namespace}", f"half-{hand.namespace}"
    for name, parent in ((halves, "root"), (half, halves)):
        await hand.api.create("queues", queue(name, parent=parent))
    uid = (await hand.api.get("queues", "", halves))["metadata"]["uid"]
    api_version = "scheduling.volcano.sh/v1beta1"
    order = {
        "apiVersion": "bus.volcano.sh/v1alpha1",
        "kind": "Command",
        "metadata": {"name": "close-halves"},
        "action": "CloseQueue",
        "target": {"apiVersion": api_version, "kind": "Queue", "name": halves, "uid": uid},
    }
    await hand.api.create("commands", order, hand.namespace)
    await dying.died_at_its_fault()
    await services.start("controller", instance="b", **anywhere)
    states: dict[str, str] = {}

    async def carried_out() -> bool:
        for name in (halves, half):
            found = await hand.api.get("queues", "", name)
            states[name] = found["status"]["state"]
        left = await hand.api.items("commands", hand.namespace)
        return set(states.values()) == {"Closed"} and not left

    await until(carried_out, deadline_s=30, describe=lambda: f"both are closed, seen {states}")


async def test_a_job_whose_time_ran_out_while_nobody_looked_is_deleted_at_the_start(
    services: Fleet, hand: Hand
) -> None:
    """G01: what is due follows from the object, so a restart neither forgets nor prolongs it."""
    dying = await services.start("controller")
    await hand.submit(job("short", task("a", 1), ttlSecondsAfterFinished=2))
    await hand.submit(job("long", task("a", 1), ttlSecondsAfterFinished=3600))
    await hand.wait_pods(2)
    await hand.run_all()
    for name in ("short", "long"):
        await hand.wait_job(name, "Running")
        await hand.report(f"{name}-a-0", "Succeeded", 0)
        await hand.wait_job(name, "Completed")
    dying.kill()
    await services.start("controller", instance="b")

    async def is_gone() -> bool:
        names = {j["metadata"]["name"] for j in await hand.api.items("jobs", hand.namespace)}
        return names == {"long"}

    await until(is_gone, deadline_s=30, describe="the job that is due is deleted, the other stays")


async def test_two_controllers_share_the_jobs_and_one_takes_over(
    services: Fleet, hand: Hand
) -> None:
    first = await services.start("controller", instance="a")
    second = await services.start("controller", instance="b")

    numbers = count()

    async def both_work() -> bool:
        await hand.submit(job(f"shared-{next(numbers)}", task("a", 1)))
        counts = [
            await s.metric("pumice_controller_reconcile_seconds_count") for s in (first, second)
        ]
        return all(counts)

    await until(both_work, deadline_s=30, describe="both replicas look at jobs", every_s=0.3)
    first.kill()
    submitted = len(await hand.api.items("jobs", hand.namespace))
    for number in range(8):
        await hand.submit(job(f"after-{number}", task("a", 1)))
    await hand.wait_pods(submitted + 8)


async def test_a_job_that_the_server_refuses_for_good_is_given_up_j13(
    services: Fleet, hand: Hand
) -> None:
    await services.start("controller", max_requeue_num="2")
    refused = job("refused", task("a", 2))
    refused["spec"]["tasks"][0]["template"]["spec"]["priorityClassName"] = "not-there"
    await hand.submit(refused)
    await hand.submit(job("fine", task("a", 1)))
    await hand.wait_job("refused", "Terminated")
    await hand.wait_pods(1)
    told = [
        event["message"]
        for event in await hand.api.items("events", hand.namespace)
        if event["reason"] == "FailedCreate"
    ]
    assert len(told) == 1, "what is said of both pods, each time again, is one event"
    assert told[0].count("not-there") == 2


async def test_a_job_too_large_for_the_bus_is_told_so(
    control_plane: ControlPlane, services: Fleet, hand: Hand
) -> None:
    await services.start("controller")
    noise = base64.b64encode(random.Random(1).randbytes(1_080_000)).decode()
    huge = job("huge", task("a", 1))
    container = huge["spec"]["tasks"][0]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "NOISE", "value": noise}]
    async with await connect(str(control_plane.kubeconfig), user_agent="test") as kube:
        await kube.create(JOB, hand.namespace, huge)
    held = await hand.wait_job("huge", lambda j: "state" in j.get("status", {}))
    assert held["status"]["state"]["reason"] == "InvalidSpec"
    assert "larger than a message" in held["status"]["state"]["message"]


async def test_killed_between_a_job_and_the_status_no_time_is_run_twice(
    services: Fleet, hand: Hand
) -> None:
    """At the named fault point: the job is found again by the time it was due."""
    dying = await services.start("controller", fault="controller.after-cron-create")
    await make(hand, "torn", concurrencyPolicy="Forbid")
    await dying.died_at_its_fault()
    (made,) = await jobs_of(hand, "torn")
    status = (await hand.api.get("cronjobs", hand.namespace, "torn"))["status"]
    assert "active" not in status
    await services.start("controller", instance="b")
    status = await wait_status(hand, "torn", lambda s: s.get("active"))
    assert [ref["uid"] for ref in status["active"]] == [made["metadata"]["uid"]]
    slot = int(made["metadata"]["name"].removeprefix("torn-")) * 60
    assert status["lastScheduleTime"] == format_seconds(slot)
    await hand.wait_pods(1)
    assert len(await jobs_of(hand, "torn")) == 1


async def test_a_job_ends_at_its_deadline_after_its_controller_was_killed(
    services: Fleet, hand: Hand
) -> None:
    limit_s = 12
    dying = await services.start("controller")
    limited = job("limited", task("a", 2))
    limited["metadata"]["annotations"] = {keys.MAX_RUNTIME: f"{limit_s}s"}
    await hand.submit(limited)
    pods = await hand.wait_pods(2)
    begun = int(time.time())
    for pod in pods:
        await hand.report(pod, "Running", started=format_seconds(begun))
    await hand.wait_job("limited", "Running")
    dying.kill()
    await services.start("controller", instance="b")
    state = (await hand.wait_job("limited", "Terminated"))["status"]["state"]
    assert state["reason"] == "JobDeadlineExceeded"
    assert "the job has run for 12s" in state["message"]
    ended = parse(state["lastTransitionTime"]) - begun
    assert limit_s <= ended <= limit_s + 15
    await hand.wait_pods(0)
    reasons = {event["reason"] for event in await hand.api.items("events", hand.namespace)}
    assert "JobDeadlineExceeded" in reasons
