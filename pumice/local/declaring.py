"""Declares the streams of a local NATS server for as long as the server runs.

What `services.declarer` is in a cluster is a task here, in the process that started the server:
`pumice up`'s holder, `pumice run`, the demo or a test.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from pumice.local.errors import LocalError
from shared.bus.client import Dial
from shared.bus.declarer import Declarer
from shared.bus.nats import from_settings, running
from shared.contracts.permissions import DECLARER
from shared.contracts.streams import (
    Storage,
    Streams,
    all_streams,
    copied,
    durable_consumers,
    streams,
    with_copies_of_events,
)
from shared.runtime.clock import SystemClock
from shared.runtime.common import CommonSettings
from shared.runtime.errors import PumiceError, leaves
from shared.runtime.health import Readiness
from shared.runtime.tasks import TaskGroup
from shared.runtime.values import Secret

DECLARED_S: Final = 20.0


def login(url: str, passwords: Mapping[str, str], cluster: str) -> CommonSettings:
    """Return how the declarer of a cluster connects to a NATS server with these users."""
    return CommonSettings(
        nats=url,
        nats_user=DECLARER,
        nats_password=Secret(passwords[DECLARER]),
        cluster=cluster,
    )


async def declare(declared: Streams, cluster: str, *, dial: Dial) -> None:
    """Declare streams and durable consumers on a server that loses none as long as it runs."""
    bus = from_settings(
        CommonSettings(cluster=cluster),
        service=DECLARER,
        instance="pumice-local",
        clock=SystemClock(),
        log=_silent(),
        on_status=lambda **_: None,
        dial=dial,
    )
    async with running(bus) as connected:
        await connected.ensure_streams(all_streams(declared))
        await connected.ensure_consumers(durable_consumers(cluster))


class Declaring:
    """Runs a declarer beside the other work of the process."""

    def __init__(
        self,
        settings: CommonSettings,
        *,
        namespaces: tuple[str, ...] = (),
        replicas: int = 1,
        state_storage: Storage = Storage.MEMORY,
    ) -> None:
        """`replicas` is how many servers hold a copy of each stream."""
        self._replicas = replicas
        self._state_storage = state_storage
        self._settings = settings
        self._namespaces = namespaces
        self._task: asyncio.Task[None] | None = None

    def begin(self, *, report: Callable[[str], None]) -> None:
        """Start on an external server; report when its user may not write."""

        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                report(f"declares no streams: {_cause(error)}")

        self._task = asyncio.create_task(self._run(Readiness()), name="declarer")
        self._task.add_done_callback(ended)

    async def start(self, *, deadline_s: float = DECLARED_S) -> None:
        """Start again, and return once everything is declared. Raises LocalError."""
        await self.stop()
        readiness = Readiness()
        gate = readiness.gate("streams")
        self._task = asyncio.create_task(self._run(readiness), name="declarer")
        ready = asyncio.create_task(readiness.wait(), name="declared")
        try:
            async with asyncio.timeout(deadline_s):
                await asyncio.wait((self._task, ready), return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError as exc:
            await self.stop()
            text = f"the streams were not declared within {deadline_s:.0f} s: {gate.reason}"
            raise LocalError(text) from exc
        except asyncio.CancelledError:
            await self.stop()
            raise
        finally:
            ready.cancel()
        if self._task.done():
            task, self._task = self._task, None
            raise LocalError(f"the streams cannot be declared: {_cause(task.exception())}")

    async def stop(self) -> None:
        """End; the declared streams stay."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def _run(self, readiness: Readiness) -> None:
        clock, cluster = SystemClock(), self._settings.cluster
        bus = from_settings(
            self._settings,
            service=DECLARER,
            instance="pumice-local",
            clock=clock,
            log=_silent(),
            on_status=lambda **_: None,
        )
        declared = streams(cluster, state_storage=self._state_storage)
        specs = with_copies_of_events(declared, cluster, self._namespaces)
        declarer = Declarer(
            bus,
            copied(specs, self._replicas),
            durable_consumers(cluster),
            clock=clock,
            gate=readiness.gate("streams"),
        )
        async with TaskGroup() as tasks:
            tasks.create_task(bus.run(), name="declarer-bus")
            tasks.create_task(declarer.run(), name="declarer-streams")


def _silent() -> structlog.typing.FilteringBoundLogger:
    """Return a logger for a process whose output belongs to a person."""
    logger: structlog.typing.FilteringBoundLogger = structlog.wrap_logger(
        structlog.PrintLogger(),
        wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL),
    )
    return logger


def _cause(error: BaseException | None) -> str:
    error = error and leaves(error)[0]
    return str(error) if isinstance(error, PumiceError) else repr(error)
