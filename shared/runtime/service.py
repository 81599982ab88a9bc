"""The frame of every service process, which `shared.runtime.entry` calls once it has the settings.

It sets up logs, takes the port for health pages, turns SIGTERM and SIGINT
into an orderly end, and runs the parts that `build` makes under the supervisor. Exit codes:
0 after a signal, 1 when the service failed, 2 when the settings are wrong, 3 when parts were
stuck beyond the grace. The reason for its end is one line `error: ...` on stderr; a traceback
appears, in the log, only for unexpected errors.
"""

import asyncio
import gc
import os
import random
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, NoReturn, Protocol, TypeVar

from shared.runtime.clock import Clock, SystemClock
from shared.runtime.common import CommonSettings
from shared.runtime.env import Env
from shared.runtime.errors import PumiceError, Rejected, leaves
from shared.runtime.faults import Faults
from shared.runtime.health import HealthServer, Liveness, Readiness
from shared.runtime.logs import Logger, configure, stderr
from shared.runtime.metrics import Metrics
from shared.runtime.quarantine import Quarantine, QuarantineRegistry
from shared.runtime.settings import WRONG_SETTINGS, service_links
from shared.runtime.spans import NO_SPANS, Spans, are_enabled
from shared.runtime.supervise import Part, PartFailed, supervise
from shared.runtime.workqueue import WorkQueueMetrics

S = TypeVar("S", bound=CommonSettings)

_FAILED: Final = 1
_STUCK: Final = 3
_WATCHDOG_S: Final = 2.0
"""How long after the grace a process that cannot even name what is stuck is ended."""
_GC_THRESHOLD: Final = 20_000
"""New objects between two runs of the garbage collector; the default is 700."""


class Context(Env, frozen=True, kw_only=True):
    """What a composition root gets besides its settings: `Env`, and parts of the frame."""

    service: str
    readiness: Readiness
    liveness: Liveness
    work_queues: WorkQueueMetrics


Build = Callable[[S, Context], Awaitable[Sequence[Part]]]
"""`async def build(settings, ctx) -> parts`: makes everything, and returns what has to run."""

Ended = tuple[int, str]
"""The exit code, and the line for a person about what stopped it."""


class Serving(Protocol):
    """Runs one service or several until an event is set."""

    def __call__(self, *, stop: asyncio.Event) -> Awaitable[Ended]:
        """Run until `stop` is set."""
        ...


def run(service: str, settings: S, build: Build[S]) -> NoReturn:
    """Run `service` until a signal or a failure, then exit the process."""
    rng = random.Random()  # noqa: S311 - jitter and names, no secrets
    instance = settings.instance or generated_name(service, rng)
    log, writer = configure(
        service=service,
        instance=instance,
        level=settings.log_level,
        form=settings.log_format,
        stream=stderr(),
    )
    if links := service_links(os.environ):
        log.info("service_links_ignored", variables=" ".join(links))
    tune_garbage_collector()
    serving = partial(
        serve,
        service=service,
        instance=instance,
        settings=settings,
        build=build,
        rng=rng,
        log=log,
    )
    with asyncio.Runner() as runner:
        code, message = runner.run(until_signal(serving))
    writer.close()
    end(code, message)


def generated_name(service: str, rng: random.Random) -> str:
    """Return a name for an instance that was given none."""
    return f"{service}-{socket.gethostname()}-{rng.randrange(16**6):06x}"


def end(code: int, message: str = "") -> NoReturn:
    """End the process, with one line about what stopped it."""
    if message:
        sys.stderr.write(f"error: {message}\n")
    sys.exit(code)


def tune_garbage_collector() -> None:
    """Have the garbage collector run rarely: each run walks through the whole cluster state.

    Objects that exist by now stay; new ones are mostly freed by their reference counts.
    """
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD, 50, 100)


async def until_signal(serving: Serving) -> Ended:
    """Run until SIGTERM or SIGINT, or until it ends by itself."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return await serving(stop=stop)


async def serve(
    *,
    service: str,
    instance: str,
    settings: S,
    build: Build[S],
    rng: random.Random,
    log: Logger,
    stop: asyncio.Event,
) -> Ended:
    """Run one service on the present loop until `stop` or its first failure, which sets `stop`."""
    clock = SystemClock()
    spans, sending = _spans(service, instance, settings.cluster, clock=clock, log=log)
    try:
        context = _context(service, instance, settings, clock=clock, rng=rng, log=log, spans=spans)
        servers = await _listen(settings, context)
    except Rejected as error:
        return WRONG_SETTINGS, str(error)
    started = context.readiness.gate("started")

    async def start() -> Sequence[Part]:
        parts = await build(settings, context)
        started.set(True)
        return parts

    try:
        await supervise(
            start,
            first=[
                *servers,
                *sending,
                _Announcer(context, servers[0]),
                _Watchdog(settings.grace),
            ],
            stop=stop,
            clock=context.clock,
            grace_s=settings.grace,
            on_stuck=lambda names: _exit_at_once(
                f"still running after the grace: {', '.join(names)}"
            ),
        )
    except PartFailed as failure:
        return _explain(failure, log)
    log.info("service_stopped")
    return 0, ""


def _context(
    service: str,
    instance: str,
    settings: CommonSettings,
    *,
    clock: Clock,
    rng: random.Random,
    log: Logger,
    spans: Spans,
) -> Context:
    metrics = Metrics()
    quarantined = QuarantineRegistry()
    metrics.registry.register(quarantined)
    return Context(
        service=service,
        instance=instance,
        clock=clock,
        rng=rng,
        log=log,
        readiness=Readiness(),
        liveness=Liveness(),
        metrics=metrics,
        work_queues=WorkQueueMetrics(metrics),
        quarantine=Quarantine(quarantined, clock=clock, log=log),
        faults=Faults(settings.fault, settings.fault_dir),
        spans=spans,
    )


def _spans(
    service: str, instance: str, cluster: str, *, clock: Clock, log: Logger
) -> tuple[Spans, list[Part]]:
    """Return where spans go, and the parts that send them: none without a collector."""
    if not are_enabled(os.environ):
        return NO_SPANS, []
    try:
        from shared.runtime.otlp import OtlpSpans
    except ModuleNotFoundError as error:
        reason = f"{error.name} is not installed: pip install 'pumice[telemetry]'"
        log.warning("spans_not_sent", reason=reason)
        return NO_SPANS, []
    spans = OtlpSpans(service=service, instance=instance, cluster=cluster, clock=clock, log=log)
    return spans, [spans]


async def _listen(settings: CommonSettings, context: Context) -> list[HealthServer]:
    server = HealthServer(
        readiness=context.readiness,
        liveness=context.liveness,
        metrics=context.metrics if settings.enable_metrics else None,
        quarantined=context.quarantine.registry,
        healthz=settings.enable_healthz,
        clock=context.clock,
    )
    await server.start(settings.listen_address)
    if not settings.healthz_address:
        return [server]
    second = HealthServer(
        readiness=context.readiness,
        liveness=context.liveness,
        metrics=None,
        quarantined=context.quarantine.registry,
        healthz=True,
        clock=context.clock,
        flag="healthz-address",
    )
    await second.start(settings.healthz_address)
    return [server, second]


def _explain(failure: PartFailed, log: Logger) -> tuple[int, str]:
    cause = failure.__cause__ and leaves(failure.__cause__)[0]
    if isinstance(cause, PumiceError):
        log.error("service_failed", part=failure.part, reason=str(cause))
        return (WRONG_SETTINGS if isinstance(cause, Rejected) else _FAILED), str(cause)
    log.error("service_failed", part=failure.part, exc_info=failure.__cause__)
    kind = type(cause).__name__
    return _FAILED, f"part {failure.part} failed unexpectedly: {kind}: {cause}"


def _exit_at_once(message: str) -> None:
    sys.stderr.write(f"error: {message}\n")
    sys.stderr.flush()
    os._exit(_STUCK)


class _Announcer:
    """Logs when the service becomes ready, and when it stops being so with the reasons."""

    name = "announcer"

    def __init__(self, context: Context, server: HealthServer) -> None:
        self._context = context
        self._server = server

    async def run(self) -> None:
        readiness, log = self._context.readiness, self._context.log
        log.info("service_started", listen=self._server.address)
        while True:
            await readiness.wait()
            log.info("service_ready", listen=self._server.address)
            await readiness.wait_shut()
            log.warning("service_became_unready", gates=readiness.shut())


class _Watchdog:
    """Starts, when the service stops, a timer thread that ends the process if its loop hangs."""

    name = "last-resort"

    def __init__(self, grace_s: float) -> None:
        self._wait_s = grace_s + _WATCHDOG_S

    async def run(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            timer = threading.Timer(
                self._wait_s, _exit_at_once, ["a thread is stuck after the grace"]
            )
            timer.daemon = True
            timer.start()
