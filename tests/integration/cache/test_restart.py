"""Caches that die, freeze and come back, and a NATS that forgets."""

import asyncio
from pathlib import Path

import pytest

from pumice.local import parts
from pumice.local.control_plane import ControlPlane, ControlPlaneOptions
from pumice.local.nats import NatsServer
from shared.api.kinds import JOB, POD
from shared.kube.client import Kube
from shared.kube.config import connect
from tests.integration.cache.conftest import State
from tests.integration.cache.test_facts import made, nowhere
from tests.support import world
from tests.support.fleet import NEVER, Fleet, fleet
from tests.support.nats_servers import admin_bus
from tests.support.stack import CRDS
from tests.support.wait import until
from tests.support.world import pod


async def test_a_restarted_cache_says_the_differences_only(
    caches: Fleet, state: State, kube: Kube, namespace: str
) -> None:
    first = await caches.start("cache")
    uids = {
        name: await made(kube, POD, namespace, pod(name)) for name in ("stays", "goes", "moves")
    }
    for name in uids:
        await state.says("put", "pods", f"{namespace}/{name}")
    before = await state.message("pods", f"{namespace}/stays")
    first.kill()
    await kube.delete(POD, namespace, "goes", uid=uids["goes"], grace_s=0)
    await kube.bind(namespace, "moves", uid=uids["moves"], node=nowhere(namespace))
    await made(kube, POD, namespace, pod("comes"))
    await caches.start("cache", instance="again")
    await state.marked_by("cache-again")
    await state.says("delete", "pods", f"{namespace}/goes")
    await state.says("put", "pods", f"{namespace}/moves", text=nowhere(namespace))
    await state.says("put", "pods", f"{namespace}/comes")
    after = await state.message("pods", f"{namespace}/stays")
    assert before is not None
    assert after is not None
    assert after.sequence == before.sequence


@pytest.mark.parametrize("point", ["cache.before-publish", "cache.after-publish"])
async def test_nothing_is_lost_when_it_dies_in_a_burst(
    caches: Fleet, state: State, kube: Kube, namespace: str, point: str
) -> None:
    dying = await caches.start("cache", fault=f"{point}@60", wait=False)
    async with asyncio.TaskGroup() as group:
        for index in range(100):
            group.create_task(made(kube, POD, namespace, pod(f"p{index}")))
    await dying.died_at_its_fault()
    await caches.start("cache", instance="again")
    for index in range(100):
        await state.says("put", "pods", f"{namespace}/p{index}")


async def test_a_standby_is_ready_and_takes_over(
    caches: Fleet, state: State, kube: Kube, namespace: str
) -> None:
    first = await caches.start("cache", instance="first")
    await state.marked_by("cache-first")
    await caches.start("cache", instance="second", lease_takeover=NEVER)
    await state.marked_by("cache-first")
    first.kill()
    await made(kube, POD, namespace, pod("p"))
    await state.says("put", "pods", f"{namespace}/p")
    await state.marked_by("cache-second")


async def test_a_frozen_leader_that_wakes_up_is_refused_and_stands_by(
    caches: Fleet, state: State, kube: Kube, namespace: str
) -> None:
    first = await caches.start("cache", instance="first")
    uid = await made(kube, POD, namespace, pod("p"))
    await state.says("put", "pods", f"{namespace}/p")
    await caches.start("cache", instance="second")
    first.process.suspend()
    await state.marked_by("cache-second")
    await kube.bind(namespace, "p", uid=uid, node=nowhere(namespace))
    await state.says("put", "pods", f"{namespace}/p", text=nowhere(namespace))
    first.process.resume()
    await first.said("leadership_lost")
    await first.ready()
    again = await made(kube, POD, namespace, pod("q"))
    assert again
    await state.says("put", "pods", f"{namespace}/q")
    await state.marked_by("cache-second")


async def test_a_nats_that_forgot_everything_is_told_everything_again(
    caches: Fleet, state: State, kube: Kube, namespace: str, nats_server: NatsServer
) -> None:
    cache = await caches.start("cache")
    for name in ("a", "b"):
        await made(kube, POD, namespace, pod(name))
        await state.says("put", "pods", f"{namespace}/{name}")
    await nats_server.restart(kill=True)
    for name in ("a", "b"):
        await state.says("put", "pods", f"{namespace}/{name}")
    await state.marked_by("cache-a")
    await cache.ready()


async def test_a_nats_that_is_away_is_waited_for(
    caches: Fleet, state: State, kube: Kube, namespace: str, nats_server: NatsServer
) -> None:
    cache = await caches.start("cache")
    nats_server.process.kill()
    await until(lambda: _is_unready(cache), describe="not ready without NATS")
    await made(kube, POD, namespace, pod("meanwhile"))
    await nats_server.start()
    await state.says("put", "pods", f"{namespace}/meanwhile")
    await cache.ready()


async def _is_unready(cache) -> bool:
    return "nats" in await cache.unready()


@pytest.mark.timeout(120)
async def test_a_cluster_without_our_kinds_is_complete_until_they_come(tmp_path: Path) -> None:
    async with (
        ControlPlane(ControlPlaneOptions(directory=tmp_path / "plane"), parts.require()) as plane,
        fleet(plane, tmp_path) as services,
        await connect(str(plane.kubeconfig), user_agent="t") as kube,
        admin_bus(plane.nats) as bus,
    ):
        state = State(bus, plane.nats.cluster)
        cache = await services.start("cache")
        await state.marked_by("cache-a")
        await plane.apply_crds(CRDS)
        await kube.create(JOB, "default", world.job("j", world.task("t", 1)))
        await state.says("put", "jobs", "default/j")
        await plane.restart("kube-apiserver", kill=True)
        await made(kube, POD, "default", pod("after"))
        await state.says("put", "pods", "default/after")
        await cache.ready()
