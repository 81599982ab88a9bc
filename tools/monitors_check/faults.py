"""For each alert of k8s/monitoring the fault that it tells of, done to a real cluster.

A fault lasts for as long as its context is open; what it broke is whole again behind it.
"""

import asyncio
import resource
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Final, NamedTuple

import aiohttp
import msgspec

from pumice.local import names
from shared.contracts.streams import streams
from shared.runtime.tasks import TaskGroup
from tests.support.api import ApiError
from tests.support.nats_servers import admin_bus
from tests.support.wait import until
from tools.monitors_check.load import NAMESPACE, post
from tools.monitors_check.site import DECLARER, Site

Strike = Callable[[Site], AbstractAsyncContextManager[None]]
_SLOW_S: Final = 15.0
"""Longer than PumiceIntentsWait lets an intent take."""
_LATE_S: Final = 0.55
"""Delay of each packet between admission and the API server: an answer takes more than a second."""
_TAKEOVERS: Final = 4
_TEN_DAYS_S: Final = 10 * 86400
_FEW_BYTES: Final = 4096


class Fault(NamedTuple):
    """One fault, and what its alert says."""

    alert: str
    """Empty: no alert tells of it, but a panel does."""
    about: str
    strike: Strike
    labels: tuple[Mapping[str, str], ...] = ({},)
    """An alert fires with each of these, and maybe more, labels."""
    limit_s: float = 60.0
    """How long the alert may take."""
    shows: str = ""
    """A series that is there once something of this kind has gone wrong."""
    ends: bool = True
    """Whether the alert's end is waited for; not where its window is minutes long."""


@asynccontextmanager
async def services_killed(site: Site) -> AsyncIterator[None]:
    """Kill -9 every service."""
    for part in site.parts.values():
        part.kill()
    yield
    async with TaskGroup() as tasks:
        for name, part in site.parts.items():
            tasks.create_task(part.start(), name=name)


@asynccontextmanager
async def cache_killed(site: Site) -> AsyncIterator[None]:
    """Kill -9 the cache, so that the facts of the leading scheduler grow old."""
    site.parts["cache"].kill()
    yield
    await site.parts["cache"].start()


@asynccontextmanager
async def nats_killed(site: Site) -> AsyncIterator[None]:
    """Kill -9 nats-server."""
    site.nats.process.kill()
    yield
    await site.start_nats()


@asynccontextmanager
async def scheduler_cut_off(site: Site) -> AsyncIterator[None]:
    """Cut the scheduler off from NATS, again and again: each time it leads no more, and again."""
    road = site.parts["scheduler"].nats
    for _ in range(_TAKEOVERS):
        road.cut()
        await site.shows("pumice_leader == 0")
        road.mend()
        await site.shows("pumice_leader == 1")
    yield


@asynccontextmanager
async def state_is_full(site: Site) -> AsyncIterator[None]:
    """Leave no room in the stream of facts, and stop the declarer, which would make some."""
    declared = streams(site.stack.plane.options.cluster).state
    small = msgspec.structs.replace(declared, max_bytes=_FEW_BYTES)
    declarer = site.parts[DECLARER].service.process
    declarer.suspend()
    async with admin_bus(site.nats) as bus:
        await bus.ensure_streams([small])
        yield
        await bus.ensure_streams([declared])
    declarer.resume()


@asynccontextmanager
async def disk_is_full(site: Site) -> AsyncIterator[None]:
    """Let nats-server meet the end of its disk; a limit on the size of files stands for that."""
    limit, endless = resource.RLIMIT_FSIZE, resource.RLIM_INFINITY
    resource.prlimit(site.nats.process.pid, limit, (1, endless))
    yield
    site.nats.process.kill()  # a stream that met a full disk writes again after a restart only
    await site.start_nats()


@asynccontextmanager
async def cache_cut_off(site: Site) -> AsyncIterator[None]:
    """Cut the cache off from the API server."""
    road = site.parts["cache"].kube
    road.cut()
    yield
    road.mend()


@asynccontextmanager
async def api_server_silent(site: Site) -> AsyncIterator[None]:
    """Hold back what goes between binder and API server."""
    road = site.parts["binder"].kube
    road.silence()
    yield
    road.mend()


@asynccontextmanager
async def api_server_slow(site: Site) -> AsyncIterator[None]:
    """Silence binder and API server for a quarter of a minute each time that pods are to be bound.

    In between it lasts until those pods are bound and others are to be.
    """
    road = site.parts["binder"].kube
    held_back: set[str] = set()

    async def unbound() -> set[str]:
        pods = await site.api.items("pods", NAMESPACE)
        return {pod["metadata"]["uid"] for pod in pods if "nodeName" not in pod["spec"]}

    async def others() -> set[str]:
        waiting = await unbound()
        return set() if waiting & held_back else waiting

    async def by_turns() -> None:
        while True:
            found = await until(others, describe="pods are to be bound", every_s=0.01)
            road.silence()
            held_back.update(found, await unbound())
            await asyncio.sleep(_SLOW_S)
            road.mend()

    async with _meanwhile(by_turns()):
        yield
    road.mend()


@asynccontextmanager
async def object_that_cannot_be_read(site: Site) -> AsyncIterator[None]:
    """Store a PodGroup whose amount is none."""
    body = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "no-amount"},
        "spec": {"minMember": 1, "minResources": {"cpu": "1e5.5"}},
    }
    await site.api.create("podgroups", body, NAMESPACE)
    yield
    await site.api.delete("podgroups", NAMESPACE, "no-amount")


@asynccontextmanager
async def admission_cut_off(site: Site) -> AsyncIterator[None]:
    """Cut admission off from the API server, whose queues it has to know."""
    road = site.parts["admission"].kube
    road.cut()
    async with _reviews(site):
        yield
    road.mend()


@asynccontextmanager
async def admission_waits(site: Site) -> AsyncIterator[None]:
    """Let answers of the API server come late to admission."""
    road = site.parts["admission"].kube
    road.delay(_LATE_S)
    async with _reviews(site):
        yield
    road.mend()


@asynccontextmanager
async def certificate_is_old(site: Site) -> AsyncIterator[None]:
    """Have admission show a certificate that has ten days left."""
    admission = site.parts["admission"]
    await admission.begin_anew(f"--certificate-life={_TEN_DAYS_S}")
    yield
    await admission.begin_anew()


@asynccontextmanager
async def _reviews(site: Site) -> AsyncIterator[None]:
    """Ask admission about a job all the time."""

    async def ask() -> None:
        while True:
            with suppress(ApiError, OSError, aiohttp.ClientError):
                await post(site.api, "reviewed", dry_run=True)
            await asyncio.sleep(0.2)

    async with _meanwhile(ask()):
        yield


@asynccontextmanager
async def _meanwhile(work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    async with TaskGroup() as tasks:
        task = tasks.create_task(work, name="meanwhile")
        yield
        task.cancel()


def _jobs(*services: str) -> tuple[Mapping[str, str], ...]:
    return tuple({"job": f"pumice-{service}"} for service in services)


FAULTS: Final = (
    Fault(
        "PumiceServiceDown",
        "kill -9 of every service",
        services_killed,
        _jobs(DECLARER, *names.SERVICES),
    ),
    Fault("PumiceNoCycles", "kill -9 of the cache", cache_killed),
    Fault("PumiceCacheDoesNotPublish", "the stream of facts has no room", state_is_full),
    Fault("PumiceNatsStoresNothing", "the disk of NATS is full", disk_is_full),
    Fault("PumiceIntentsNotTaken", "the API server does not answer the binder", api_server_silent),
    Fault(
        "",
        "the cache is cut off from the API server",
        cache_cut_off,
        (),
        shows="pumice_cache_watch_interruptions_total",
    ),
    Fault(
        "PumiceIntentsWait",
        "the API server answers the binder late",
        api_server_slow,
        limit_s=150,
        shows="pumice_binder_retries_total",
    ),
    Fault(
        "PumiceObjectsQuarantined",
        "a PodGroup has an amount that is none",
        object_that_cannot_be_read,
        ({"job": "pumice-scheduler"},),
        shows="pumice_quarantined_objects",
    ),
    Fault("PumiceAdmissionFails", "admission is cut off from the API server", admission_cut_off),
    Fault("PumiceAdmissionSlow", "the API server answers admission late", admission_waits),
    Fault(
        "PumiceAdmissionCertificateExpires",
        "admission's certificate has ten days left",
        certificate_is_old,
    ),
    Fault("PumiceNoLeader", "kill -9 of NATS", nats_killed, _jobs("cache", "scheduler")),
    Fault(
        "PumiceLeadersChange",
        f"the scheduler is cut off from NATS {_TAKEOVERS} times",
        scheduler_cut_off,
        _jobs("scheduler"),
        ends=False,
    ),
)
"""One fault at least for each alert."""
