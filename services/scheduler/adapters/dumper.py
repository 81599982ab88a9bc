"""Writes the next cycle to a file on SIGUSR1 (K12).

A signal and a directory of this machine, no page of the web server: a dump says everything about
the cluster, and the pages have no authentication. The leader answers; a standby decides nothing,
and says so. The file is readable for its owner only, complete or not there at all, and its path is
logged. One is written at a time; further requests meanwhile are the same request.
"""

import asyncio
import os
import re
import signal
import tempfile
from contextlib import aclosing
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final

from services.scheduler.adapters.feed import Gathered
from services.scheduler.config import SchedulerConfig
from services.scheduler.decision_settings import DecisionSettings
from services.scheduler.dump import Dump, DumpTooLarge, Header, Recording, write
from services.scheduler.engine.jobs.reservation_timeouts import WaitingGroup
from services.scheduler.engine.plan import Plan
from services.scheduler.engine.state.memory import SchedulerMemory
from shared.bus.nats import NatsBus
from shared.bus.values import CaughtUp, Reset
from shared.contracts import codec
from shared.contracts.messages import Fact
from shared.contracts.subjects import Subjects
from shared.contracts.versions import ContractError
from shared.runtime.env import Env
from shared.runtime.errors import Retryable

READ_S: Final = 60.0
"""Time limit for reading STATE."""
CYCLE_S: Final = 15.0
"""How long to wait for a cycle then; a leader has one every `schedule_period`."""

Remembered = tuple[SchedulerMemory, dict[str, WaitingGroup]]


class _Failed(Exception):  # noqa: N818 - reads as the fact it states
    """No dump can be written now; the message says why."""


class Dumper:
    """A part of the service; the cycle hands it what it folds and decides."""

    name: Final = "dumper"

    def __init__(
        self,
        bus: NatsBus,
        *,
        stream: str,
        subjects: Subjects,
        kinds: frozenset[str],
        settings: DecisionSettings,
        directory: str,
        limit_mib: int,
        env: Env,
    ) -> None:
        """Take an empty `directory` for one that never writes."""
        self._bus = bus
        self._stream = stream
        self._filter = [subjects.state_kind(kind) for kind in sorted(kinds)]
        self._kinds = kinds
        self._settings = settings
        self._instance = env.instance
        self._directory = directory
        self._limit_bytes = limit_mib << 20
        self._clock = env.clock
        self._log = env.log
        self._folded_seq = 0
        self._recording: Recording | None = None
        self._taken: asyncio.Future[Dump] | None = None

    async def run(self) -> None:
        """Answer requests until cancelled."""
        requested = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, requested.set)
        try:
            while True:
                await requested.wait()
                await self._reply()
                requested.clear()
        finally:
            loop.remove_signal_handler(signal.SIGUSR1)

    async def _reply(self) -> None:
        begun = self._clock.monotonic()
        try:
            dump = await self._record()
            path = await asyncio.to_thread(self._write, dump)
        except (_Failed, DumpTooLarge, Retryable, OSError) as error:
            self._log.error("cycle_not_dumped", reason=str(error))
            return
        finally:
            self._recording = self._taken = None
        self._log.info(
            "cycle_dumped",
            path=str(path),
            cycle=dump.header.cycle,
            facts=len(dump.facts),
            took_s=round(self._clock.monotonic() - begun, 3),
        )

    async def _record(self) -> Dump:
        if not self._directory:
            raise _Failed("--cache-dumper is off")
        recording = self._recording = Recording(self._folded_seq)
        taken: asyncio.Future[Dump] = asyncio.get_running_loop().create_future()
        self._taken = taken
        try:
            async with asyncio.timeout(READ_S):
                recording.read(*await self._read_state())
        except TimeoutError as error:
            raise _Failed(f"STATE was not read within {READ_S:.0f} s") from error
        try:
            async with asyncio.timeout(CYCLE_S):
                return await taken
        except TimeoutError as error:
            raise _Failed(
                recording.void
                or f"no cycle within {CYCLE_S:.0f} s: this instance does not lead, or is not ready"
            ) from error

    async def _read_state(self) -> tuple[list[Fact], int]:
        """Return the last fact of every object, and the sequence of the last of them."""
        facts: list[Fact] = []
        last_seq = 0
        async with aclosing(self._bus.follow(self._stream, self._filter)) as items:
            async for item in items:
                match item:
                    case list(messages):
                        for message in messages:
                            fact = self._fact(message.payload)
                            if fact is not None:
                                facts.append(fact)
                                last_seq = message.sequence
                    case CaughtUp():
                        break
                    case Reset():
                        facts, last_seq = [], 0
                    case _:
                        pass
        return facts, last_seq

    def _fact(self, payload: bytes) -> Fact | None:
        """Return a fact that the cycle reads, too."""
        try:
            fact = codec.decode_fact(payload)
        except ContractError:
            return None  # the feed of the cycle leaves it out, too, and logs it
        return fact if fact.kind in self._kinds else None

    # --- what the cycle calls ----------------------------------------------------------------

    def folded(self, gathered: Gathered) -> None:
        """Note what is about to be folded."""
        self._folded_seq = gathered.last_seq
        if self._recording is not None:
            self._recording.folded(gathered.facts, gathered.last_seq, anew=gathered.forget)

    @property
    def is_due(self) -> bool:
        """Whether the cycle that begins now is to be taken."""
        waiting = self._taken is not None and not self._taken.done()
        return waiting and self._recording is not None and self._recording.is_complete

    def take(
        self, config: SchedulerConfig, remembered: Remembered, *, now: float, plan: Plan
    ) -> None:
        """Record a cycle: its input beside the facts, and its decision."""
        if self._recording is None or self._taken is None or self._taken.done():
            return
        memory, waiting_groups = remembered
        header = Header(
            pumice=version("pumice"),
            instance=self._instance,
            now=now,
            cycle=plan.cycle,
            settings=self._settings,
            config=config,
            memory=memory,
            waiting_groups=waiting_groups,
        )
        self._taken.set_result(Dump(header=header, facts=self._recording.facts(), plan=plan))

    # --- the file ----------------------------------------------------------------------------

    def _write(self, dump: Dump) -> Path:
        """Write a temporary file, then rename it."""
        directory = Path(self._directory)
        when = datetime.fromtimestamp(dump.header.now, tz=UTC).strftime("%Y%m%dT%H%M%S")
        instance = re.sub(r"[^\w.-]", "_", self._instance)
        path = directory / f"pumice-cycle-{instance}-{when}-{dump.header.cycle}.json.gz"
        handle, name = tempfile.mkstemp(dir=directory, prefix=".pumice-cycle-")  # mode 0600
        try:
            with os.fdopen(handle, "wb") as file:
                write(dump, file, limit_bytes=self._limit_bytes)
                file.flush()
                os.fsync(file.fileno())
            Path(name).rename(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        return path
