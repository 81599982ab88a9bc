"""Scenarios: short stories of a user and a cluster, each in a namespace of its own.

A file fills a table (`Scenarios`). The scenarios of all files play side by side, so that the
machine is busy while some wait for a minute to pass. `Scene` is what a scenario may do: submit,
order, let pods end, and wait for what it expects, with a deadline that prints what it saw.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from pumice.local import admin
from pumice.local.control_plane import ControlPlane
from tests.integration.scenarios.scene import Scene
from tests.support import world
from tests.support.api import Api, connect
from tests.support.pumice_run import pumice_run
from tests.support.roles import run_flags
from tests.support.stack import make_namespace, real_plane

AT_ONCE = 20
"""Scenarios that play at the same time."""

Scenario = Callable[[Scene], Awaitable[None]]


class Scenarios:
    """A table of scenarios by name."""

    def __init__(self) -> None:
        self._table: dict[str, Scenario] = {}

    def add(self, name: str, scenario: Scenario) -> None:
        """Take a scenario in; the name is a sentence."""
        assert name not in self._table, f"two scenarios {name!r}"
        self._table[name] = scenario

    def __call__(self, scenario: Scenario) -> Scenario:
        """Take a function in under its own name."""
        self.add(scenario.__name__, scenario)
        return scenario

    def mark(self) -> Any:
        """Return the decorator that makes a test of each."""
        return pytest.mark.parametrize("scenario", self._table.values(), ids=list(self._table))


class Stage:
    """The system that scenarios play on."""

    def __init__(self, api: Api, plane: ControlPlane, logs: Path) -> None:
        self.api = api
        self._plane = plane
        self._logs = logs

    async def play(self, scenario: Scenario) -> None:
        """Play one scenario in a namespace of its own and clear up."""
        namespace = await self._namespace()
        scene = Scene(self.api, namespace, self._logs)
        try:
            await scenario(scene)
        finally:
            await scene.clear()

    async def _namespace(self) -> str:
        name = f"s-{secrets.token_hex(3)}"
        async with admin.connect(self._plane.url, self._plane.pki) as client:
            await make_namespace(client, self._plane, name)
        return name


@asynccontextmanager
async def whole_system(directory: Path, configuration: str, *flags: str) -> AsyncIterator[Stage]:
    """A control plane with roomy nodes, and the services as a user starts them, with flags."""
    async with real_plane(directory / "plane") as plane:
        conf = directory / "scheduler.yaml"
        conf.write_text(configuration)
        words = ("--kubeconfig", str(plane.kubeconfig), "--scheduler-conf", str(conf))
        gates = "SchedulingGatesQueueAdmission=true"
        words += (f"--scheduler.feature-gates={gates}", f"--admission.feature-gates={gates}")
        words += ("--controller.queue-commands-from=*", *run_flags(plane.kubeconfig), *flags)
        async with (
            connect(plane.kubeconfig) as api,
            pumice_run(*words, "--log-dir", str(directory / "logs")) as services,
        ):
            await services.ready()
            await world.add_nodes(api, 3, prefix="roomy", cpu="256", memory="1Ti", pods="1000")
            yield Stage(api, plane, directory / "logs")
            await services.stop()


class Playing:
    """Plays scenarios side by side; each test waits for its own."""

    def __init__(self, stage: Stage, scenarios: Sequence[Scenario]) -> None:
        self._stage = stage
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._scenarios = scenarios
        self._ends: dict[Scenario, asyncio.Future[None]] = {}
        self._tasks = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        loop = asyncio.get_running_loop()
        for scenario in self._scenarios:
            end = self._ends[scenario] = loop.create_future()
            self._tasks.create_task(self._play(scenario, end), name=str(scenario))
        assert len(self._ends) == len(self._scenarios), "a scenario is in a table twice"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        for end in self._ends.values():
            end.cancel()
        await self._tasks.__aexit__(kind, exc, tb)

    async def _play(self, scenario: Scenario, end: asyncio.Future[None]) -> None:
        async with self._turns:
            if end.done():
                return
            try:
                await self._stage.play(scenario)
            except Exception as exc:  # noqa: BLE001 - the test that waits for it raises it
                if not end.done():
                    end.set_exception(exc)
                return
        if not end.done():
            end.set_result(None)

    async def end_of(self, scenario: Scenario) -> None:
        """Wait for the end of a scenario; raises what it raised."""
        await self._ends[scenario]
