"""Crashes at every seam, an API server that is away, a NATS that restarts: nothing lost or doubled.

Each test has a NATS of its own, and reaches the shared API server through a proxy.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest

from pumice.local.control_plane import ControlPlane
from pumice.local.nats import NatsServer
from shared.contracts.streams import streams
from tests.integration.binder.conftest import NODES, Desk, results
from tests.support.api import connect
from tests.support.fleet import fleet
from tests.support.nats_servers import admin_bus
from tests.support.proxy import Proxy, kubeconfig_through, proxy
from tests.support.roles import account
from tests.support.wait import until

BIND_POINTS = ["binder.mid-gang", "binder.after-write", "binder.after-outcome"]


class Place(NamedTuple):
    """What a fleet needs to know of a control plane."""

    kubeconfig: Path
    nats: NatsServer


@pytest.fixture
async def api_proxy(control_plane: ControlPlane) -> AsyncIterator[Proxy]:
    async with proxy(control_plane.port) as forwarder:
        yield forwarder


@pytest.fixture
def place(
    control_plane: ControlPlane, nats_server: NatsServer, api_proxy: Proxy, tmp_path: Path
) -> Place:
    config = kubeconfig_through(
        api_proxy, account(control_plane.kubeconfig, "binder"), tmp_path / "kubeconfig"
    )
    return Place(config, nats_server)


@pytest.fixture
async def own_desk(
    place: Place, kubeconfig: Path, binder_nodes: None, namespace: str, tmp_path: Path
) -> AsyncIterator[Desk]:
    async with (
        admin_bus(place.nats) as bus,
        connect(kubeconfig) as api,
        fleet(place, tmp_path) as services,  # type: ignore[arg-type]
    ):
        declared = streams("local")
        await bus.ensure_streams([declared.command, declared.desired, declared.outcome])
        yield Desk(bus, api, services, namespace)


class Judge:
    """Watches the pods of a namespace: which nodes each uid was ever seen on."""

    def __init__(self) -> None:
        self.nodes: dict[str, set[str]] = {}

    async def watch(self, desk: Desk, rv: str) -> None:
        async for event in desk.api.follow("pods", desk.namespace, rv):
            pod = event["object"]
            if node := pod["spec"].get("nodeName"):
                self.nodes.setdefault(pod["metadata"]["uid"], set()).add(node)


@pytest.mark.parametrize("point", BIND_POINTS)
async def test_a_binder_that_dies_at_a_seam_leaves_each_pod_bound_once(own_desk, point) -> None:
    desk, judge = own_desk, Judge()
    doomed = await desk.binder(instance="doomed", fault=point)
    pods = await desk.pods(10)
    listed = await desk.api.get("pods", desk.namespace)
    gang = desk.gang(pods)
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(
            judge.watch(desk, listed["metadata"]["resourceVersion"]), name="judge"
        )
        await desk.send(gang)
        await doomed.died_at_its_fault()
        await desk.binder(instance="next")
        assert results(await desk.outcome(gang)) == ["bound"] * 10

        await until(desk.acknowledged, describe="the intent has left COMMAND")
        await until(lambda: len(judge.nodes) == 10, describe="the judge saw all pods bound")
        watching.cancel()
    assert set(map(frozenset, judge.nodes.values())) == {frozenset({NODES[0]})}
    assert len(await desk.outcomes(gang.id)) == 1


async def test_a_victim_is_deleted_though_its_binder_died_after_the_condition(own_desk) -> None:
    desk = own_desk
    doomed = await desk.binder(instance="doomed", fault="binder.mid-evict")
    victim = await desk.pod("v", nodeName=NODES[0])
    intent = desk.eviction([victim])
    await desk.send(intent)
    await doomed.died_at_its_fault()
    found = await desk.read("v")
    assert "deletionTimestamp" not in found["metadata"]
    await desk.binder(instance="next")
    assert results(await desk.outcome(intent)) == ["evicted"]
    await until(lambda: desk.absent("v"), describe="the victim is gone")


async def test_a_standby_takes_over_what_a_killed_binder_held(own_desk) -> None:
    desk = own_desk
    doomed = await desk.binder(instance="doomed", fault="binder.after-write")
    gang = desk.gang(await desk.pods(2))
    await desk.send(gang)
    await desk.binder(instance="standby")
    await doomed.died_at_its_fault()
    assert results(await desk.outcome(gang)) == ["bound"] * 2


async def test_commands_wait_while_the_api_server_is_away_and_stay_with_their_binder(
    own_desk, api_proxy
) -> None:
    desk = own_desk
    binder = await desk.binder()
    gang = desk.gang(await desk.pods(5))
    api_proxy.cut()
    await desk.send(gang)

    async def unready() -> bool:
        return "api-server" in await binder.unready()

    await until(unready, describe="the binder says that the API server is away")

    async def tried_often() -> bool:
        return await binder.metric("pumice_binder_retries_total") >= 20

    await until(tried_often, deadline_s=20, describe="the binds were tried again and again")
    assert await desk.outcomes(gang.id) == []
    api_proxy.mend()
    assert results(await desk.outcome(gang)) == ["bound"] * 5
    await binder.ready()
    await binder.said("intent_ended")
    ended = [json.loads(line) for line in binder.log.splitlines() if "intent_ended" in line]
    assert [event["attempt"] for event in ended] == [1], "held intents are not redelivered"


async def test_nats_restarts_and_the_work_goes_on(own_desk, nats_server) -> None:
    desk = own_desk
    binder = await desk.binder()
    first = desk.gang(await desk.pods(2, prefix="before"))
    await desk.send(first)
    await desk.outcome(first)
    await nats_server.restart(kill=True)
    await until(lambda: desk.bus.info(desk.streams.command.name), describe="COMMAND is back")
    second = desk.gang(await desk.pods(2, prefix="after"))
    await desk.send(second)
    assert results(await desk.outcome(second)) == ["bound"] * 2
    await binder.ready()
    assert len(await desk.outcomes(first.id)) == 1


async def test_a_command_stream_that_is_made_anew_is_consumed_again(own_desk) -> None:
    desk = own_desk
    await desk.binder()
    stream = desk.streams.command
    answer = await desk.bus._api.call(f"STREAM.DELETE.{stream.name}", None, dict, about="delete")
    assert answer["success"]
    await desk.bus.ensure_streams([stream])
    gang = desk.gang(await desk.pods(2))
    await desk.send(gang)
    assert results(await desk.outcome(gang)) == ["bound"] * 2


async def test_a_finished_intent_is_not_executed_again_when_its_ack_was_lost(own_desk) -> None:
    desk = own_desk
    doomed = await desk.binder(instance="doomed", fault="binder.after-outcome")
    victim = await desk.pod(
        "v", nodeName=f"nowhere-{desk.namespace}", terminationGracePeriodSeconds=0
    )
    intent = desk.eviction([victim])
    await desk.send(intent)
    await doomed.died_at_its_fault()
    (outcome,) = await desk.outcomes(intent.id)
    await desk.binder(instance="next")
    await until(desk.acknowledged, describe="the intent has left COMMAND")
    assert await desk.outcomes(intent.id) == [outcome]
    assert "intent_ended" not in (desk.services.logs(lines=50).split("binder-next.log")[1])


async def test_an_unreachable_api_server_makes_a_binder_unready_not_dead(
    own_desk, api_proxy
) -> None:
    api_proxy.cut()
    binder = await own_desk.binder(wait=False)

    async def says_why() -> bool:
        return "127.0.0.1" in await binder.unready() and "api-server" in await binder.unready()

    await until(says_why, describe="a reason that names the API server")
    api_proxy.mend()
    await binder.ready()
