"""Where alerts are made to fire: a local cluster, its services, and a Prometheus that watches it.

It is the cluster of `pumice up` with the declarer as a process beside the others. Each service
comes to NATS and to the API server through a proxy of its own, so that a fault strikes that one
alone. Nothing needs root.

The alerts are those of k8s/monitoring with shorter times, so that a fault of seconds makes them
fire. Prometheus scrapes each second instead of each quarter of a minute, and every window of a rule
is shorter by the same factor: it holds as many samples as in a cluster. For how long a condition
has to last is tried by promtool; here it is some seconds.
"""

import asyncio
import copy
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from pumice.demo.run import FLEET
from pumice.local import admin, names
from pumice.local.control_plane import ControlPlaneOptions
from pumice.local.embedded import ensure
from pumice.local.nats import NatsServer
from pumice.local.ports import LOOPBACK, free_port
from pumice.local.process import Process, ProcessSpec
from pumice.local.services import Service, ServiceSettings
from pumice.local.stack import LocalStack, StackOptions
from services.scheduler.config import DEFAULT_TEXT
from shared.runtime.tasks import TaskGroup
from tests.support.api import Api, connect
from tests.support.goprograms import prometheus
from tests.support.proxy import Proxy, kubeconfig_through, proxy
from tests.support.wait import until
from tools.prometheus import Prometheus, wait_for
from tools.write_chart import replaced
from tools.write_monitoring import rules, scrape

INTERVAL_S: Final = 1
FACTOR: Final = 15
"""Seconds between two scrapes in a cluster; a test compares it with the ServiceMonitor."""
FOR_S: Final = 5
_WINDOW: Final = re.compile(r"\[(\d+)m\]")


def faster(rules: dict[str, Any]) -> dict[str, Any]:
    """Return rules whose times are shorter."""
    changed = copy.deepcopy(rules)
    for group in changed["groups"]:
        for rule in group["rules"]:
            rule["expr"] = shorter(rule["expr"])
            if "for" in rule:
                rule["for"] = f"{FOR_S}s"
    return changed


def shorter(expression: str) -> str:
    """Return an expression whose windows, which are whole minutes, are shorter."""
    return _WINDOW.sub(lambda match: f"[{int(match[1]) * 60 // FACTOR}s]", expression)


DECLARER: Final = "declarer"
_START_S: Final = 180.0
"""Starts of all services on a busy machine."""
_FIRES_S: Final = 60.0
_ENDS_S: Final = 90.0
_LOOK_S: Final = 0.5
_STOP_S: Final = 5.0
_FLAGS: Final = {"scheduler": ("--scheduler-conf={configuration}",)}
_CONFIGURATION: Final = replaced(DEFAULT_TEXT, "allocate,", "allocate, preempt,")
"""The scheduler's configuration: its own, and the action that a panel tells of."""


class Part:
    """One service, and its ways to NATS and to the API server."""

    def __init__(
        self, name: str, settings: ServiceSettings, nats: Proxy, kube: Proxy, flags: tuple[str, ...]
    ) -> None:
        self.name = name
        self.nats = nats
        self.kube = kube
        self._settings = settings
        self._flags = flags
        self.service = Service(name, settings, flags=flags)

    def kill(self) -> None:
        """Kill -9."""
        self.service.process.kill()

    async def start(self) -> None:
        """Start it again, and wait until it is ready."""
        self.service.process.start()
        await self.service.ready(deadline_s=_START_S)

    async def begin_anew(self, *flags: str) -> None:
        """Stop it, and start it with other flags at the same address."""
        await self.service.process.stop(grace_s=_STOP_S)
        listens = f"--listen-address={self.service.address}"
        self.service = Service(self.name, self._settings, flags=(*self._flags, *flags, listens))
        await self.start()


class Site:
    """The cluster that faults strike, and the Prometheus that sees it."""

    def __init__(self, stack: LocalStack, api: Api, folder: Path) -> None:
        self.stack = stack
        self.api = api
        self.folder = folder
        self.parts: dict[str, Part] = {}
        self.watcher = Prometheus(f"http://{LOOPBACK}:{free_port()}")

    @property
    def nats(self) -> NatsServer:
        """The server of the bus."""
        return self.stack.plane.nats

    async def ask(self, expression: str) -> list[dict[str, Any]]:
        """Return the series of an expression at this moment."""
        return await asyncio.to_thread(self.watcher.query, expression)

    async def shows(self, expression: str, *, deadline_s: float = _FIRES_S) -> None:
        """Wait until an expression has a series."""
        await until(
            lambda: self.ask(expression),
            deadline_s=deadline_s,
            describe=expression,
            every_s=_LOOK_S,
        )

    async def firing(self) -> dict[str, list[dict[str, str]]]:
        """Return the labels of all alerts that fire, by their names."""
        return await asyncio.to_thread(self.watcher.firing)

    async def fires(self, alert: str, about: dict[str, str], *, deadline_s: float) -> None:
        """Wait until an alert fires that says so much about what it means."""
        firing: dict[str, list[dict[str, str]]] = {}

        async def seen() -> bool:
            nonlocal firing
            firing = await self.firing()
            return any(about.items() <= labels.items() for labels in firing.get(alert, ()))

        await until(
            seen,
            deadline_s=deadline_s,
            describe=lambda: f"{alert} {about or ''} fires, and what does is {firing}",
            every_s=_LOOK_S,
        )

    async def quiet(self) -> None:
        """Wait until no alert fires."""
        firing: dict[str, list[dict[str, str]]] = {}

        async def silent() -> bool:
            nonlocal firing
            firing = await self.firing()
            return not firing

        await until(silent, deadline_s=_ENDS_S, describe=lambda: f"ends: {firing}", every_s=_LOOK_S)

    async def ready(self) -> None:
        """Wait until all services are ready."""
        for part in self.parts.values():
            await part.service.ready(deadline_s=_START_S)

    async def watched(self) -> None:
        """Wait until each service is scraped and each rule evaluated."""
        for trouble in (self.watcher.down, self.watcher.unwell):
            await asyncio.to_thread(wait_for, trouble.__name__, trouble, deadline_s=_START_S)

    async def queue_open(self) -> None:
        """Wait for the queue that jobs go to."""
        plane = self.stack.plane
        async with admin.connect(plane.url, plane.pki) as client:
            controller = self.parts["controller"].service.process
            await controller.ready(client.queue_open, deadline_s=_START_S)

    async def add(self, name: str, *flags: str, opened: AsyncExitStack) -> None:
        """Start a service behind proxies; it need not be ready on return."""
        plane = self.stack.plane
        nats = await opened.enter_async_context(proxy(plane.nats.port))
        kube = await opened.enter_async_context(proxy(plane.port))
        kubeconfig = self.folder / f"{name}.kubeconfig"
        kubeconfig_through(kube, plane.kubeconfig, kubeconfig)
        settings = ServiceSettings(
            kubeconfig=kubeconfig,
            nats_url=f"nats://{LOOPBACK}:{nats.port}",
            nats=plane.nats,
            cluster=plane.options.cluster,
            logs=plane.logs,
        )
        self.parts[name] = Part(name, settings, nats, kube, flags)
        self.parts[name].service.process.start()

    async def start_nats(self) -> None:
        """Start nats-server after its end; the streams are left to the declarer's process."""
        await self.nats.start()
        await self.nats.declaring.stop()

    async def stop(self) -> None:
        """Stop all services at once."""
        async with TaskGroup() as tasks:
            for name, part in self.parts.items():
                tasks.create_task(part.service.process.stop(grace_s=_STOP_S), name=name)


@asynccontextmanager
async def site(folder: Path, report: Callable[[str], None]) -> AsyncIterator[Site]:
    """Open a site in which all services are ready and watched; everything is below `folder`."""
    options = StackOptions(
        plane=ControlPlaneOptions(directory=folder / "plane", api="embedded"),
        fleet=FLEET,
        services=(),
    )
    async with AsyncExitStack() as opened:
        stack = LocalStack(options, await ensure("embedded", report), report=report)
        await opened.enter_async_context(stack)
        api = await opened.enter_async_context(connect(stack.plane.kubeconfig))
        here = Site(stack, api, folder)
        await stack.plane.nats.declaring.stop()  # a process of its own is the declarer
        opened.push_async_callback(here.stop)
        configuration = folder / "scheduler.conf"
        configuration.write_text(_CONFIGURATION, "utf-8")
        for name in (DECLARER, *names.SERVICES):
            flags = (flag.format(configuration=configuration) for flag in _FLAGS.get(name, ()))
            await here.add(name, *flags, opened=opened)
        await here.ready()
        await here.queue_open()
        await opened.enter_async_context(_watched(here))
        await here.watched()
        yield here


@asynccontextmanager
async def _watched(here: Site) -> AsyncIterator[None]:
    """Run a Prometheus on a site."""
    folder = here.folder / "prometheus"
    folder.mkdir()
    (folder / "alerts.yml").write_text(yaml.safe_dump(faster(rules())), "utf-8")
    (folder / "prometheus.yml").write_text(yaml.safe_dump(_configuration(here)), "utf-8")
    argv = (
        str(prometheus()),
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address={here.watcher.url.removeprefix('http://')}",
        "--log.level=warn",
    )
    process = Process(ProcessSpec(name="prometheus", argv=argv, log=folder / "log"))
    process.start()
    try:
        await process.ready(lambda: _answers(here.watcher), deadline_s=_START_S)
        yield
    finally:
        await process.stop(grace_s=_STOP_S)


async def _answers(watcher: Prometheus) -> str:
    return "" if await asyncio.to_thread(watcher.ready) else "it does not answer yet"


def _configuration(here: Site) -> dict[str, Any]:
    interval = f"{INTERVAL_S}s"
    return {
        "global": {"scrape_interval": interval, "evaluation_interval": interval},
        "rule_files": ["alerts.yml"],
        "scrape_configs": [
            scrape(name, part.service.address, pod=name) for name, part in here.parts.items()
        ],
    }
