"""Whether a service lives, whether it is ready, and its metrics, over HTTP.

`/healthz` answers 200 as long as the loop turns and no part has failed: a blocked loop shows as
a probe that times out. `/livez` also answers 503, with the reasons, when a part asks for a restart
of the process: it is what a kubelet should ask for. `/readyz` answers 503 with the gates that are
shut and why; a gate is anything a service needs before others may count on it (streams, first
sync, leadership). Behind them it lists what the service goes on without, which is no reason
for 503. `/readyz/GATE,GATE` asks about some gates alone.
`/quarantine` lists what the service has left out because handling it failed; it goes on without.
"""

import asyncio
import errno
import os
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from aiohttp import web

from shared.runtime.clock import Clock
from shared.runtime.errors import Rejected
from shared.runtime.metrics import CONTENT_TYPE, Metrics
from shared.runtime.quarantine import QuarantineRegistry

_LAG_EVERY_S: Final = 0.25
_SHUTDOWN_S: Final = 1.0


class ReadinessGate:
    """One condition for being ready; shut until it is first set."""

    def __init__(self, name: str, changed: Callable[[], None]) -> None:
        self.name = name
        self.ok = False
        self.reason = "not started"
        self._changed = changed

    def set(self, ok: bool, reason: str = "") -> None:
        """Open or shut the gate; `reason` is one line for a person, needed when it is shut."""
        self.ok, self.reason = ok, reason
        self._changed()


class Liveness:
    """What the parts of one service watch that only a restart can cure."""

    def __init__(self) -> None:
        self._checks: list[Callable[[], str]] = []

    def add(self, check: Callable[[], str]) -> None:
        """Add a check: it returns why the process should be restarted, or ""."""
        self._checks.append(check)

    def failures(self) -> list[str]:
        """Return why the process should be restarted; empty while it should not."""
        return [reason for check in self._checks if (reason := check())]


class Readiness:
    """All gates of one service; ready when each is open."""

    def __init__(self) -> None:
        self._gates: dict[str, ReadinessGate] = {}
        self._notes: dict[str, str] = {}
        self._ready = asyncio.Event()
        self._unready = asyncio.Event()

    def gate(self, name: str) -> ReadinessGate:
        """Return the gate `name`, made shut if it is new."""
        if name not in self._gates:
            self._gates[name] = ReadinessGate(name, self._check)
            self._check()
        return self._gates[name]

    def shut(self) -> list[dict[str, str]]:
        """Return the gates that are shut, by name, as `{"gate": ..., "reason": ...}`."""
        return [
            {"gate": gate.name, "reason": gate.reason}
            for _, gate in sorted(self._gates.items())
            if not gate.ok
        ]

    def shut_among(self, names: Sequence[str]) -> list[dict[str, str]]:
        """Return those of some gates that are shut; one that is not there yet is."""
        missing = [ReadinessGate(name, lambda: None) for name in names if name not in self._gates]
        known = [self._gates[name] for name in names if name in self._gates]
        return [
            {"gate": gate.name, "reason": gate.reason} for gate in (*known, *missing) if not gate.ok
        ]

    def note(self, name: str, reason: str) -> None:
        """Record a missing optional dependency and why; "" when it is available again."""
        if reason:
            self._notes[name] = reason
        else:
            self._notes.pop(name, None)

    def notes(self) -> list[dict[str, str]]:
        """Return the missing optional dependencies, in the form of `shut`."""
        return [{"gate": name, "reason": reason} for name, reason in sorted(self._notes.items())]

    async def wait(self) -> None:
        """Return when every gate is open; with no gate at all that is never."""
        await self._ready.wait()

    async def wait_shut(self) -> None:
        """Return when some gate is shut."""
        await self._unready.wait()

    def _check(self) -> None:
        now, before = self._ready, self._unready
        if self.shut():
            now, before = before, now
        now.set()
        before.clear()


def parse_address(text: str, *, flag: str) -> tuple[str | None, int]:
    """Split `host:port`; an empty host is every interface, as in Volcano (K10 `:8080`).

    Raises `Rejected`.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:  # noqa: PLR2004 - largest port
        raise Rejected(f"--{flag}: {text!r} is not host:port", field=flag)
    return host.strip("[]") or None, int(port)


class HealthServer:
    """Serves the pages on one address; a part that runs until it is cancelled.

    `start` must come first: it takes the port, so that a taken one stops the start-up with a
    clear `Rejected`.
    """

    def __init__(
        self,
        *,
        readiness: Readiness,
        liveness: Liveness,
        metrics: Metrics | None,
        quarantined: QuarantineRegistry,
        healthz: bool = True,
        clock: Clock,
        flag: str = "listen-address",
    ) -> None:
        self.name = f"health:{flag}"
        self.address = ""
        self._readiness = readiness
        self._liveness = liveness
        self._metrics = metrics
        self._quarantined = quarantined
        self._clock = clock
        self._flag = flag
        application = web.Application()
        if healthz:
            application.router.add_get("/healthz", self._healthz)
            application.router.add_get("/livez", self._livez)
            application.router.add_get("/readyz", self._readyz)
            application.router.add_get("/readyz/{gates}", self._readyz_of_gates)
            application.router.add_get("/quarantine", self._quarantine_page)
        if metrics is not None:
            application.router.add_get("/metrics", self._metrics_page)
            self._lag = metrics.gauge(
                "pumice_loop_lag_seconds", "How late the event loop ran its last timer"
            )
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=_SHUTDOWN_S)

    async def start(self, address: str) -> None:
        """Listen at `address`; `self.address` is then the real one (`host:port`).

        Raises Rejected.
        """
        host, port = parse_address(address, flag=self._flag)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port).start()
        except OSError as error:
            await self._runner.cleanup()
            raise Rejected(self._refusal(address, error), field=self._flag) from error
        bound = self._runner.addresses[0]
        self.address = f"{host or '127.0.0.1'}:{bound[1]}"

    async def run(self) -> None:
        """Measure the loop's lag until cancelled, then stop listening."""
        try:
            while True:
                before = self._clock.monotonic()
                await self._clock.sleep(_LAG_EVERY_S)
                late_s = self._clock.monotonic() - before - _LAG_EVERY_S
                if self._metrics is not None:
                    self._lag.set(max(late_s, 0.0))
        finally:
            async with asyncio.timeout(2 * _SHUTDOWN_S):
                await self._runner.cleanup()

    def _refusal(self, address: str, error: OSError) -> str:
        if error.errno == errno.EADDRINUSE:
            return (
                f"listen address {address} is taken: choose another with --{self._flag} "
                "(':0' picks a free one)"
            )
        return f"--{self._flag}: cannot listen at {address}: {_reason(error)}"

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _livez(self, _request: web.Request) -> web.Response:
        failures = self._liveness.failures()
        return web.Response(status=503 if failures else 200, text="; ".join(failures) or "ok")

    async def _readyz(self, _request: web.Request) -> web.Response:
        shut = self._readiness.shut()
        return web.Response(
            status=503 if shut else 200,
            body=msgspec.json.encode(shut + self._readiness.notes()),
            content_type="application/json",
        )

    async def _readyz_of_gates(self, request: web.Request) -> web.Response:
        shut = self._readiness.shut_among(request.match_info["gates"].split(","))
        return web.Response(
            status=503 if shut else 200,
            body=msgspec.json.encode(shut),
            content_type="application/json",
        )

    async def _quarantine_page(self, _request: web.Request) -> web.Response:
        return web.Response(
            body=msgspec.json.encode(self._quarantined.items()), content_type="application/json"
        )

    async def _metrics_page(self, _request: web.Request) -> web.Response:
        assert self._metrics is not None, "the page is routed only with metrics"
        return web.Response(body=self._metrics.render(), headers={"Content-Type": CONTENT_TYPE})


def _reason(error: OSError) -> str:
    """Return the system's words; asyncio wraps them into a sentence of its own."""
    number = error.errno
    return os.strerror(number) if number is not None and number > 0 else str(error)
