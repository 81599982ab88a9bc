"""What goes wrong while the workload runs. Each ends by itself, and `heal` mends what it left."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from shared.contracts import codec
from shared.contracts.leases import LeaseRecord
from shared.contracts.streams import streams
from shared.runtime.faults import POINTS
from tests.attack.hostile import hostile_objects
from tests.sim.cluster import Refused
from tests.sim.machine import SERVICES
from tests.sim.simloop import SimClock
from tests.sim.three import ThreeServers
from tests.sim.workloads import STRANGERS

if TYPE_CHECKING:
    from tests.sim.simulation import Simulation

Nemesis = Callable[["Simulation"], Awaitable[None]]
CHAOS_S = 25.0
"""How long things go wrong, in virtual seconds."""


async def delay(sim: "Simulation") -> None:
    """A slow network: tens of milliseconds on every way."""
    sim.network.mean_s = sim.rng.uniform(0.01, 0.06)
    sim.tell("slow network", mean_s=round(sim.network.mean_s, 4))


async def reorder(sim: "Simulation") -> None:
    """An uneven network: some messages are overtaken by everything on other connections."""
    sim.network.spike_share = sim.rng.uniform(0.02, 0.2)
    sim.network.spike_s = sim.rng.uniform(0.1, 0.6)
    sim.tell("uneven network", share=round(sim.network.spike_share, 3))


async def duplicate(sim: "Simulation") -> None:
    """Acknowledgements are lost, and so are answers of the API server to what it has done."""
    sim.network.lost_share = sim.rng.uniform(0.1, 0.6)
    sim.api_faults.lost_share = sim.rng.uniform(0.01, 0.08)
    sim.tell("lost acknowledgements", share=round(sim.network.lost_share, 3))


async def refusals(sim: "Simulation") -> None:
    """The API server answers 409, 429, 500 and 503 to some requests."""
    sim.api_faults.refused_share = sim.rng.uniform(0.03, 0.25)
    sim.tell("refusals", share=round(sim.api_faults.refused_share, 3))


async def kills(sim: "Simulation") -> None:
    """Kill -9 of one service after the other, each started again a little later."""
    for _ in range(sim.rng.randint(2, 5)):
        await asyncio.sleep(sim.rng.uniform(0.5, 5))
        victim = sim.rng.choice(sim.machines)
        victim.kill()
        sim.restart_later(victim)


async def faults(sim: "Simulation") -> None:
    """Services die at their fault points: between two effects that belong together."""
    for _ in range(sim.rng.randint(2, 4)):
        point = sim.rng.choice(sorted(POINTS))
        for machine in sim.machines:
            if point.startswith(machine.service):
                machine.faults.arm(point, sim.rng.randint(1, 4))
        await asyncio.sleep(sim.rng.uniform(1, 6))


async def restarts(sim: "Simulation") -> None:
    """A rolling restart in order (SIGTERM) of each service."""
    for service in sim.rng.sample(SERVICES, len(SERVICES)):
        await asyncio.sleep(sim.rng.uniform(0.5, 3))
        for machine in sim.machines:
            if machine.service == service:
                machine.stop()
                sim.restart_later(machine)


async def watch_gap(sim: "Simulation") -> None:
    """Watches break, and what they would go on from is too old (410): all is listed again."""
    for _ in range(sim.rng.randint(2, 6)):
        await asyncio.sleep(sim.rng.uniform(0.5, 4))
        gap = sim.rng.random() < 0.7
        sim.tell("watches broken", gap=gap)
        if gap:
            sim.server.compact()
        sim.break_watches()


async def nats_memory(sim: "Simulation") -> None:
    """NATS is killed and comes back without what it had in memory."""
    for _ in range(sim.rng.randint(1, 3)):
        await asyncio.sleep(sim.rng.uniform(1, 8))
        sim.tell("nats killed")
        sim.nats.kill()
        await asyncio.sleep(sim.rng.choice((0.05, 0.5, 3.0)))
        sim.nats.start()
        sim.tell("nats started")


async def nats_of_three(sim: "Simulation") -> None:
    """NATS has three servers; one after the other is killed or cut off from the other two."""
    nats = sim.nats
    assert isinstance(nats, ThreeServers), "the simulation makes them for this nemesis"
    for _ in range(sim.rng.randint(2, 5)):
        await asyncio.sleep(sim.rng.uniform(0.5, 4))
        member = nats.draw()
        if sim.rng.random() < 0.6:
            sim.tell("nats server killed", member=member)
            nats.kill_one(member)
            await asyncio.sleep(sim.rng.uniform(0.1, 4))
            nats.start_one(member)
        else:
            silently, for_s = sim.rng.random() < 0.7, sim.rng.uniform(0.5, 15)
            sim.tell("nats server cut off", member=member, silently=silently)
            nats.cut_one(member, silently=silently)
            await asyncio.sleep(for_s)
            nats.mend_one(member)
        sim.tell("nats server back", member=member)


async def crowd(sim: "Simulation") -> None:
    """Three replicas of every service; kills and restarts come too fast for any to lead long."""
    for service in SERVICES:
        running = {m.instance for m in sim.machines if m.service == service}
        for letter in "abc":
            if f"{service}-{letter}" not in running:
                sim.add(service, letter)
    for _ in range(sim.rng.randint(6, 12)):
        await asyncio.sleep(sim.rng.uniform(0.1, 2.5))
        victim = sim.rng.choice(sim.machines)
        if sim.rng.random() < 0.6:
            victim.kill()
        else:
            victim.stop()
        sim.restart_later(victim)


async def hostile(sim: "Simulation") -> None:
    """A tenant stores hostile objects, which must stop no service, and deletes them later."""
    stored = []
    for _ in range(sim.rng.randint(1, 3)):
        for plural, body in hostile_objects(sim.rng):
            await asyncio.sleep(sim.rng.uniform(0, 0.3))
            try:
                made = sim.cluster.create(plural, body, STRANGERS)
            except Refused:
                continue
            stored.append((plural, made["metadata"]["name"]))
    await asyncio.sleep(sim.rng.uniform(0, 8))
    for plural, name in stored:
        with contextlib.suppress(Refused):  # a controller was faster
            sim.cluster.delete(plural, STRANGERS, name)
    sim.tell("strangers gone", objects=len(stored))


async def nats_frozen(sim: "Simulation") -> None:
    """NATS stops answering for a while."""
    await asyncio.sleep(sim.rng.uniform(1, 8))
    sim.tell("nats frozen")
    sim.nats.freeze()
    await asyncio.sleep(sim.rng.choice((0.8, 2.0, 9.0)))
    sim.nats.thaw()
    sim.tell("nats thawed")


async def connections(sim: "Simulation") -> None:
    """Connections to NATS break, each process's on its own."""
    for _ in range(sim.rng.randint(3, 8)):
        await asyncio.sleep(sim.rng.uniform(0.2, 3))
        victim = sim.rng.choice(sim.machines)
        sim.tell("connection broken", instance=victim.instance)
        victim.break_connections()


async def partition(sim: "Simulation") -> None:
    """A process is cut off from everything, long enough that another takes over, and comes back."""
    for _ in range(sim.rng.randint(1, 3)):
        await asyncio.sleep(sim.rng.uniform(0.5, 4))
        victim = sim.rng.choice(sim.machines)
        for_s = sim.rng.uniform(0.5, 6)
        sim.tell("cut off", instance=victim.instance, for_s=round(for_s, 2))
        await victim.cut_off(for_s)
        sim.tell("back", instance=victim.instance)


async def leases(sim: "Simulation") -> None:
    """Leases are lost again and again: given back behind their holder's back, taken by a stranger
    that never renews, or not renewed in time since answers come too late."""
    for _ in range(sim.rng.randint(8, 30)):
        await asyncio.sleep(sim.rng.uniform(0.05, 1.5))
        _take_leases(sim, holder=sim.rng.choice(("", "", "stranger.0")))
        if sim.rng.random() < 0.4:
            await asyncio.sleep(sim.rng.uniform(0, 0.4))
            sim.tell("answers come late")
            sim.nats.freeze()
            await asyncio.sleep(sim.rng.uniform(0.5, 2.5))
            sim.nats.thaw()


def _take_leases(sim: "Simulation", *, holder: str) -> None:
    stream = sim.nats.jetstream.streams.get(streams("local").lease.name)
    held = {m.subject for m in stream.messages() if ".lease." in m.subject} if stream else ()
    subjects = sorted(held)
    if stream is None or not subjects:
        return
    victims = sim.rng.sample(subjects, sim.rng.randint(1, len(subjects)))
    sim.tell("leases lost", leases=sorted(victims), to=holder)
    record = LeaseRecord(holder=holder, renewals=0, time=SimClock().now())
    for subject in victims:
        stream.publish(subject, codec.encode(record), None, now=SimClock().now())


async def binders_frozen(sim: "Simulation") -> None:
    """All binders are stopped (SIGSTOP) for long: what they had in hand is done when they wake."""
    await asyncio.sleep(sim.rng.uniform(2, 10))
    for_s = sim.rng.uniform(8, 40)
    sim.tell("binders frozen", for_s=round(for_s, 2))
    binders = [machine for machine in sim.machines if machine.service == "binder"]
    await asyncio.gather(*(machine.cut_off(for_s) for machine in binders))
    sim.tell("binders woken")


async def api_away(sim: "Simulation") -> None:
    """The API server refuses connections for a while."""
    await asyncio.sleep(sim.rng.uniform(1, 8))
    sim.tell("api server away")
    sim.api_faults.away = True
    sim.break_watches()
    await asyncio.sleep(sim.rng.choice((0.5, 3.0, 8.0)))
    sim.api_faults.away = False
    sim.tell("api server back")


NEMESES: dict[str, Nemesis] = {
    "delay": delay,
    "reorder": reorder,
    "duplicate": duplicate,
    "refusals": refusals,
    "kills": kills,
    "faults": faults,
    "restarts": restarts,
    "watch_gap": watch_gap,
    "nats_memory": nats_memory,
    "nats_frozen": nats_frozen,
    "nats_of_three": nats_of_three,
    "crowd": crowd,
    "hostile": hostile,
    "connections": connections,
    "partition": partition,
    "leases": leases,
    "api_away": api_away,
    "binders_frozen": binders_frozen,
}
