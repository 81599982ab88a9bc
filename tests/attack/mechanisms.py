"""Faults of the scheduler's own guards: the process of CEL, the watchdog; and floods of jobs."""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp

from tests.attack.arena import Arena, Replica, pause
from tests.attack.tenants import children
from tests.sim.hostile_objects import (
    LARGEST,
    SIZES,
    OpenApi,
    Planted,
    address,
    as_json,
    draw_objects,
    enlarged,
)
from tests.sim.valid_objects import TENANT, VALID_OBJECTS
from tests.support import world
from tests.support.api import ApiError, gone_is_fine
from tests.support.wait import until
from tests.unit.scheduler.devices import device, device_class, request, slice_of
from tests.unit.scheduler.hostile_expressions import HOSTILE

HOME = "default"
"""Where the objects of these faults are: no namespace whose pods the judge counts."""
CLASS = "attacked"
STRIKE_S = 10.0
CLAIMS = 12
"""Claims with expressions of their own that wait at once."""
FLOOD = 200
DRAWN = "drawn"
DRAWN_COUNT = 500
STORED_BYTES = 64 * 2**20
"""Drawn objects that are there at a time: the API server needs ten times their size in memory."""
DRY_RUN_S = 1.0
"""A form of an object whose dry run takes longer is not stored."""
_CREATED = 201
BATCH = 250
"""Objects that are drawn at once, while nothing is measured."""
BUG = """
import runpy, sys
import services.scheduler.policy.plugins.gang as gang

contribute = gang.Gang.contribute

def slow(self, hooks, cluster):
    contribute(self, hooks, cluster)
    def valid(job):
        while job.key.startswith("default/hangs"):
            pass
        return None
    hooks.job_valid(valid)

gang.Gang.contribute = slow
del sys.argv[1:4]
runpy.run_module("services.scheduler", run_name="__main__")
"""
"""Begins a scheduler whose decision about some gangs never ends; `-P -m services.scheduler` go."""


async def expressions_struck(how: str, arena: Arena) -> None:
    """Kill or freeze the process of CEL each time that it is there, while claims wait for it.

    Afterwards a claim with an expression that nobody has asked for yet gets its device.
    """
    await _offer_devices(arena)
    struck: set[int] = set()
    try:
        for number in range(CLAIMS):
            await _claimant(arena, f"waits-{number}", f'device.driver == "none-{number}"')
        end_s = time.monotonic() + STRIKE_S
        while time.monotonic() < end_s:
            for pid in _evaluating(arena):
                if how == "killed" or pid not in struck:
                    _send(pid, signal.SIGKILL if how == "killed" else signal.SIGSTOP)
                    struck.add(pid)
            await pause(0.2)
            number += 1
            await _claimant(arena, f"waits-{number}", f'device.driver == "none-{number}"')
        assert struck, "no process of CEL was there"
        await _claimant(arena, "benign", 'device.driver.contains("gpu")')
        await _bound(arena, "benign")
    finally:
        await _clear(arena)


async def expressions_flooded(arena: Arena) -> None:
    """Let claims with costly expressions come all the time; a plain one gets its device then."""
    await _offer_devices(arena)
    costly = list(HOSTILE.values())
    end_s = time.monotonic() + STRIKE_S
    number = 0
    try:
        while time.monotonic() < end_s:
            expression = f"{costly[number % len(costly)]} || {number} < 0"
            with contextlib.suppress(ApiError):  # some are beyond the API server's own limit
                await _claimant(arena, f"costly-{number}", expression)
            number += 1
            await pause(0.1)
        await _claimant(arena, "benign", 'device.driver.contains("gpu")')
        await _bound(arena, "benign")
    finally:
        await _clear(arena)


async def decision_hangs(arena: Arena, *, kill: bool = False, full_disk: bool = False) -> None:
    """Let the leading scheduler meet a gang about which its decision never ends.

    With `kill` it is killed in the middle of it, twice: the gang is quarantined after that. With
    `full_disk` no file of the watchdog can be written. The others go on without the gang.
    """
    for replica in arena.of("scheduler") if full_disk else ():
        folder = _watchdog(arena, replica)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name in ("handling", "quarantine.json.new"):
            (folder / name).symlink_to("/dev/full")
    program = arena.directory / "slow-scheduler.py"
    program.write_text(BUG)
    python = arena.directory / "slow-python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {program} "$@"\n')
    python.chmod(0o755)
    replicas = arena.of("scheduler")
    for replica in replicas:
        replica.kill()
    for replica in replicas:
        await _start_slow(arena, replica, python)
    await arena.leader("scheduler")
    known = _logged(arena, "object_quarantined")
    await arena.api.create("jobs", world.job("hangs", world.task("w", 1)), HOME)
    try:
        for _ in range(2 if kill else 0):
            await _kill_in_decision(arena, python, known)
        await until(
            lambda: _logged(arena, "object_quarantined") > known,
            deadline_s=60,
            describe="the gang is quarantined",
        )
        await pause(3)
    finally:
        await _clear(arena)
        for replica in replicas:
            replica.kill()
            shutil.rmtree(_watchdog(arena, replica), ignore_errors=True)
            await replica.start()


async def _kill_in_decision(arena: Arena, python: Path, known: int) -> None:
    """Kill the scheduler that decides about the gang, unless the gang is quarantined already."""
    replicas = arena.of("scheduler")
    await until(
        lambda: (
            any(_is_handling(arena, each) for each in replicas)
            or _logged(arena, "object_quarantined") > known
        ),
        deadline_s=30,
        describe="a decision about the gang has begun",
    )
    victim = next((each for each in replicas if _is_handling(arena, each)), None)
    if victim is None:
        return
    deaths = _logged(arena, "died_while_deciding")
    victim.kill()
    await _start_slow(arena, victim, python)
    await until(
        lambda: _logged(arena, "died_while_deciding") > deaths,
        deadline_s=30,
        describe="the next process has read what the last one did",
    )


async def quarantine_tampered(arena: Arena) -> None:
    """Restart all schedulers on files of the watchdog that say nothing, or what nobody wrote."""
    for replica in arena.of("scheduler"):
        folder = _watchdog(arena, replica)
        replica.kill()
        folder.mkdir(exist_ok=True)
        (folder / "quarantine.json").write_bytes(arena.rng.randbytes(5_000))
        (folder / "handling").write_bytes(b"!" + arena.rng.randbytes(9_000))
        await replica.start(watchdog_dir=str(folder))
    for replica in arena.of("scheduler"):
        assert replica.running is not None
        await replica.running.ready(deadline_s=40)


async def scheduler_starved(arena: Arena) -> None:
    """Give the schedulers a twentieth of a processor; no gang is quarantined for that."""
    known = _logged(arena, "object_quarantined")
    victims = arena.of("scheduler")
    end_s = time.monotonic() + STRIKE_S
    while time.monotonic() < end_s:
        for victim in victims:
            victim.process.suspend()
        await asyncio.sleep(0.38)
        for victim in victims:
            victim.process.resume()
        await asyncio.sleep(0.02)
    assert _logged(arena, "object_quarantined") == known, "a gang was blamed for a slow machine"


async def jobs_flood(arena: Arena) -> None:
    """Let one tenant create jobs with keys of their own all at once, none of which has room."""
    made = []
    for number in range(FLOOD):
        job = world.job(f"flood-{number}", world.task("w", 1, cpu="100000"), plugins={"ssh": []})
        await arena.api.create("jobs", job, HOME)
        made.append(job["metadata"]["name"])
    await pause(5)
    for name in made:
        with gone_is_fine():
            await arena.api.delete("jobs", HOME, name)


async def schema_objects(arena: Arena) -> None:
    """Have 500 objects stored, drawn from the schemas of all kinds of tenants, up to the largest.

    They are sent one after the other, since the largest cost the API server alone seconds of
    processor time, and deleted before they need too much of its memory. A gang runs after at most
    twice the time that it takes without them, and a second: while they are being stored, and once
    they are there.
    """
    with contextlib.suppress(ApiError):  # there since an earlier round
        await arena.api.create("namespaces", {"metadata": {"name": DRAWN}})
    versions = sorted({valid.version for valid in VALID_OBJECTS.values()})
    places = [f"apis/{each}" if "/" in each else f"api/{each}" for each in versions]
    api = OpenApi({p: await arena.api.request("GET", f"/openapi/v3/{p}") for p in places})
    seed = arena.rng.randrange(10**6)
    usual_s = [await _gang_s(arena, f"before-{n}") for n in range(5)]
    beside_s: list[float] = []
    answers: Counter[int] = Counter()
    try:
        while answers[_CREATED] < DRAWN_COUNT and answers.total() < 20 * DRAWN_COUNT:
            seed += 1
            drawn = await asyncio.to_thread(draw_objects, api, TENANT, BATCH, seed)
            async with asyncio.TaskGroup() as tasks:
                storing = tasks.create_task(_store(arena, drawn, answers), name="store")
                while not storing.done():
                    beside_s.append(await _gang_s(arena, f"beside-{len(beside_s)}"))
        after_s = [await _gang_s(arena, f"after-{n}") for n in range(5)]
        usual, beside, after = map(median, (usual_s, beside_s, after_s))
        print(f"{answers[_CREATED]} objects stored, answers {dict(answers)}; a gang runs after")
        print(f"{usual:.2f} s before, {beside:.2f} s meanwhile, {after:.2f} s after", flush=True)
        assert answers[_CREATED] >= DRAWN_COUNT, f"the server refuses nearly all: {answers}"
        assert max(beside, after) <= 2 * usual + 1.0, f"{usual:.2f}, {beside:.2f}, {after:.2f} s"
    finally:
        await _delete_drawn(arena)
        left = [name for plural in TENANT for name in await arena.api.names(address(plural, DRAWN))]
        await _clear(arena)
    assert not left, f"{len(left)} objects cannot be deleted: {left[:5]}"


async def _store(arena: Arena, drawn: Sequence[Planted], answers: Counter[int]) -> None:
    """Send objects one after the other; `answers` counts the status codes, 0 for none.

    All of them are deleted whenever `STORED_BYTES` are stored.

    Half of them are stored in a larger form: the last one before the first that is refused or slow
    in a dry run. A list of 20,000 wrong items costs the API server gigabytes for its error
    message, and some lists that it accepts cost it minutes, whoever reads them.
    """
    stored_bytes = 0
    for one in drawn:
        if answers[_CREATED] == DRAWN_COUNT:
            return
        if stored_bytes > STORED_BYTES:
            await _delete_drawn(arena)
            stored_bytes = 0
        # Without warnings about fields: an answer may have more of them than a client takes.
        url = f"{address(one.plural, DRAWN)}?fieldValidation=Ignore"
        body, part = as_json(one.body), arena.rng.randrange(1000)
        for size in SIZES[: arena.rng.randrange(2 * len(SIZES))]:
            larger = as_json(enlarged(one.body, part, size))
            if len(larger) >= LARGEST:
                break
            sent_s = time.monotonic()
            status = await _sent(arena, "POST", f"{url}&dryRun=All", larger)
            if status != _CREATED or time.monotonic() - sent_s > DRY_RUN_S:
                break
            body = larger
        status = await _sent(arena, "POST", url, body)
        answers[status] += 1
        stored_bytes += len(body) if status == _CREATED else 0


async def _delete_drawn(arena: Arena) -> None:
    """Delete all drawn objects, whatever their finalizers say."""
    at_once = asyncio.Semaphore(8)
    await asyncio.gather(*(_delete_drawn_of(arena, plural, at_once) for plural in TENANT))


async def _delete_drawn_of(arena: Arena, plural: str, at_once: asyncio.Semaphore) -> None:
    free = b'{"metadata":{"finalizers":null}}'
    for name in await arena.api.names(address(plural, DRAWN)):
        url = address(plural, DRAWN, name)
        async with at_once:
            await _sent(arena, "PATCH", url, free, content_type="application/merge-patch+json")
            await _sent(arena, "DELETE", url, b'{"gracePeriodSeconds":0}')


async def _sent(arena: Arena, *request: Any, **more: str) -> int:
    """Send a request; return the status code of the answer, 0 without one."""
    with contextlib.suppress(aiohttp.ClientError):  # answers about hostile objects are no better
        return await arena.api.send(*request, **more)
    return 0


async def _gang_s(arena: Arena, name: str) -> float:
    """Return after how many seconds all pods of a new gang have run."""
    begun = time.monotonic()
    notes = {"pumice.dev/run-seconds": "0.1"}
    await arena.api.create("jobs", world.job(name, world.task("w", 2, annotations=notes)), HOME)

    async def ended() -> bool:
        job = await arena.api.get("jobs", HOME, name)
        return job.get("status", {}).get("state", {}).get("phase") == "Completed"

    await until(ended, deadline_s=60, describe=f"the gang {name} has run")
    return time.monotonic() - begun


# --- the scene -----------------------------------------------------------------------------------


async def _offer_devices(arena: Arena) -> None:
    offered = slice_of("attacked", [device(f"d{n}", n=n) for n in range(32)], allNodes=True)
    for plural, body in (
        ("deviceclasses", device_class(CLASS)),
        ("resourceslices", offered),
    ):
        with contextlib.suppress(ApiError):  # there since an earlier round
            await arena.api.create(plural, body)


async def _claimant(arena: Arena, name: str, expression: str) -> None:
    """Create a claim and the pod that waits for it."""
    asked = request("r", expression, device_class=CLASS)
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
    body = {**head, "metadata": {"name": name}, "spec": {"devices": {"requests": [asked]}}}
    await arena.api.create("resourceclaims", body, HOME)
    using = {"resourceClaims": [{"name": "c", "resourceClaimName": name}]}
    anywhere = [{"operator": "Exists"}]
    pod = world.pod(name, cpu="10m", restartPolicy="Never", tolerations=anywhere, **using)
    await arena.api.create("pods", pod, HOME)


async def _bound(arena: Arena, name: str) -> None:
    async def has_node() -> bool:
        pod = await arena.api.get("pods", HOME, name)
        return bool(pod["spec"].get("nodeName"))

    await until(has_node, deadline_s=60, describe=f"the pod {name} has a node")


async def _clear(arena: Arena) -> None:
    for plural in ("jobs", "pods", "resourceclaims"):

        async def empty(plural: str = plural) -> bool:
            return await arena.api.empty(plural, HOME, grace_s=0)

        await until(empty, deadline_s=60, describe=f"no {plural} are left")


def _evaluating(arena: Arena) -> list[int]:
    """Return the processes that evaluate expressions for schedulers."""
    parents = {replica.process.pid for replica in arena.of("scheduler")} - {0}
    return [pid for pid in children(parents) if b"services.scheduler.cel" in _command(pid)]


def _command(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def _send(pid: int, sign: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, sign)


def _watchdog(arena: Arena, replica: Replica) -> Path:
    return arena.directory / f"watchdog-{replica.letter}"


async def _start_slow(arena: Arena, replica: Replica, python: Path) -> None:
    """Start a scheduler with the bug; what it ends by itself is no complaint."""
    folder = str(_watchdog(arena, replica))
    limits = {"decision_budget": "2s", "decision_limit": "6s", "watchdog_dir": folder}
    await replica.start(python=python, **limits)
    replica.may_end = True


def _is_handling(arena: Arena, replica: Replica) -> bool:
    marker = _watchdog(arena, replica) / "handling"
    return marker.exists() and b"default/hangs" in marker.read_bytes()


def _logged(arena: Arena, word: str) -> int:
    logs: Callable[[], list[str]] = arena.services.lines
    return sum(word in line for line in logs())
