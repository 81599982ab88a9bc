"""The services as processes of their own, one per instance, for tests that break them.

Nothing is handed over but what a deployment hands over: a kubeconfig, the URL of NATS, a user.
"""

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from pumice.local.control_plane import ControlPlane
from pumice.local.nats import NatsServer
from pumice.local.ports import free_port
from pumice.local.process import Process, ProcessSpec, popen, tail
from tests.support import forked as forking
from tests.support.roles import LED, account
from tests.support.wait import until

SERVICES = ("cache", "scheduler", "binder", "controller")
_RUN = "import runpy; runpy.run_module('services.{}', run_name='__main__')"
NEVER = "600s"
"""`--lease-takeover` of a standby that must notice by other means that the leader is gone."""


class Place(NamedTuple):
    """Where services find their API server, if there is one, and NATS without a control plane."""

    kubeconfig: Path | None
    nats: NatsServer


class Service:
    """One service process: start, wait, kill, freeze, thaw."""

    def __init__(self, process: Process, log: Path, address: str, fault: Path | None) -> None:
        self.process = process
        self._log = log
        self.address = address
        self._fault = fault

    @property
    def log(self) -> str:
        """Return everything that the process wrote; a living one writes lines a little later."""
        return self._log.read_text(errors="replace")

    async def said(self, *words: str) -> str:
        """Wait until a line of the log has all these words; return the first one."""

        def probe() -> str:
            lines = self.log.splitlines()
            return next((line for line in lines if all(word in line for word in words)), "")

        return await until(probe, describe=lambda: f"{words} in the log\n{self.log[-3000:]}")

    async def unready(self) -> str:
        """Return "" when /readyz says so, else what is missing."""
        timeout = aiohttp.ClientTimeout(total=2)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(f"http://{self.address}/readyz") as answer,
            ):
                return "" if answer.status == 200 else await answer.text()
        except (aiohttp.ClientError, TimeoutError) as exc:
            return f"{type(exc).__name__} {exc}"

    async def ready(self, *, deadline_s: float = 30) -> None:
        """Wait until the process is ready; fails at once when it ends."""
        await self.process.ready(self.unready, deadline_s=deadline_s)

    async def metric(self, name: str, label: str = "") -> float:
        """Return the sum of a metric's samples (0 when there is none yet).

        With `label`, as the page writes it (`result="bound"`), of those that bear it.
        """
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://{self.address}/metrics") as answer,
        ):
            text = await answer.text()
        pattern = rf"^{re.escape(name)}(\{{[^}}]*\}})? (\S+)$"
        found = re.findall(pattern, text, re.MULTILINE)
        return sum(float(value) for labels, value in found if label in labels)

    async def died_at_its_fault(self, *, deadline_s: float = 30) -> None:
        """Wait until the process has killed itself at the fault point that it was given."""
        fault = self._fault
        assert fault is not None, "started without a fault"

        async def reached() -> bool:
            return fault.exists() and not self.process.pid

        def seen() -> str:
            return "\n".join(["fault point not reached", *tail(self._log, lines=5)])

        await until(reached, deadline_s=deadline_s, describe=seen)

    def kill(self) -> None:
        """Kill -9."""
        self.process.kill()


class Fleet:
    """The services of one control plane; all are killed at the end."""

    def __init__(
        self,
        plane: ControlPlane | Place,
        directory: Path,
        *,
        beside: bool = False,
        nats: NatsServer | None = None,
        forked: bool = True,
    ) -> None:
        """`beside` another installation on the API server the cache leaves the Leases alone.

        `nats` is the server of an installation that is not on the one of the plane. Where start or
        memory of a service is measured, it is not `forked`.
        """
        self._forked = forked
        self._plane = plane
        self._nats = nats or plane.nats
        self._directory = directory
        self._beside = beside
        self.processes: list[Process] = []
        self._logs: set[Path] = set()

    async def start(
        self,
        name: str,
        *,
        instance: str = "a",
        fault: str = "",
        wait: bool = True,
        kubeconfig: Path | str | None = None,
        nats: str = "",
        python: Path | str = sys.executable,
        bug: str = "",
        **flags: str,
    ) -> Service:
        """Start one instance; with `wait` it is ready on return.

        It comes to the API server with its own account. `kubeconfig` and `nats` (a URL) lead it
        there, and to NATS, by another way. `python` is the one of an environment with another
        release. `bug` is a program that plants one before the service runs.
        """
        if kubeconfig is None:
            kubeconfig = self._plane.kubeconfig
            kubeconfig = account(kubeconfig, name) if kubeconfig and name in LED else kubeconfig
        port = free_port()
        log = self._directory / f"{name}-{instance}.log"
        address = f"127.0.0.1:{port}"
        argv = [
            str(python),
            "-P",
            *(("-c", f"{bug}\n{_RUN.format(name)}") if bug else ("-m", f"services.{name}")),
            *([f"--kubeconfig={kubeconfig}"] if kubeconfig else []),
            f"--nats={nats or self._nats.url}",
            f"--instance={name}-{instance}",
            f"--listen-address={address}",
            "--log-format=json",
            *(f"--{key.replace('_', '-')}={value}" for key, value in flags.items()),
        ]
        if self._beside and name == "cache":
            argv.append("--leader-elect=false")
        marks = self._directory / f"faults-{name}-{instance}-{len(self.processes)}"
        if fault:
            argv += [f"--fault={fault}", f"--fault-dir={marks}"]
        spec = ProcessSpec(
            name=f"{name}-{instance}",
            argv=tuple(argv),
            log=log,
            environ=self._nats.environ(name),
        )
        own = python == sys.executable
        process = Process(spec, start=forking.start if own and self._forked else popen)
        self.processes.append(process)
        self._logs.add(log)
        process.start()
        service = Service(process, log, address, marks / fault.partition("@")[0] if fault else None)
        if wait:
            await service.ready()
        return service

    async def start_all(self, *names: str) -> dict[str, Service]:
        """Start one instance of each service (all four without names), ready on return."""
        services = {name: await self.start(name, wait=False) for name in names or SERVICES}
        for service in services.values():
            await service.ready(deadline_s=30)
        return services

    async def stop(self) -> None:
        """Stop everything that was started, at once, as an installation ends."""
        async with asyncio.TaskGroup() as tasks:
            for process in self.processes:
                tasks.create_task(process.stop(grace_s=3), name=process.name)

    def lines(self) -> list[str]:
        """Return every line of all logs."""
        return [line for log in sorted(self._logs) for line in log.read_text().splitlines()]

    def logs(self, lines: int = 12) -> str:
        """Return the ends of all logs, for a failure's message."""
        parts = []
        for log in sorted(self._logs):
            parts += [f"--- {log.name}", *tail(log, lines=lines)]
        return "\n".join(parts)


def resident_mib(pid: int) -> int:
    """Return the resident memory of a process, 0 when there is none."""
    status = Path(f"/proc/{pid}/status")
    if not pid or not status.exists():
        return 0
    sizes = [line for line in status.read_text().splitlines() if line.startswith("VmRSS:")]
    return int(sizes[0].split()[1]) // 1024 if sizes else 0


def largest_mib(nats: int, replicas: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Return the resident memory of NATS and, per service, of its largest replica, given pids."""
    found = {"nats-server": resident_mib(nats)}
    for service, pid in replicas:
        found[service] = max(resident_mib(pid), found.get(service, 0))
    return found


@asynccontextmanager
async def fleet(
    plane: ControlPlane | Place,
    directory: Path,
    **options: Any,
) -> AsyncIterator[Fleet]:
    """Open a fleet against `plane`, with logs in `directory`; `options` are those of `Fleet`."""
    services = Fleet(plane, directory, **options)
    try:
        yield services
    finally:
        await services.stop()
