"""A reload of the configuration that is refused: the former one stays, and everybody is told."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import structlog

from pumice.events import ConfigurationRefused, Event
from services.scheduler.adapters.conf_file import POLL_S, ConfFile
from services.scheduler.adapters.conf_reloads import ConfigurationReloads
from shared.runtime.metrics import Metrics
from shared.runtime.quarantine import QuarantineRegistry
from tests.support.clock import VirtualClock, settle
from tests.support.env import env_of_a_test

GOOD = "actions: allocate\n"


class Announced:
    """Takes events in the place of the EventPublisher."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def publish(self, event: Event, identity: str) -> None:
        assert identity
        self.events.append(event)


class Stage:
    """A file, who reads it, and what is told."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = VirtualClock()
        self.metrics = Metrics()
        self.quarantined = QuarantineRegistry()
        self.announced = Announced()
        path.write_text(GOOD)
        reloads = ConfigurationReloads(
            env_of_a_test(
                instance="scheduler-1",
                metrics=self.metrics,
                quarantined=self.quarantined,
                clock=self.clock,
            ),
            event_publisher=self.announced,  # type: ignore[arg-type]  # it has all that is asked for
        )
        self.conf = ConfFile(
            str(path),
            clock=self.clock,
            log=structlog.get_logger(),
            changed=asyncio.Event(),
            note=reloads.note,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.conf.run())
        await settle()
        yield
        task.cancel()
        await asyncio.wait([task])

    async def writes(self, text: str) -> None:
        before = self.path.stat().st_mtime_ns
        self.path.write_text(text)
        os.utime(self.path, ns=(before + 10**9, before + 10**9))
        await self.clock.advance(2 * POLL_S)

    def metric(self, line: str) -> bool:
        return f"\n{line}\n" in self.metrics.render().decode()


async def test_a_refused_reload_is_an_event_a_metric_and_a_line_of_the_status(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path / "scheduler.conf")
    async with stage.running():
        await stage.writes("actions: alocate\n")
        assert stage.conf.config.actions == ("allocate",)
        (event,) = stage.announced.events
        assert isinstance(event, ConfigurationRefused)
        assert event.file == str(stage.path)
        assert "did you mean 'allocate'?" in event.reason
        (item,) = stage.quarantined.items()
        assert (item.kind, item.key, item.reason) == ("configuration", event.file, event.reason)
        assert stage.metric("pumice_configuration_refused 1.0")
        await stage.writes("actions: backfill\n")
        assert stage.conf.config.actions == ("backfill",)
        assert not len(stage.quarantined)
        assert stage.metric("pumice_configuration_refused 0.0")
        assert stage.metric('pumice_configuration_reloads_total{result="refused"} 1.0')
        assert stage.metric('pumice_configuration_reloads_total{result="applied"} 1.0')
        assert len(stage.announced.events) == 1
