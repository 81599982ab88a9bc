"""Our services as processes: starts them, waits until they are ready, restarts those that die.

Used by the local stack and by `pumice run`. A service is a process `python -P -m services.<name>`,
or all services are in one process (`InProcessServices`); its listen address is chosen here, so that
its `/readyz` can be asked. A process that dies is started again after a growing delay. One that
ends before it was ready for the first time would end again: that is an error.
"""

import asyncio
import importlib
import random
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, cast

import msgspec

from pumice.local import readiness
from pumice.local.authority import ADMIN_NAME
from pumice.local.errors import LocalError
from pumice.local.names import IN_PROCESS
from pumice.local.nats import NatsServer
from pumice.local.ports import LOOPBACK, claim
from pumice.local.process import Process, ProcessSpec
from shared.runtime.backoff import Backoff
from shared.runtime.common import CommonSettings
from shared.runtime.tasks import TaskGroup

READY_S: Final = 60.0
_REPORT_AFTER_S: Final = 10.0
_REPORT_AGAIN_S: Final = 300.0
"""Seconds until the same message is repeated: a wait for another installation may last."""
_STABLE_S: Final = 60.0
"""A program that ran this long starts its back-off from the beginning."""

_LISTENS: Final = "listen-address"
_CHECK_EVERY_S: Final = 3.0
"""Seconds between two checks of a program that may be alive and not work."""
_NICE: Final = 5
"""Niceness of the services: an API server beside them that gets no time drops its watchers, and
each of those lists everything again."""

Report = Callable[[str], None]


class ServiceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that all services of one stack share."""

    kubeconfig: Path | None
    """None: each finds its cluster itself ($KUBECONFIG, or its own account in a pod)."""
    nats_url: str
    nats: NatsServer | None = None
    """Our own server, which gives each service its user; None: the environment has credentials."""
    cluster: str = "local"
    installation: str = ""
    """Written on the Leases of the cluster: what is registered there is that of their holder."""
    logs: Path | None = None
    """Directory of the logs; None: to our own stderr."""
    log_format: str = "json"
    data: Path | None = None
    """Directory where a service keeps what its next process has to know."""


class Hosted:
    """One service at its address, and the process that it lives in."""

    def __init__(self, service: str, name: str, given: tuple[str, ...], process: Process) -> None:
        """`given` are its flags, of which one says where it listens."""
        self.service = service
        self.name = name
        self.address = _given(given, _LISTENS)
        self.port = int(self.address.rpartition(":")[2])
        self.process = process

    async def probe(self) -> str:
        """Return "" when the service is ready, else the gates that are shut."""
        return await readiness.missing(f"{LOOPBACK}:{self.port}")


class Service(Hosted):
    """One service in a process of its own."""

    def __init__(
        self,
        service: str,
        settings: ServiceSettings,
        *,
        instance: str = "",
        flags: Iterable[str] = (),
    ) -> None:
        """`instance` is the number of a replica; `flags` come last, so that they win."""
        name = instance or service
        argv = flags_of(service, name, settings, flags)
        spec = ProcessSpec(
            name=name,
            argv=(sys.executable, "-P", "-m", f"services.{service}", *argv),
            log=settings.logs / f"{name}.log" if settings.logs else None,
            environ=settings.nats.environ(service) if settings.nats is not None else {},
            nice=_NICE,
        )
        super().__init__(service, name, argv, Process(spec))

    async def start(self) -> None:
        """Start the process and wait until it is ready. Raises LocalError when it is not."""
        self.process.start()
        await self.ready()

    async def ready(self, *, deadline_s: float = READY_S) -> None:
        """Wait until `/readyz` succeeds; LocalError when the process ends or the time passes."""
        await self.process.ready(self.probe, deadline_s=deadline_s)


class InProcessServices:
    """All services in one process, with the bus in memory (`pumice.local.in_process`)."""

    def __init__(
        self, settings: ServiceSettings, directory: Path, *, flags: Mapping[str, tuple[str, ...]]
    ) -> None:
        """`directory` holds the users of the bus; `flags` are those of each service."""
        port = int(settings.nats_url.rpartition(":")[2])
        given = {name: flags_of(name, name, settings, flags[name]) for name in flags}
        arguments = ProcessArguments(
            directory=str(directory), port=port, cluster=settings.cluster, flags=given
        )
        self.process = Process(
            ProcessSpec(
                name=IN_PROCESS,
                argv=(sys.executable, "-P", "-m", "pumice.local.in_process", *arguments.argv()),
                log=settings.logs / f"{IN_PROCESS}.log" if settings.logs else None,
                nice=_NICE,
            )
        )
        self.services = [Hosted(name, name, its, self.process) for name, its in given.items()]

    async def start(self) -> None:
        """Start the process and wait until all are ready. Raises LocalError when they are not."""
        self.process.start()
        await self.process.ready(self.probe, deadline_s=READY_S)

    async def probe(self) -> str:
        """Return "" when all services are ready, else what is missing."""
        missing = {service.name: await service.probe() for service in self.services}
        return _list({name: text for name, text in missing.items() if text})


class ProcessArguments(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of the process that all services live in."""

    directory: str
    port: int
    cluster: str
    flags: Mapping[str, tuple[str, ...]]
    """Service → its flags."""

    def argv(self) -> tuple[str, ...]:
        """Return the arguments: one, in JSON."""
        return (msgspec.json.encode(self).decode(),)


def parse_arguments(argv: Sequence[str]) -> ProcessArguments:
    """Return what the arguments of `ProcessArguments.argv` say."""
    return msgspec.json.decode(argv[0], type=ProcessArguments)


def settings_type(service: str) -> type[CommonSettings]:
    """Return the settings of a service: `<Name>Settings` in its module `settings`."""
    module = importlib.import_module(f"services.{service}.settings")
    return cast("type[CommonSettings]", getattr(module, f"{service.capitalize()}Settings"))


def flags_of(
    service: str, name: str, settings: ServiceSettings, flags: Iterable[str]
) -> tuple[str, ...]:
    """Return all flags of a service, with the address of its readiness page."""
    common = [
        f"--nats={settings.nats_url}",
        f"--cluster={settings.cluster}",
        f"--installation={settings.installation}",
        f"--log-format={settings.log_format}",
    ]
    if settings.kubeconfig is not None:
        common.append(f"--kubeconfig={settings.kubeconfig}")
    if settings.data is not None and service == "scheduler":
        common.append(f"--watchdog-dir={settings.data / f'{name}-watchdog'}")
    if settings.data is not None and service == "accounting":
        common.append(f"--database=sqlite:///{settings.data / 'usage.db'}")
    own = (*_callback_address(service, name, flags), *flags)
    host, _, port = (_given(own, _LISTENS) or f"{LOOPBACK}:0").rpartition(":")
    taken = claim(int(port or 0), owner=name, flag=f"--{service}.{_LISTENS}")
    every = host or "0.0.0.0"  # noqa: S104 - what an empty host means
    return (*common, *own, f"--{_LISTENS}={every}:{taken}")


def _callback_address(service: str, name: str, flags: Iterable[str]) -> tuple[str, ...]:
    """Return where a service listens that the API server calls, outside of its cluster.

    Such a service removes its registration when it ends, so that the API server does not call a
    closed port. After a crash it does: it admits what it cannot ask admission about, and says that
    visibility is unavailable until that is started again.
    """
    if service not in ("admission", "visibility"):
        return ()
    given = tuple(flags)
    port = claim(int(_given(given, "port") or 0), owner=name, flag=f"--{service}.port")
    listens = (f"--port={port}", f"--bind-address={LOOPBACK}")
    if service == "admission":
        return (
            *listens,
            f"--webhook-url=https://{LOOPBACK}:{port}",
            f"--configuration-name=pumice-local-{name}",
            f"--trusted-requesters={ADMIN_NAME}",
            "--unregister=true",
        )
    return (
        *listens,
        f"--external-name={LOOPBACK}",
        "--service-namespace=kube-system",
        f"--service-name=pumice-local-{name}",
    )


def _given(flags: Iterable[str], name: str) -> str:
    """Return the value that `--name=value` has among flags; the last one counts."""
    values = [flag.partition("=")[2] for flag in flags if flag.startswith(f"--{name}=")]
    return values[-1] if values else ""


async def all_ready(services: Iterable[Hosted], *, report: Report, patient: bool) -> None:
    """Wait until every service is ready; reports from time to time which are not, and why.

    Raises LocalError when a process ends, or, unless `patient`, when READY_S pass.
    """
    waiting = {service.name: service for service in services}
    begin = reported_at = time.monotonic()
    reported = ""
    while waiting:
        missing = {}
        for name, service in list(waiting.items()):
            if not service.process.pid:
                raise LocalError(service.process.describe_end())
            if text := await service.probe():
                missing[name] = text
            else:
                del waiting[name]
        now = time.monotonic()
        if missing and not patient and now - begin > READY_S:
            raise LocalError(f"not ready after {READY_S:.0f} s: {_list(missing)}")
        due_s = _REPORT_AFTER_S if (text := _list(missing)) != reported else _REPORT_AGAIN_S
        if missing and now - reported_at >= due_s:
            reported_at, reported = now, text
            report(f"waiting for {text}")
        if missing:
            await asyncio.sleep(0.05)


def _list(missing: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {text}" for name, text in missing.items())


class Supervised(msgspec.Struct, frozen=True, kw_only=True):
    """A program that the supervisor starts again when it dies."""

    process: Process
    start: Callable[[], Awaitable[None]]
    """Starts it and waits until it does its work."""
    needs_restart: Callable[[Report], Awaitable[bool]] | None = None
    """Asked every few seconds: whether the program runs but has stopped working, so that only a
    restart helps. It reports why."""


class Supervisor:
    """Restarts programs that die, after a growing, jittered delay, and reports it."""

    def __init__(
        self,
        supervised: Iterable[Supervised],
        *,
        report: Report,
        check_every_s: float = _CHECK_EVERY_S,
    ) -> None:
        self._supervised = list(supervised)
        self._report = report
        self._check_every_s = check_every_s
        self._rng = random.Random()  # noqa: S311 - jitter

    async def run(self) -> None:
        """Supervise the programs until cancelled."""
        async with TaskGroup() as tasks:
            for entry in self._supervised:
                tasks.create_task(self._supervise(entry), name=f"keep-{entry.process.name}")
                if entry.needs_restart is not None:
                    tasks.create_task(
                        self._check(entry.process, entry.needs_restart),
                        name=f"look-{entry.process.name}",
                    )

    async def _check(
        self, process: Process, needs_restart: Callable[[Report], Awaitable[bool]]
    ) -> None:
        """Stop a program that needs a restart; `_supervise` then starts it as after any exit."""
        while True:
            await asyncio.sleep(self._check_every_s)
            if process.pid and await needs_restart(self._report):
                await process.stop()

    async def _supervise(self, entry: Supervised) -> None:
        backoff = Backoff(first_s=0.2, cap_s=10.0, rng=self._rng)
        while True:
            begin = time.monotonic()
            await entry.process.exited()
            if time.monotonic() - begin > _STABLE_S:
                backoff.reset()
            delay_s = backoff.next_s()
            self._report(f"{entry.process.describe_end()}; starting it again in {delay_s:.1f} s")
            await asyncio.sleep(delay_s)
            try:
                await entry.start()
            except (LocalError, OSError) as error:  # OSError: a disk is full, say
                self._report(f"{entry.process.name} cannot be started: {error}")
                entry.process.kill()
            else:
                self._report(f"{entry.process.name} is back (pid {entry.process.pid})")
