"""Faults of what stands beside the plain installation: more NATS servers, shards, doors, old reads.

Each strikes an installation of its own (`tests.attack.installations`).
"""

import json
from collections.abc import Iterator

from shared.contracts.streams import streams
from tests.attack.arena import HALF, NODES, Arena, deal_nodes, pause
from tests.attack.installations import AGENT, SINGLES
from tests.support.nats_servers import NatsCluster
from tests.support.wait import until

STREAMED = "sendInitialEvents=true"
LED = ("state", "command", "lease")
"""Streams whose leader is struck."""


async def _leading(arena: Arena, stream: str) -> tuple[NatsCluster, int]:
    three = arena.plane.nats
    assert isinstance(three, NatsCluster), "an installation on three NATS servers"
    name = str(getattr(streams(arena.plane.options.cluster), stream).name)
    return three, await three.leader_of(name)


async def nats_leader_killed(stream: str, arena: Arena) -> None:
    """Kill -9 the server that leads a stream; it comes back after three seconds."""
    three, number = await _leading(arena, stream)
    three.servers[number].process.kill()
    await pause(3)
    await three.restart_one(number)


async def nats_leader_frozen(stream: str, for_s: float, arena: Arena) -> None:
    """SIGSTOP the server that leads a stream."""
    three, number = await _leading(arena, stream)
    three.servers[number].process.suspend()
    await pause(for_s)
    three.servers[number].process.resume()
    await three.healthy(number)


async def nats_leader_cut_off(stream: str, for_s: float, arena: Arena) -> None:
    """Cut the server that leads a stream off from the other two in silence, not from clients."""
    three, number = await _leading(arena, stream)
    three.cut_off(number, silently=True)
    await pause(for_s)
    three.rejoin(number)
    await three.healthy()


async def nats_disk_lost(arena: Arena) -> None:
    """Let the server that leads COMMAND lose its disk, and start it without."""
    three, number = await _leading(arena, "command")
    await three.lose_disk(number)
    await pause(3)
    await three.restart_one(number)


async def peer_struck(role: str, how: str, arena: Arena) -> None:
    """Kill or freeze both replicas of one scheduler, and deal nodes of its shard to the other.

    While its installation lives nobody takes nodes from it (ADR 33): the other goes on with its
    own, and gets the nodes once the one is back and has given them up. The judge holds both to it
    that no node is in use by two.
    """
    victims = arena.of(role)
    shard = AGENT if role == SINGLES else "volcano"
    other = "volcano" if role == SINGLES else AGENT
    moved = {f"node-{number}" for number in _moved(role)}
    assert moved <= arena.judge.in_use(shard), f"{shard} uses {arena.judge.in_use(shard)}"
    for victim in victims:
        if how == "killed":
            victim.kill()
        else:
            victim.process.suspend()
    await deal_nodes(arena.api, HALF + (3 if role == SINGLES else -3))
    await pause(12)
    assert not moved & arena.judge.in_use(other), f"{other} uses nodes that were not given up"
    for victim in victims:
        if how == "killed":
            await victim.start()
        else:
            victim.process.resume()
    await until(
        lambda: moved <= arena.judge.in_use(other),
        deadline_s=45,
        describe=lambda: f"{other} has {moved}: it uses {arena.judge.in_use(other)}",
    )
    await deal_nodes(arena.api, HALF)
    await until(
        lambda: moved <= arena.judge.in_use(shard),
        deadline_s=45,
        describe=lambda: f"{shard} has {moved} again: it uses {arena.judge.in_use(shard)}",
    )


def _moved(role: str) -> Iterator[int]:
    """Yield the numbers of the nodes that a struck scheduler loses."""
    yield from range(HALF, HALF + 3) if role == SINGLES else range(HALF - 3, HALF)
    assert HALF + 3 <= NODES


async def versions_too_old(arena: Arena) -> None:
    """Restart the API server while all services are away: each watch then resumes too late (410).

    The new API server knows no change before its start, so that the versions at which the services
    were cut off have expired. Each kind that a service watches must be listed anew.
    """
    watched = set(_lists(arena, 0))
    assert watched, "the audit log shows no watch of a service"
    size = (arena.plane.logs / "audit.log").stat().st_size
    for replica in arena.replicas:
        replica.kube.cut()
    await pause(2)
    await arena.plane.restart("kube-apiserver", kill=True)
    for replica in arena.replicas:
        replica.kube.mend()

    def missing() -> set[tuple[str, str]]:
        return watched - set(_lists(arena, size))

    await until(
        lambda: not missing(),
        deadline_s=60,
        describe=lambda: f"each kind is listed anew; not yet: {sorted(missing())}",
    )


def _lists(arena: Arena, offset: int) -> Iterator[tuple[str, str]]:
    """Yield program and resource of the streamed lists in the audit log, from a place on."""
    with (arena.plane.logs / "audit.log").open("rb") as log:
        log.seek(offset)
        for line in log:
            if STREAMED.encode() not in line or not line.endswith(b"\n"):
                continue
            try:
                entry = json.loads(line)
            except ValueError:  # we began in its middle
                continue
            program = entry.get("userAgent", "").partition("/")[0]
            if program.startswith("pumice"):
                ref = entry.get("objectRef") or {}
                yield program, f"{ref.get('resource')}.{ref.get('apiGroup', '')}"


async def door_killed(role: str, arena: Arena) -> None:
    """Kill -9 one of two replicas that the API server calls; it comes back after three seconds."""
    victim = arena.rng.choice(arena.of(role))
    victim.kill()
    await pause(3)
    await victim.start()


async def door_frozen(role: str, for_s: float, arena: Arena) -> None:
    """SIGSTOP one of two replicas that the API server calls."""
    victim = arena.rng.choice(arena.of(role))
    victim.process.suspend()
    await pause(for_s)
    victim.process.resume()


async def doors_killed(role: str, arena: Arena) -> None:
    """Kill -9 both replicas; they come back after three seconds."""
    for victim in arena.of(role):
        victim.kill()
    await pause(3)
    for victim in arena.of(role):
        await victim.start()
