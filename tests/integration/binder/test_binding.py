"""Bind intents on the real API server: exactly once in effect, exactly one outcome."""

from shared.contracts.messages import Bind, BindGang, Retry
from tests.integration.binder.conftest import NODES, key, results
from tests.support.wait import until


async def test_a_gang_is_bound_with_its_annotations_and_told_ca06(desk) -> None:
    await desk.binder()
    pods = await desk.pods(20)
    gang = desk.gang(pods, annotations={"volcano.sh/test": "merged"})
    await desk.send(gang)
    outcome = await desk.outcome(gang)
    assert results(outcome) == ["bound"] * 20
    assert [item.uid for item in outcome.items] == [pod["metadata"]["uid"] for pod in pods]
    bound = await desk.read("p-7")
    assert bound["spec"]["nodeName"] == NODES[0]
    assert bound["metadata"]["annotations"]["volcano.sh/test"] == "merged"
    event = await desk.event("p-7", "Scheduled")
    assert event["involvedObject"]["uid"] == bound["metadata"]["uid"]
    assert event["type"] == "Normal"
    announced = await desk.announced("pod.bound", "p-7")
    assert (announced.data.node, announced.data.gang) == (NODES[0], gang.job)
    assert announced.id == f"{gang.id}/{bound['metadata']['uid']}"


async def test_each_pod_of_a_gang_ends_in_its_own_way(desk) -> None:
    await desk.binder()
    free, there, elsewhere, replaced, deleted = await desk.pods(5)
    binding = {"target": {"kind": "Node"}}
    for pod, node in ((there, NODES[0]), (elsewhere, NODES[1])):
        body = {**binding, "metadata": {"name": pod["metadata"]["name"]}}
        body["target"] = {"kind": "Node", "name": node}
        path = f"/api/v1/namespaces/{desk.namespace}/pods/{pod['metadata']['name']}/binding"
        await desk.api.request("POST", path, body)
    for pod in (replaced, deleted):
        await desk.api.delete("pods", desk.namespace, pod["metadata"]["name"], grace_s=0)
    await until(lambda: desk.absent("p-3"), describe="p-3 is gone")
    await desk.pod("p-3")
    gang = desk.gang([free, there, elsewhere, replaced, deleted])
    await desk.send(gang)
    outcome = await desk.outcome(gang)
    assert results(outcome) == ["bound", "bound", "conflict", "gone", "gone"]
    assert outcome.items[2].node == NODES[1]
    assert int(outcome.items[2].rv) > 0
    assert "nodeName" not in (await desk.read("p-3"))["spec"]


async def test_an_intent_that_is_sent_twice_has_one_outcome_and_is_harmless(desk) -> None:
    await desk.binder()
    gang = desk.gang(await desk.pods(3))
    await desk.send(gang)
    first = await desk.outcome(gang)
    await desk.send(gang)

    async def queue_empty() -> bool:
        return await desk.bus.last(desk.streams.command.name, desk.subjects.command(0)) is None

    await until(queue_empty, describe="COMMAND is empty")
    assert await desk.outcomes(gang.id) == [first]


async def test_what_the_api_server_refuses_fails_for_good_and_the_rest_is_bound(desk) -> None:
    await desk.binder()
    gated = await desk.pod("gated", schedulingGates=[{"name": "example.com/wait"}])
    (free,) = await desk.pods(1)
    gang = desk.gang([gated, free])
    await desk.send(gang)
    outcome = await desk.outcome(gang, deadline_s=40)
    assert results(outcome) == ["failed", "bound"]
    assert outcome.items[0].retry in (Retry.NEVER, Retry.LATER)


async def test_two_binders_share_the_work(desk) -> None:
    one = await desk.binder(instance="one")
    two = await desk.binder(instance="two", wait=False)
    await two.ready()
    pods = await desk.pods(60)
    gangs = [desk.gang(pods[i : i + 2], node=NODES[i % 2]) for i in range(0, 60, 2)]
    for gang in gangs:
        await desk.send(gang, partition=0)
    for gang in gangs:
        assert results(await desk.outcome(gang)) == ["bound", "bound"]
    shares = [await binder.metric("pumice_binder_items_total") for binder in (one, two)]
    assert sum(shares) == 60
    assert all(shares), f"one of the two did nothing: {shares}"


async def test_unreadable_commands_are_quarantined_with_their_reason_and_block_nobody(desk) -> None:
    binder = await desk.binder()
    (pod,) = await desk.pods(1)
    broken = desk.intent_id()
    garbage = await desk.send_raw(b"\xff not a message")
    await desk.send_raw(b'{"type":"bind","v":1,"id":"%s","cycle":1}' % broken.encode())
    gang = desk.gang([pod])
    await desk.send(gang)
    assert results(await desk.outcome(gang)) == ["bound"]
    assert len(await until(lambda: desk.outcomes(broken), describe="outcome of the poison")) == 1
    aside = [
        message.payload
        async for message in desk.bus.scan(desk.streams.outcome.name, desk.subjects.poison)
    ]
    assert any(b'"sequence":%d,' % garbage in payload for payload in aside)
    assert await binder.metric("pumice_binder_messages_quarantined_total") == 2


async def test_a_newer_version_is_delayed_and_counted_not_dropped(desk) -> None:
    binder = await desk.binder()
    sequence = await desk.send_raw(b'{"type":"dance","v":999,"id":"from-the-future"}')

    async def counted() -> bool:
        return await binder.metric("pumice_binder_messages_newer_total") >= 1

    await until(counted, describe="the newer message is counted")
    assert await desk.bus.get(desk.streams.command.name, sequence) is not None
    await desk.bus.purge(desk.streams.command.name, desk.subjects.command(0))


async def test_an_unbound_namesake_is_never_touched(desk) -> None:
    await desk.binder()
    (pod,) = await desk.pods(1)
    wrong = Bind(pod=key(pod), uid="11111111-1111-1111-1111-111111111111", node=NODES[0])
    gang = desk.gang([pod])
    gang = type(gang)(id=gang.id, cycle=1, job=gang.job, job_uid=gang.job_uid, binds=(wrong,))
    await desk.send(gang)
    assert results(await desk.outcome(gang)) == ["gone"]
    assert "nodeName" not in (await desk.read("p-0"))["spec"]


async def test_an_intent_out_of_its_bounds_is_quarantined_and_touches_no_pod(desk) -> None:
    await desk.binder()
    (pod,) = await desk.pods(1)
    marked = desk.gang([pod], annotations={"scheduling.k8s.io/group-name": "another"})
    elsewhere = BindGang(
        id=desk.intent_id(), cycle=1, job="default/gang", job_uid="g", binds=desk.gang([pod]).binds
    )
    for intent, words in ((marked, "scheduling.k8s.io/group-name"), (elsewhere, "namespace")):
        await desk.send(intent)
        outcome = await desk.outcome(intent)
        assert results(outcome) == ["failed"]
        assert words in outcome.items[0].message
    after = await desk.read("p-0")
    assert after["metadata"]["resourceVersion"] == pod["metadata"]["resourceVersion"]
