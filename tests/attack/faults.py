"""The faults of an attack: each strikes an arena under load and may leave things to be mended."""

import resource
import shutil
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

from pumice.local.services import Supervised, Supervisor
from shared.runtime.tasks import TaskGroup
from tests.attack import mechanisms, peers, tenants
from tests.attack.arena import LEADS, Arena, pause
from tests.attack.hostile import hostile_objects
from tests.attack.installations import DOORS, PLAIN, SINGLES
from tests.support.api import ApiError, gone_is_fine
from tests.support.fleet import SERVICES
from tests.support.wait import until

Strike = Callable[[Arena], Awaitable[None]]


class Fault(NamedTuple):
    """One kind of fault."""

    about: str
    strike: Strike
    limit_s: float
    """How long a gang that comes around the fault may wait for its nodes at most."""
    installation: str = PLAIN
    """What it strikes: a key of `installations.INSTALLATIONS`."""


async def kill_one(service: str, arena: Arena) -> None:
    """Kill -9 the leader (or one worker); it comes back after three seconds."""
    victim = await arena.leader(service)
    victim.kill()
    await pause(3)
    await victim.start()


async def kill_all(service: str, arena: Arena) -> None:
    """Kill -9 all replicas of a service; they come back after a second."""
    for replica in arena.of(service):
        replica.kill()
    await pause(1)
    for replica in arena.of(service):
        await replica.start()


async def freeze(service: str, for_s: float, arena: Arena) -> None:
    """SIGSTOP the leader (or one worker), wake it after a while."""
    victim = await arena.leader(service)
    victim.process.suspend()
    await pause(for_s)
    victim.process.resume()


async def cut(service: str, way: str, arena: Arena) -> None:
    """Cut one replica off from NATS or the API server, by refusal or by silence."""
    victim = await arena.leader(service)
    road = victim.nats if way.startswith("nats") else victim.kube
    if way.endswith("silent"):
        road.silence()
    else:
        road.cut()
    await pause(arena.rng.uniform(2, 5))
    road.mend()


async def fault_point(point: str, arena: Arena) -> None:
    """Let a replica die at one of its fault points, in the middle of its work."""
    service = point.partition(".")[0]
    victim = await arena.leader(service)
    victim.kill()
    await victim.start(fault=f"{point}@{arena.rng.randint(1, 5)}")
    if service in LEADS:  # the armed one must lead to come to its point
        for other in arena.of(service):
            if other is not victim:
                await until_leads(arena, victim, other)
    running = victim.running
    assert running is not None
    await running.died_at_its_fault(deadline_s=60)
    await victim.start()


async def until_leads(arena: Arena, victim, other) -> None:
    """Give the lead to `victim`: stop the other once, and start it again."""
    await victim.running.ready(deadline_s=30)
    await other.stop()
    await until(lambda: _leads_or_died(arena, victim), deadline_s=20, describe=f"{victim} leads")
    await other.start()


async def _leads_or_died(arena: Arena, victim) -> bool:
    return not victim.process.pid or await arena.leader(victim.service) is victim


async def roll(arena: Arena) -> None:
    """Restart every replica in turn by SIGTERM; the next when this one is ready, as a rollout."""
    for replica in arena.replicas:
        await replica.stop()
        await replica.start()
        assert replica.running is not None
        await replica.running.ready(deadline_s=40)


async def storm(arena: Arena) -> None:
    """Kill -9 six drawn replicas one after the other, without waiting for any to be back."""
    for _ in range(6):
        victim = arena.rng.choice(arena.replicas)
        victim.kill()
        await pause(arena.rng.uniform(0.1, 1.5))
        await victim.start()


async def nats_killed(arena: Arena) -> None:
    """Kill -9 nats-server: streams in memory are lost."""
    await arena.plane.nats.restart(kill=True)


async def nats_emptied(arena: Arena) -> None:
    """nats-server loses all that it had, memory and disk."""
    nats = arena.plane.nats
    nats.process.kill()
    shutil.rmtree(nats.directory / "jetstream")
    await nats.start()


async def nats_disk_full(arena: Arena) -> None:
    """Let nats-server meet the end of its disk for four seconds.

    It is started again by what keeps it under `pumice up`, as no stream writes before. A limit on
    the size of files stands for the disk.
    """
    nats = arena.plane.nats
    pid, limit, endless = nats.process.pid, resource.RLIMIT_FSIZE, resource.RLIM_INFINITY
    said: list[str] = []
    supervised = Supervised(
        process=nats.process, start=nats.start, needs_restart=nats.needs_restart
    )
    resource.prlimit(pid, limit, (1, endless))
    await pause(4)
    resource.prlimit(pid, limit, (endless, endless))
    async with TaskGroup() as tasks:
        keeping = tasks.create_task(
            Supervisor([supervised], report=said.append).run(), name="supervisor"
        )
        await until(
            lambda: any("is back" in line for line in said),
            deadline_s=30,
            describe=lambda: str(said),
        )
        keeping.cancel()


async def nats_frozen(for_s: float, arena: Arena) -> None:
    """SIGSTOP nats-server for a while."""
    arena.plane.nats.process.suspend()
    await pause(for_s)
    arena.plane.nats.process.resume()


async def program_killed(name: str, arena: Arena) -> None:
    """Kill -9 a program of the control plane and start it again."""
    await arena.plane.restart(name, kill=True)


async def program_frozen(name: str, for_s: float, arena: Arena) -> None:
    """SIGSTOP a program of the control plane for a while."""
    arena.plane.processes[name].suspend()
    await pause(for_s)
    arena.plane.processes[name].resume()


async def hostile(arena: Arena) -> None:
    """Store hostile objects of many kinds for ten seconds, and delete them."""
    stored = []
    for plural, body in hostile_objects(arena.rng):
        try:
            made = await arena.api.create(plural, body, arena.strangers)
        except ApiError:  # the API server itself refuses it
            continue
        stored.append((plural, made["metadata"]["name"]))
    await pause(10)
    for plural, name in stored:
        with gone_is_fine():
            await arena.api.delete(plural, arena.strangers, name, grace_s=0)


def the_leader(service: str) -> str:
    """Return the words for the replica that is struck."""
    name = "scheduler for single pods" if service == SINGLES else service
    return f"the leading {name}" if service in LEADS else f"one {name}"


async def _late(
    strike: Callable[..., Awaitable[None]], for_s: float, what: str, arena: Arena
) -> None:
    """Strike what is named for so long."""
    await strike(what, for_s, arena)


STANDBY_S = 2.5
RESTART_S = 8.0
ELECTION_S = 30.0
"""Each stream, consumer and lease chooses a leader among the servers that are left, some seconds
each on two cores; what has come meanwhile is bound one cycle after the other."""
FAULTS: dict[str, Fault] = {
    **{
        f"kill-{service}": Fault(
            f"kill -9 of {the_leader(service)}, another replica alive",
            partial(kill_one, service),
            STANDBY_S,
        )
        for service in SERVICES
    },
    **{
        f"kill-all-{service}": Fault(
            f"kill -9 of all replicas of the {service}, started again after 1 s",
            partial(kill_all, service),
            RESTART_S,
        )
        for service in SERVICES
    },
    **{
        f"freeze-{service}-{for_s:g}s": Fault(
            f"SIGSTOP of {the_leader(service)} for {for_s:g} s",
            partial(freeze, service, for_s),
            RESTART_S,
        )
        for service in SERVICES
        for for_s in (0.9, 4.0, 12.0)
    },
    **{
        f"cut-{service}-{way}": Fault(
            f"the {service} cut off from {'NATS' if way.startswith('nats') else 'the API server'}"
            f"{' in silence' if way.endswith('silent') else ''} for 2 to 5 s",
            partial(cut, service, way),
            RESTART_S,
        )
        for service in SERVICES
        for way in ("nats", "nats-silent", "api", "api-silent")
        if not (service == "scheduler" and way.startswith("api"))
    },
    **{
        f"die-at-{point}": Fault(
            f"death at the fault point {point}", partial(fault_point, point), 12.0
        )
        for point in (
            "binder.after-write",
            "binder.after-outcome",
            "binder.mid-gang",
            "scheduler.before-publish",
            "cache.before-publish",
            "cache.after-publish",
            "controller.after-group",
            "controller.mid-create",
            "controller.after-status",
        )
    },
    "rolling-restart": Fault("SIGTERM of each replica in turn", roll, 5.0),
    "storm": Fault("kill -9 of six drawn replicas within seconds", storm, 15.0),
    "nats-killed": Fault("kill -9 of nats-server, streams in memory lost", nats_killed, RESTART_S),
    "nats-emptied": Fault("nats-server loses memory and disk", nats_emptied, 20.0),
    "nats-disk-full": Fault("the disk of nats-server is full for 4 s", nats_disk_full, 40.0),
    "nats-frozen-2s": Fault("SIGSTOP of nats-server for 2 s", partial(nats_frozen, 2.0), RESTART_S),
    "nats-frozen-10s": Fault("SIGSTOP of nats-server for 10 s", partial(nats_frozen, 10.0), 20.0),
    "api-server-killed": Fault(
        "kill -9 of kube-apiserver", partial(program_killed, "kube-apiserver"), 30.0
    ),
    "api-server-frozen": Fault(
        "SIGSTOP of kube-apiserver for 5 s", partial(program_frozen, "kube-apiserver", 5.0), 20.0
    ),
    "etcd-killed": Fault("kill -9 of etcd", partial(program_killed, "etcd"), 30.0),
    "hostile-objects": Fault("hostile objects of many kinds for 10 s", hostile, 3.0),
    **{
        f"expressions-{how}": Fault(
            f"{words} of the process that evaluates expressions, for 10 s",
            partial(mechanisms.expressions_struck, how),
            RESTART_S,
        )
        for how, words in (("killed", "kill -9"), ("frozen", "SIGSTOP"))
    },
    "expressions-flooded": Fault(
        "ten claims a second with expressions beyond every limit, for 10 s",
        mechanisms.expressions_flooded,
        RESTART_S,
    ),
    "decision-hangs": Fault(
        "a gang about which a decision of the scheduler never ends",
        mechanisms.decision_hangs,
        30.0,
    ),
    "decision-killed": Fault(
        "kill -9 of the scheduler, twice, in a decision that never ends",
        partial(mechanisms.decision_hangs, kill=True),
        40.0,
    ),
    "decision-hangs-disk-full": Fault(
        "a gang about which a decision never ends, and the disk of the watchdog's files is full",
        partial(mechanisms.decision_hangs, full_disk=True),
        30.0,
    ),
    "quarantine-tampered": Fault(
        "kill -9 of each scheduler, and noise in the files of its watchdog",
        mechanisms.quarantine_tampered,
        15.0,
    ),
    "scheduler-starved": Fault(
        "the schedulers get a twentieth of a processor for 10 s",
        mechanisms.scheduler_starved,
        20.0,
    ),
    "schema-objects": Fault(
        "500 objects drawn from the schemas of all kinds of tenants, up to the largest",
        mechanisms.schema_objects,
        10.0,
    ),
    "jobs-flood": Fault(
        "200 jobs of one tenant at once, with plugin ssh, for which there is no room",
        mechanisms.jobs_flood,
        RESTART_S,
    ),
    "consumers-used-up": Fault(
        "a subscriber takes all consumers of EVENTS, every reader of it killed and started",
        tenants.consumers_used_up,
        RESTART_S,
        "doors",
    ),
    "what-ifs-killed": Fault(
        "kill -9 of each process that decides a what-if, of which four come at once for 12 s",
        tenants.what_ifs_killed,
        RESTART_S,
        "doors",
    ),
    "versions-too-old": Fault(
        "kube-apiserver killed while all services are cut off: every watch meets 410",
        peers.versions_too_old,
        30.0,
    ),
    **{
        f"nats-leader-{how}-{stream}": Fault(
            f"{words} of the one of three nats-servers that leads {stream.upper()}",
            partial(strike, stream),
            ELECTION_S,
            "three-nats",
        )
        for stream in peers.LED
        for how, words, strike in (
            ("killed", "kill -9", peers.nats_leader_killed),
            ("frozen", "SIGSTOP for 5 s", partial(_late, peers.nats_leader_frozen, 5.0)),
            (
                "cut-off",
                "silence to the others for 5 s",
                partial(_late, peers.nats_leader_cut_off, 5.0),
            ),
        )
    },
    "nats-disk-lost": Fault(
        "the disk lost of the one of three nats-servers that leads COMMAND",
        peers.nats_disk_lost,
        ELECTION_S,
        "three-nats",
    ),
    f"kill-{SINGLES}": Fault(
        f"kill -9 of {the_leader(SINGLES)}, another replica alive",
        partial(kill_one, SINGLES),
        STANDBY_S,
        "shards",
    ),
    f"freeze-{SINGLES}-4s": Fault(
        f"SIGSTOP of {the_leader(SINGLES)} for 4 s",
        partial(freeze, SINGLES, 4.0),
        RESTART_S,
        "shards",
    ),
    **{
        f"shard-{how}-{role}": Fault(
            f"both replicas of the scheduler {of} {how} for 12 s, three of its nodes dealt away",
            partial(peers.peer_struck, role, how),
            40.0,
            "shards",
        )
        for role, of in (("scheduler", "for groups"), (SINGLES, "for single pods"))
        for how in ("killed", "frozen")
    },
    **{
        f"{how}-{role}": Fault(f"{words} of {role}", partial(strike, role), RESTART_S, "doors")
        for role in DOORS
        for how, words, strike in (
            ("kill", "kill -9 of one of two replicas", peers.door_killed),
            ("kill-all", "kill -9 of both replicas, started again after 3 s,", peers.doors_killed),
            (
                "freeze-12s",
                "SIGSTOP for 12 s of one of two replicas",
                partial(_late, peers.door_frozen, 12.0),
            ),
        )
    },
}
