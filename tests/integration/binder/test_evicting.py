"""Evict intents on the real API server (D03, CA07, SS11)."""

import pytest

from shared.api.time import parse
from shared.contracts import codec
from shared.contracts.messages import Preemptor
from tests.integration.binder.conftest import NODES, key, results
from tests.support.wait import until


async def running(desk, count: int, **spec) -> list[dict]:
    pods = [await desk.pod(f"v-{n}", nodeName=NODES[0], **spec) for n in range(count)]

    async def all_run() -> bool:
        found = await desk.api.items("pods", desk.namespace)
        return all(pod["status"]["phase"] == "Running" for pod in found)

    await until(all_run, describe="the victims run")
    return pods


def conditions(pod: dict) -> dict[str, tuple[str, str]]:
    found = pod["status"].get("conditions", [])
    return {c["type"]: (c["status"], c.get("reason", "")) for c in found}


async def finalized(desk, pod: dict) -> None:
    """Give a pod a finalizer, so that it can be looked at after its delete."""
    body = {"metadata": {"finalizers": ["example.com/hold"]}}
    await desk.api.patch("pods", desk.namespace, pod["metadata"]["name"], body)


async def test_a_victim_gets_its_conditions_its_events_and_its_own_grace_d03(desk) -> None:
    await desk.binder()
    nowhere = f"nowhere-{desk.namespace}"
    victim = await desk.pod("v-0", nodeName=nowhere, terminationGracePeriodSeconds=25)
    intent = desk.eviction([victim])
    await desk.send(intent)
    assert results(await desk.outcome(intent)) == ["evicted"]
    left = await desk.read("v-0")
    assert left["metadata"]["deletionTimestamp"]
    assert left["metadata"]["deletionGracePeriodSeconds"] == 25
    assert conditions(left)["DisruptionTarget"] == ("True", "PreemptionByScheduler")
    assert conditions(left)["Ready"] == ("False", "Evict")
    event = await desk.event("v-0", "Evict")
    assert event["type"] == "Warning"


async def test_a_victim_whose_conditions_are_there_already_is_deleted_all_the_same(desk) -> None:
    await desk.binder()
    (victim,) = await running(desk, 1)
    present = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": "evicted to make room (preempt)",
    }
    found = await desk.read("v-0")
    others = [c for c in found["status"]["conditions"] if c["type"] != "Ready"]
    ready = {"type": "Ready", "status": "False", "reason": "Evict"}
    body = {"status": {"conditions": [*others, present, ready]}}
    await desk.api.patch("pods", desk.namespace, "v-0", body, sub="status")
    intent = desk.eviction([victim])
    await desk.send(intent)
    assert results(await desk.outcome(intent)) == ["evicted"]
    await until(lambda: desk.absent("v-0"), describe="v-0 is gone")


async def test_a_preemptor_is_nominated_before_its_victims_go_ss11(desk) -> None:
    await desk.binder()
    victims = await running(desk, 3)
    waiting = await desk.pod("waiting")
    preemptor = Preemptor(pod=key(waiting), uid=waiting["metadata"]["uid"], node=NODES[0])
    intent = desk.eviction(victims, preemptor=preemptor)
    await desk.send(intent)
    assert results(await desk.outcome(intent)) == ["evicted"] * 3
    assert (await desk.read("waiting"))["status"]["nominatedNodeName"] == NODES[0]
    announced = await desk.announced("pod.evicted", "v-1")
    assert (announced.data.by, announced.data.preemptor) == ("preempt", preemptor.pod)


@pytest.mark.parametrize("fate", ["gone", "bound"])
async def test_victims_are_spared_when_their_preemptor_needs_no_room(desk, fate) -> None:
    await desk.binder()
    victims = await running(desk, 2)
    where = {"nodeName": NODES[1]} if fate == "bound" else {}
    waiting = await desk.pod("waiting", **where)
    if fate == "gone":
        await desk.api.delete("pods", desk.namespace, "waiting", grace_s=0)
        await until(lambda: desk.absent("waiting"), describe="the preemptor is gone")
    preemptor = Preemptor(pod=key(waiting), uid=waiting["metadata"]["uid"], node=NODES[0])
    intent = desk.eviction(victims, preemptor=preemptor)
    await desk.send(intent)
    assert results(await desk.outcome(intent)) == ["spared"] * 2
    for victim in victims:
        found = await desk.read(victim["metadata"]["name"])
        assert "deletionTimestamp" not in found["metadata"]
        assert "DisruptionTarget" not in conditions(found)


async def test_a_binder_that_slept_evicts_no_pod_that_has_finished_meanwhile(desk) -> None:
    binder = await desk.binder()
    victims = await running(desk, 4)
    seen = [await desk.read(victim["metadata"]["name"]) for victim in victims]
    intent = desk.eviction(seen)
    binder.process.suspend()
    await desk.send(intent)
    for name, phase in (("v-0", "Succeeded"), ("v-1", "Failed")):
        await desk.api.patch("pods", desk.namespace, name, {"status": {"phase": phase}}, "status")
    await desk.api.patch("pods", desk.namespace, "v-2", {"metadata": {"labels": {"a": "b"}}})
    binder.process.resume()
    assert results(await desk.outcome(intent)) == ["spared", "spared", "evicted", "evicted"]
    for name, phase in (("v-0", "Succeeded"), ("v-1", "Failed")):
        left = await desk.read(name)
        assert left["status"]["phase"] == phase
        assert "deletionTimestamp" not in left["metadata"]
        assert "DisruptionTarget" not in conditions(left)


async def test_a_victim_that_is_gone_or_leaving_is_told_as_such(desk) -> None:
    await desk.binder()
    gone, leaving = await running(desk, 2)
    await finalized(desk, leaving)
    for pod in (gone, leaving):
        await desk.api.delete("pods", desk.namespace, pod["metadata"]["name"], grace_s=0)
    await until(lambda: desk.absent("v-0"), describe="v-0 is gone")
    intent = desk.eviction([gone, leaving])
    await desk.send(intent)
    assert results(await desk.outcome(intent)) == ["gone", "evicted"]
    await desk.api.patch("pods", desk.namespace, "v-1", {"metadata": {"finalizers": None}})


async def test_a_pod_of_another_scheduler_is_not_touched_whoever_asks(desk) -> None:
    await desk.binder()
    foreign = await desk.pod("foreign", schedulerName="default-scheduler")
    ours = await desk.pod("ours")
    intent = desk.eviction([foreign, ours])
    await desk.send(intent)
    outcome = await desk.outcome(intent)
    assert results(outcome) == ["failed", "evicted"]
    assert "schedulerName is 'default-scheduler'" in outcome.items[0].message
    after = await desk.read("foreign")
    assert after["metadata"]["resourceVersion"] == foreign["metadata"]["resourceVersion"]


async def test_an_intent_without_the_token_of_a_leader_is_quarantined(desk) -> None:
    await desk.binder()
    pod = await desk.pod("kept")
    intent = desk.eviction([pod])
    publisher = desk.bus.publisher(desk.streams.command.name)
    await publisher.publish(desk.subjects.command(0), codec.encode(intent))
    outcome = await desk.outcome(intent)
    assert results(outcome) == ["failed"]
    assert "without the token of a leader" in outcome.items[0].message
    after = await desk.read("kept")
    assert after["metadata"]["resourceVersion"] == pod["metadata"]["resourceVersion"]


async def test_a_pod_of_another_scheduler_is_not_nominated_and_nothing_goes_for_it(desk) -> None:
    await desk.binder(scheduler_name="other,volcano")
    (victim,) = await running(desk, 1)
    foreign = await desk.pod("foreign", schedulerName="nobody")
    asking = Preemptor(pod=key(foreign), uid=foreign["metadata"]["uid"], node=NODES[0])
    intent = desk.eviction([victim], preemptor=asking)
    await desk.send(intent)
    outcome = await desk.outcome(intent)
    assert results(outcome) == ["failed"]
    assert outcome.items[0].message == "the preemptor cannot be nominated"
    after = await desk.read("foreign")
    assert after["metadata"]["resourceVersion"] == foreign["metadata"]["resourceVersion"]
    assert "deletionTimestamp" not in (await desk.read("v-0"))["metadata"]
    ours = await desk.pod("ours")
    asking = Preemptor(pod=key(ours), uid=ours["metadata"]["uid"], node=NODES[0])
    intent = desk.eviction([victim], preemptor=asking)
    await desk.send(intent)
    assert results(await desk.outcome(intent)) == ["evicted"]
    assert (await desk.read("ours"))["status"]["nominatedNodeName"] == NODES[0]


async def test_a_victim_has_its_grace_from_the_notice_on_though_the_binder_dies(desk) -> None:
    limit = {"eviction_grace_max": "60s"}
    binder = await desk.binder(**limit)
    asks = {"metadata": {"annotations": {"pumice.dev/checkpoint-grace": "8s"}}}
    (victim,) = await running(desk, 1)
    await desk.api.patch("pods", desk.namespace, "v-0", asks)
    intent = desk.eviction([victim])
    await desk.send(intent)

    async def notice() -> str:
        found = (await desk.read("v-0"))["metadata"]["annotations"]
        return str(found.get("pumice.dev/eviction-notice", ""))

    text = await until(notice, describe=desk.services.logs)
    given, _, by = text.partition(" ")
    assert by == intent.id
    binder.kill()
    await desk.binder(instance="b", **limit)
    assert results(await desk.outcome(intent, deadline_s=60)) == ["evicted"]
    (outcome,) = await desk.outcomes(intent.id)
    assert outcome.time - parse(given) >= 8


async def test_a_victim_is_called_at_its_own_address_within_its_grace(desk) -> None:
    binder = await desk.binder(eviction_grace_max="60s")
    notes = {
        "pumice.dev/checkpoint-grace": "2s",
        "pumice.dev/checkpoint-signal": "http://:8080/save",
    }
    (victim,) = await running(desk, 1)
    await desk.api.patch("pods", desk.namespace, "v-0", {"metadata": {"annotations": notes}})
    address = {"podIP": "203.0.113.9", "podIPs": [{"ip": "203.0.113.9"}]}  # nobody has it
    await desk.api.patch("pods", desk.namespace, "v-0", {"status": address}, sub="status")
    intent = desk.eviction([victim])
    await desk.send(intent)
    assert results(await desk.outcome(intent)) == ["evicted"]
    await binder.said("checkpoint_signal", f"{desk.namespace}/v-0")
