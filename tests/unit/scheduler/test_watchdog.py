"""What the watchdog holds against a job, and what it does not."""

import asyncio
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from services.scheduler.adapters.marker import WatchdogFiles
from services.scheduler.adapters.watchdog import (
    DecisionBudget,
    Shared,
    ThreadClock,
    Watchdog,
    thread_clock,
)
from services.scheduler.engine.progress import Step
from services.scheduler.overruns import decode
from shared.bus.values import Message
from tests.support import world
from tests.support.clock import VirtualClock
from tests.support.env import context_of_a_test

OPEN = Step("open gang")
BUDGET_S = 5.0


class Bus:
    """Holds the last message."""

    payload = b""

    def publisher(self, _: str) -> "Bus":
        return self

    async def publish(self, _: str, payload: bytes, **__: object) -> None:
        self.payload = payload

    async def last(self, *_: str) -> Message | None:
        payload = self.payload
        return Message(subject="q", sequence=1, payload=payload, time=0.0) if payload else None

    @property
    def quarantined(self) -> set[str]:
        return {entry.key for entry in decode(self.payload) if entry.until > VirtualClock().now()}


class Silent:
    def publish(self, *_: object) -> None:
        return


class Log:
    """Keeps the lines of a log."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def _line(self, event: str, **_: object) -> None:
        self.lines.append(event)

    info = warning = error = _line


class Decisions:
    """Has decisions watched whose steps last as long as a test says."""

    def __init__(self, clock: VirtualClock, directory: Path, bus: Bus) -> None:
        self._clock = clock
        self.directory = directory
        self.share = 1.0
        """The part of a processor that the deciding thread gets."""
        self.log = Log()
        self.watchdog = Watchdog(
            DecisionBudget(budget_s=BUDGET_S, limit_s=0.0),
            marker=WatchdogFiles(str(directory)),
            shared=Shared(bus=cast("Any", bus), stream="LEASE", subject="quarantine"),
            event_publisher=cast("Any", Silent()),
            context=context_of_a_test(clock=clock, log=self.log),
            thread_clock=lambda: lambda: self.share * clock.monotonic(),
        )

    async def decide(self, *steps: tuple[Step, float]) -> None:
        """Have a decision take these steps, each for so many seconds."""
        told, go = [threading.Event() for _ in steps], [threading.Event() for _ in steps]

        def work() -> None:
            for number, (step, _) in enumerate(steps):
                self.watchdog.progress.begin(step)
                told[number].set()
                go[number].wait()

        decision = asyncio.create_task(asyncio.to_thread(self.watchdog.watch, work))
        for number, (_, lasts_s) in enumerate(steps):
            await asyncio.to_thread(told[number].wait)
            await self._clock.advance(lasts_s)
            go[number].set()
        await decision

    @property
    def quarantined(self) -> set[str]:
        return set(self.watchdog.quarantined())


@asynccontextmanager
async def watched(directory: Path, bus: Bus | None = None) -> AsyncIterator[Decisions]:
    decisions = Decisions(VirtualClock(), directory, bus or Bus())
    running = asyncio.create_task(decisions.watchdog.run())
    try:
        yield decisions
    finally:
        running.cancel()


def handles(key: str) -> Step:
    return Step("allocate", "podgroups", key, f"uid of {key}")


async def test_a_job_that_takes_the_budget_of_one_decision_is_quarantined(tmp_path: Path) -> None:
    async with watched(tmp_path) as decisions:
        await decisions.decide((handles("ns/slow"), BUDGET_S + 0.5), (handles("ns/next"), 1.0))
        assert decisions.quarantined == {"ns/slow"}


async def test_a_job_is_not_blamed_for_a_process_that_has_no_processor(tmp_path: Path) -> None:
    """As one that is frozen, or throttled, while it happens to handle that job."""
    async with watched(tmp_path) as decisions:
        decisions.share = 0.05
        await decisions.decide((handles("ns/usual"), 3 * BUDGET_S))
        assert decisions.quarantined == set()
        assert (decisions.directory / "handling").read_bytes()[:1] == b" ", "a death would be none"
        decisions.share = 0.5
        await decisions.decide((handles("ns/slow"), 3 * BUDGET_S))
        assert decisions.quarantined == {"ns/slow"}


def test_the_clock_of_a_thread_counts_its_work_and_not_its_waits() -> None:
    told: list[ThreadClock] = []
    go, ready, done = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        told.append(thread_clock())
        ready.set()
        go.wait()
        end_s = time.thread_time() + 0.2
        while time.thread_time() < end_s:
            pass
        done.set()
        release.wait()

    release = threading.Event()
    thread = threading.Thread(target=work)
    thread.start()
    ready.wait()
    begun = told[0]()
    if begun is None:
        assert sys.platform == "darwin"
    else:
        begun_s = time.monotonic()
        while time.monotonic() < begun_s + 0.3:
            pass
        waited = told[0]()
        assert waited is not None
        assert waited - begun < 0.1
        go.set()
        done.wait()
        ended = told[0]()
        assert ended is not None
        assert ended - waited >= 0.19
    go.set()
    release.set()
    thread.join()


async def test_a_full_disk_costs_the_mark_and_the_file_and_nothing_else(tmp_path: Path) -> None:
    for name in ("handling", "quarantine.json.new"):
        (tmp_path / name).symlink_to("/dev/full")
    async with watched(tmp_path) as decisions:
        assert decisions.log.lines == ["handling_not_marked"]
        await decisions.decide((handles("ns/slow"), 2 * BUDGET_S))
        assert decisions.quarantined == {"ns/slow"}
        assert not (tmp_path / "quarantine.json").exists()
        (tmp_path / "quarantine.json.new").unlink()  # there is room again
        await decisions.decide((OPEN, 1.0))
        stored = decode((tmp_path / "quarantine.json").read_bytes())
        assert [entry.key for entry in stored] == ["ns/slow"]
        assert decisions.log.lines.count("quarantine_not_stored") == 1


async def test_what_earlier_decisions_took_is_not_held_against_a_job(tmp_path: Path) -> None:
    """Decisions follow each other so soon that the pauses are between two looks."""
    async with watched(tmp_path) as decisions:
        for _ in range(8):
            await decisions.decide((handles("ns/usual"), 0.75))
        marked = (decisions.directory / "handling").read_bytes()
        await decisions.decide((OPEN, BUDGET_S), (handles("ns/usual"), 0.75))
        assert decisions.quarantined == set()
        await decisions.decide((handles("ns/usual"), 0.75))
        assert marked[:1] == (decisions.directory / "handling").read_bytes()[:1] == b" "


async def test_a_standby_that_has_led_before_replaces_nothing_that_the_leader_has_found(
    tmp_path: Path,
) -> None:
    bus = Bus()
    slow = (handles("ns/first"), BUDGET_S + 0.5)
    async with watched(tmp_path / "a", bus) as one, watched(tmp_path / "b", bus) as other:
        one.watchdog.leads = True
        await one.decide(slow)
        one.watchdog.leads = False
        await other.watchdog.load()
        other.watchdog.leads = True
        await other.decide((handles("ns/second"), BUDGET_S + 0.5))
        assert bus.quarantined == {"ns/first", "ns/second"}
        one.watchdog.observe([world.gone("podgroups", "ns/first")])
        await one.watchdog.store()
        assert bus.quarantined == {"ns/first", "ns/second"}
        other.watchdog.observe([world.gone("podgroups", "ns/first")])
        await other.watchdog.store()
        assert bus.quarantined == {"ns/second"}
