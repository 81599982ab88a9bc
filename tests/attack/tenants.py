"""What tenants may do to the mechanisms that are there for them: consumers, questions."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import nats
from nats.errors import Error as NatsError

from shared.contracts.permissions import EVENTS
from shared.contracts.streams import streams
from tests.attack.arena import Arena, pause
from tests.support import world
from tests.support.api import ApiError
from tests.support.nats_servers import admin_bus
from tests.support.wait import until

MOST_CONSUMERS = 3000
"""Far more than nats-server lets a stream have unless it is told otherwise."""
REFUSED = b'"err_code":10026'
ASKERS = 4
ASK_FOR_S = 12.0
REPLICAS = 400
WHAT_IFS = "/apis/visibility.pumice.dev/v1alpha1/namespaces/{}/whatifs"


async def consumers_used_up(arena: Arena) -> None:
    """Let a subscriber take every consumer of EVENTS, restart all that read it, and give them back.

    The services must work without what they cannot read; none of them may end.
    """
    stream = streams(arena.plane.options.cluster).events.name
    made = await _take_consumers(arena, stream)
    readers = [r for r in arena.replicas if r.service in ("controller", "visibility")]
    try:
        for reader in readers:
            reader.kill()
        for reader in readers:
            await reader.start()
        for reader in readers:
            assert reader.running is not None
            await reader.running.ready(deadline_s=60)
        await pause(5)
        assert not arena.ended(), arena.ended()
    finally:
        async with admin_bus(arena.plane.nats) as bus:
            for name in made:
                await bus._api.call(f"CONSUMER.DELETE.{stream}.{name}", None, dict, about=stream)


async def _take_consumers(arena: Arena, stream: str) -> list[str]:
    """Make durable consumers as the user `events` until the server refuses."""
    password = arena.plane.nats.environ(EVENTS)["PUMICE_NATS_PASSWORD"]
    client = await nats.connect(arena.plane.nats.url, user=EVENTS, password=password)
    made: list[str] = []
    try:
        while len(made) < MOST_CONSUMERS:
            name = f"taken-{len(made)}"
            config = f'"durable_name":"{name}","ack_policy":"explicit","deliver_policy":"new"'
            body = f'{{"stream_name":"{stream}","config":{{{config}}}}}'.encode()
            subject = f"$JS.API.CONSUMER.DURABLE.CREATE.{stream}.{name}"
            answer = await client.request(subject, body, timeout=10)
            if REFUSED in answer.data:
                return made
            assert b'"error"' not in answer.data, answer.data
            made.append(name)
    finally:
        with contextlib.suppress(NatsError):
            await client.close()
    raise AssertionError(f"{len(made)} consumers, and none was refused")


async def what_ifs_killed(arena: Arena) -> None:
    """Ask large what-ifs without a pause, and kill -9 the processes that decide them."""
    victims = arena.of("visibility")
    pids = {victim.process.pid for victim in victims}
    end_s = time.monotonic() + ASK_FOR_S
    killed = 0
    async with asyncio.TaskGroup() as tasks:
        for number in range(ASKERS):
            tasks.create_task(_ask(arena, number, end_s), name=f"ask-{number}")
        while time.monotonic() < end_s:
            for child in children(pids):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
                    killed += 1
            await asyncio.sleep(0.2)
    assert killed, "no what-if was decided in a process of its own"
    assert pids == {victim.process.pid for victim in victims}, "visibility was started anew"
    await until(
        lambda: not list(children(pids)), deadline_s=40, describe="no process of a what-if is left"
    )


async def _ask(arena: Arena, number: int, end_s: float) -> None:
    task = world.task("w", REPLICAS)
    head = {"apiVersion": "visibility.pumice.dev/v1alpha1", "kind": "WhatIf"}
    body = {**head, "spec": {"job": world.job(f"imagined-{number}", task)}}
    while time.monotonic() < end_s:
        with contextlib.suppress(ApiError, aiohttp.ClientError, OSError):  # its process was killed
            async with asyncio.timeout(20):
                await arena.api.request("POST", WHAT_IFS.format(arena.strangers), body)
        await asyncio.sleep(0.05)


def children(parents: set[int]) -> Iterator[int]:
    """Yield the processes that these have started, zombies among them."""
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            if int(parent) in parents:
                yield int(folder.name)
