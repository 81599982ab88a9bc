"""Desired statuses on the API server: written when they mean something new (CA09, D01, D02)."""

import msgspec
import pytest

from shared.api import keys
from shared.contracts.messages import (
    DesiredCondition,
    DesiredPod,
    DesiredPodGroup,
    DesiredQueue,
    DesiredUngated,
)
from shared.contracts.streams import desired_consumer
from tests.integration.binder.conftest import NODES, key
from tests.support import world
from tests.support.wait import until

UNSCHEDULABLE = DesiredCondition(
    type="Unschedulable", status="True", reason="NotEnoughResources", message="2/3 tasks"
)


async def made_podgroup(desk, name: str = "gang") -> dict:
    return await desk.api.create("podgroups", world.group(name, minMember=3), desk.namespace)


def podgroup_wish(
    found: dict, phase: str, *conditions: DesiredCondition, **counts
) -> DesiredPodGroup:
    return DesiredPodGroup(
        key=key(found),
        uid=found["metadata"]["uid"],
        phase=phase,
        conditions=conditions,
        cycle=4,
        **counts,
    )


async def status(desk, plural: str, name: str) -> dict:
    return (await desk.read(name, plural)).get("status", {})


async def reached(desk, name: str, phase: str) -> dict:
    async def probe() -> dict | None:
        found = await desk.read(name, "podgroups")
        return found if found.get("status", {}).get("phase") == phase else None

    return await until(probe, describe=f"{name} is {phase}\n{desk.services.logs()}")


def version(found: dict) -> str:
    return found["metadata"]["resourceVersion"]


async def backlog(desk):
    """Return how many statuses of the first partition wait, and how many are under way."""
    return await desk.bus.pull(desired_consumer("local", 0)).backlog()


async def settled(desk) -> None:
    """Wait until no status of the first partition waits any more, or is put off."""

    async def done() -> bool:
        left = await backlog(desk)
        return left.waiting == left.in_progress == 0

    await until(done, describe=lambda: f"no status is under way\n{desk.services.logs()}")


async def dropped(desk, binder) -> None:
    """Wait until the binder has found the one wish void, and has done with it."""

    seen: list[object] = []

    async def done() -> bool:
        left = await backlog(desk)
        handled = await binder.metric("pumice_binder_statuses_total")
        seen[:] = handled, left
        return handled == 1 and left.waiting == left.in_progress == 0

    await until(done, describe=lambda: f"the wish is dropped: {seen}\n{desk.services.logs()}")


async def test_a_podgroup_gets_phase_counts_conditions_and_an_event_d01(desk) -> None:
    await desk.binder()
    found = await made_podgroup(desk)
    await desk.wish(podgroup_wish(found, "Pending", UNSCHEDULABLE, failed=1), "podgroup")
    written = (await reached(desk, "gang", "Pending"))["status"]
    assert written["failed"] == 1
    (condition,) = written["conditions"]
    assert condition["reason"] == "NotEnoughResources"
    assert condition["transitionID"] == "4"
    assert condition["lastTransitionTime"]
    event = await desk.event("gang", "Unschedulable")
    assert (event["type"], event["involvedObject"]["kind"]) == ("Warning", "PodGroup")
    assert event["involvedObject"]["uid"] == found["metadata"]["uid"]


async def test_a_status_that_means_the_same_is_not_written_again_ca09(desk) -> None:
    binder = await desk.binder()
    found = await made_podgroup(desk)
    await desk.wish(podgroup_wish(found, "Inqueue", UNSCHEDULABLE), "podgroup")
    before = await reached(desk, "gang", "Inqueue")
    handled = await binder.metric("pumice_binder_statuses_total")
    await desk.wish(podgroup_wish(found, "Inqueue", UNSCHEDULABLE), "podgroup")

    async def handled_again() -> bool:
        return await binder.metric("pumice_binder_statuses_total") > handled

    await until(handled_again, describe="the second wish is handled")
    after = await desk.read("gang", "podgroups")
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


async def test_a_status_that_may_wait_is_one_write_with_the_next(desk) -> None:
    binder = await desk.binder()
    found = await made_podgroup(desk)
    admitted = msgspec.structs.replace(podgroup_wish(found, "Inqueue"), rv=version(found))
    await desk.wish(admitted, "podgroup", deferral_s=5)

    async def postponed() -> bool:
        return (await backlog(desk)).in_progress == 1

    await until(postponed, describe="the binder has put the first status off")
    placed = msgspec.structs.replace(podgroup_wish(found, "Running"), rv=version(found))
    await desk.wish(placed, "podgroup")
    after = await reached(desk, "gang", "Running")
    assert int(version(after)) > int(version(found))
    await settled(desk)
    assert await binder.metric("pumice_binder_statuses_total") == 1
    assert version(await desk.read("gang", "podgroups")) == version(after)


async def test_a_status_that_may_wait_is_written_when_none_follows(desk) -> None:
    await desk.binder()
    found = await made_podgroup(desk)
    await desk.wish(podgroup_wish(found, "Inqueue"), "podgroup", deferral_s=1)
    await reached(desk, "gang", "Inqueue")


async def test_the_last_of_many_wishes_stands_with_two_binders(desk) -> None:
    await desk.binder(instance="one")
    await desk.binder(instance="two")
    found = await made_podgroup(desk)
    for number in range(60):
        phase = "Running" if number % 2 else "Inqueue"
        await desk.wish(podgroup_wish(found, phase, running=number), "podgroup")
    await desk.wish(podgroup_wish(found, "Completed", succeeded=3), "podgroup")

    async def settled() -> bool:
        found = await status(desk, "podgroups", "gang")
        backlog = await desk.bus.pull(desired_consumer("local", 0)).backlog()
        return (
            found.get("phase") == "Completed"
            and found.get("succeeded") == 3
            and not found.get("running")
            and backlog.waiting == backlog.in_progress == 0
        )

    await until(settled, describe="the last wish stands")


async def test_a_wish_for_a_namesake_is_dropped(desk) -> None:
    binder = await desk.binder()
    found = await made_podgroup(desk)
    old = podgroup_wish(found, "Running")
    await desk.api.delete("podgroups", desk.namespace, "gang")
    await made_podgroup(desk)
    await desk.wish(old, "podgroup")
    await dropped(desk, binder)
    assert "phase" not in await status(desk, "podgroups", "gang")


async def test_a_queue_gets_what_its_jobs_hold_and_keeps_its_state_ss03(desk) -> None:
    await desk.binder()
    name = f"q-{desk.namespace}"
    queue = await desk.api.create("queues", world.queue(name, weight=1))
    await desk.api.patch("queues", "", name, {"status": {"state": "Open"}}, sub="status")
    for allocated in ({"cpu": "4", "nvidia.com/gpu": "2"}, {"cpu": "1500m"}):
        wish = DesiredQueue(key=name, uid=queue["metadata"]["uid"], allocated=allocated)
        await desk.wish(wish, "queue")

        async def written(wanted=allocated) -> bool:
            found = (await desk.api.get("queues", "", name))["status"]
            return found.get("allocated") == wanted and found["state"] == "Open"

        await until(written, describe=f"allocated is {allocated}")
    await desk.api.delete("queues", "", name)


async def test_a_pod_is_told_why_it_waits_d02(desk) -> None:
    await desk.binder()
    (pod,) = await desk.pods(1)
    reason = DesiredCondition(
        type="PodScheduled", status="False", reason="Unschedulable", message="0/2 nodes fit"
    )
    await desk.wish(
        DesiredPod(key=key(pod), uid=pod["metadata"]["uid"], conditions=(reason,)), "pod"
    )
    event = await desk.event("p-0", "FailedScheduling")
    assert event["message"] == "0/2 nodes fit"
    found = (await status(desk, "pods", "p-0"))["conditions"]
    (condition,) = [c for c in found if c["type"] == "PodScheduled"]
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")


async def test_a_pod_that_its_queue_has_admitted_loses_the_gate_of_the_queue_alone_ca14(
    desk,
) -> None:
    await desk.binder()
    gates = [{"name": "example.com/wait"}, {"name": keys.QUEUE_GATE}]
    pod = await desk.pod("gated", schedulingGates=gates)
    for version in ("1", ""):  # one that is no more, and none: both have the binder look
        wish = DesiredUngated(key=key(pod), uid=pod["metadata"]["uid"], rv=version)
        await desk.wish(wish, "pod")

        async def lifted() -> bool:
            found = await desk.api.get("pods", desk.namespace, "gated")
            return found["spec"].get("schedulingGates") == gates[:1]

        await until(lifted, describe="the gate of the queue is lifted")


async def test_a_bound_pod_is_not_told_why_it_waited(desk) -> None:
    binder = await desk.binder()
    pod = await desk.pod("bound", nodeName=NODES[0])
    reason = DesiredCondition(
        type="PodScheduled", status="False", reason="Unschedulable", message="m"
    )
    wish = DesiredPod(key=key(pod), uid=pod["metadata"]["uid"], conditions=(reason,))
    await desk.wish(wish, "pod")
    await dropped(desk, binder)
    found = (await status(desk, "pods", "bound")).get("conditions", [])
    assert "False" not in [c["status"] for c in found if c["type"] == "PodScheduled"]


async def test_a_wish_about_a_pod_that_was_bound_meanwhile_is_dropped_without_a_look(desk) -> None:
    binder = await desk.binder()
    (pod,) = await desk.pods(1)
    intent = desk.gang([pod])
    await desk.send(intent)
    await desk.outcome(intent)
    reason = DesiredCondition(
        type="PodScheduled", status="False", reason="Unschedulable", message="m"
    )
    meta = pod["metadata"]
    wish = DesiredPod(
        key=key(pod), uid=meta["uid"], rv=meta["resourceVersion"], conditions=(reason,)
    )
    await desk.wish(wish, "pod")
    await dropped(desk, binder)
    assert await binder.metric("pumice_binder_statuses_total", 'result="void"') == 1


async def test_a_wish_that_was_decided_on_an_older_version_is_written_after_a_look(desk) -> None:
    binder = await desk.binder()
    found = await made_podgroup(desk)
    old = found["metadata"]["resourceVersion"]
    await desk.api.patch("podgroups", desk.namespace, "gang", {"metadata": {"labels": {"a": "b"}}})
    wish = podgroup_wish(found, "Inqueue", UNSCHEDULABLE)
    await desk.wish(msgspec.structs.replace(wish, rv=old), "podgroup")
    seen = await reached(desk, "gang", "Inqueue")
    assert await binder.metric("pumice_binder_statuses_total", 'result="conflict"') == 1
    wish = podgroup_wish(found, "Running", running=3)
    now = seen["metadata"]["resourceVersion"]
    await desk.wish(msgspec.structs.replace(wish, rv=now), "podgroup")
    written = (await reached(desk, "gang", "Running"))["status"]
    assert written["running"] == 3
    assert written.get("conditions", []) == []
    assert await binder.metric("pumice_binder_statuses_total", 'result="conflict"') == 1


@pytest.mark.parametrize("payload", [b"garbage", b'{"type":"podgroup","v":1,"key":"a/b"}'])
async def test_an_unreadable_wish_blocks_nobody(desk, payload) -> None:
    binder = await desk.binder()
    publisher = desk.bus.publisher(desk.streams.desired.name)
    await publisher.publish(desk.subjects.desired(0, "podgroup", "a/b"), payload)
    found = await made_podgroup(desk)
    await desk.wish(podgroup_wish(found, "Running"), "podgroup")
    await reached(desk, "gang", "Running")

    async def counted() -> bool:
        return await binder.metric("pumice_binder_messages_quarantined_total") >= 1

    await until(counted, describe="the unreadable wish is counted")


async def test_a_condition_of_a_pod_that_is_not_schedulings_is_never_written(desk) -> None:
    binder = await desk.binder()
    pod = await desk.pod("p-0")
    ready = DesiredCondition(type="Ready", status="True", reason="Broken")
    await desk.wish(
        DesiredPod(key=key(pod), uid=pod["metadata"]["uid"], conditions=(ready,)), "pod"
    )

    async def quarantined() -> bool:
        return await binder.metric("pumice_binder_messages_quarantined_total") == 1

    await until(quarantined, describe=desk.services.logs)
    after = await desk.read("p-0")
    assert after["metadata"]["resourceVersion"] == pod["metadata"]["resourceVersion"]
