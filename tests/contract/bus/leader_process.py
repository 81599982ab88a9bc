"""A process that leads when it can and publishes facts as fast as it is answered.

Run as `python leader_process.py <url> <user> <password> <name>`; prints `leading <term>`,
`ended` and, with each fact, nothing: the test reads the stream.
"""

import asyncio
import sys
from functools import partial

import structlog

from shared.bus.nats import NatsBus, from_settings
from shared.contracts.streams import streams
from shared.contracts.subjects import Subjects
from shared.election.leader_elector import FencedStream, LeaderElector, LeadershipTerm
from shared.election.lease import LeaseTiming
from shared.runtime.clock import SystemClock
from shared.runtime.common import CommonSettings
from shared.runtime.values import Secret
from tests.support.nats_servers import lease_of

LEASE = "scheduler"


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def leadership(
    bus: NatsBus,
    name: str,
    on_change=lambda _: None,
    *,
    present=False,
    timing: LeaseTiming | None = None,
) -> LeaderElector:
    """`present` says that the bus listens on the presence subject of `name`."""
    subjects = Subjects(cluster="local")
    declared = streams("local")
    clock = SystemClock()
    lease = lease_of(
        bus,
        name,
        clock=clock,
        timing=timing,
        presence=partial(subjects.presence, LEASE) if present else None,
    )
    return LeaderElector(
        bus,
        lease,
        fenced=[FencedStream(stream=declared.state.name, subject=subjects.leader("state"))],
        service="cache",
        instance=name,
        clock=clock,
        log=structlog.get_logger(),
        on_change=on_change,
    )


async def publish_for_ever(bus: NatsBus, name: str, term: LeadershipTerm) -> None:
    """Publish `name/<n>` under the term's token, pipelined, without waiting for answers."""
    stream = streams("local").state.name
    subject = Subjects(cluster="local").state("pods", f"ns/{name}")
    publisher = bus.publisher(stream)
    count = 0
    while True:
        pending = []
        for _ in range(20):
            count += 1
            pending.append(
                await publisher.submit(
                    f"{subject}-{count}",
                    f"{name}/{count}".encode(),
                    fence=term.token(stream),
                    msg_id=f"{name}-{term.number}-{count}",
                )
            )
        for ack in pending:
            await ack
        await asyncio.sleep(0.005)


async def main(url: str, user: str, password: str, name: str) -> None:
    bus = from_settings(
        CommonSettings(nats=url, nats_user=user, nats_password=Secret(password)),
        service="cache",
        instance=name,
        clock=SystemClock(),
        log=structlog.get_logger(),
        on_status=lambda *, ok, reason: None,
    )

    def changed(term: LeadershipTerm | None) -> None:
        say(f"leading {term.number}" if term else "ended")

    async def body(term: LeadershipTerm) -> None:
        await publish_for_ever(bus, name, term)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(bus.run())
        await bus.connected()
        presence = Subjects(cluster="local").presence(LEASE, name)
        leases = bus.second_connection(
            "leases", presence=presence, on_status=lambda *, ok, reason: None
        )
        tasks.create_task(leases.run())
        await leases.connected()
        tasks.create_task(leadership(leases, name, changed, present=True).run(body))


if __name__ == "__main__":
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    asyncio.run(main(*sys.argv[1:]))
