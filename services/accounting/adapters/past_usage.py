"""Publishes to USAGE what the users of each queue have used, with decay and per period; a part.

The database computes the sums by the closed form of `shared.model.decayed_usage`. Allocations that
ended more than `SETTLED_S` ago are summed once, and the sums decay from then on, so that only
allocations that are open or ended since are read. After a restart everything is summed again.
"""

import asyncio
import math
from typing import Final

import msgspec
from sqlalchemy import ColumnElement, String, cast, func, literal, or_, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.accounting.adapters.budget_periods import BudgetPeriods
from services.accounting.books.rows import amounts_of, in_units
from services.accounting.schema import ALLOCATIONS
from shared.bus.nats import NatsBus
from shared.contracts import codec
from shared.contracts.streams import Streams
from shared.contracts.subjects import Subjects
from shared.contracts.usage import QueueUsage
from shared.model.decayed_usage import decay
from shared.runtime.env import Env
from shared.runtime.errors import PumiceError

INTERVAL_S: Final = 60.0
SETTLED_S: Final = 600.0
"""An allocation that ended this long ago is in the database: events are read within seconds."""
_HALF_LIVES: Final = 30
"""What ended before so many half-lives is not read: it counts less than 1e-9 of what it was."""

_Usage = dict[tuple[str, str], dict[str, float]]
"""(Queue, user) → resource → amount·seconds, as in `QueueUsage`."""


class UsageSums:
    """Sums of the decayed usage in one database."""

    def __init__(self, engine: AsyncEngine, half_life_s: float) -> None:
        self._engine = engine
        self._half_life_s = half_life_s
        self._settled: _Usage = {}
        """Usage by allocations that ended by `_until`, decayed to that time."""
        self._until: float | None = None

    async def at(self, now: float) -> _Usage:
        """Return the usage by a time in Unix seconds. Raises errors of SQLAlchemy."""
        ended = ALLOCATIONS.c.ended
        until = now - SETTLED_S
        since = now - _HALF_LIVES * self._half_life_s if self._until is None else self._until
        async with self._engine.connect() as connection:
            settling = await self._sums(connection, until, (ended > since) & (ended <= until))
            recent = await self._sums(connection, now, or_(ended.is_(None), ended > until))
        kept = decay(until - since, self._half_life_s)
        self._settled = _sum(self._settled, settling, kept)
        self._until = until
        return _sum(self._settled, recent, decay(SETTLED_S, self._half_life_s))

    async def _sums(
        self, connection: AsyncConnection, at: float, where: ColumnElement[bool]
    ) -> _Usage:
        """Return the usage by some allocations, decayed to a time."""
        rows = ALLOCATIONS.c
        # Rows are grouped by the text of their resources: pods of a job have the same.
        scalars = cast(rows.scalars, String).label("scalars_text")
        seconds = func.sum(
            self._weight(func.coalesce(rows.ended, at), at) - self._weight(rows.started, at)
        )
        shape = (rows.queue, rows.user, rows.namespace, rows.cpu_milli, rows.memory_bytes)
        query = select(*shape, scalars, seconds).where(where).group_by(*shape, scalars)
        usage: _Usage = {}
        for queue, user, namespace, cpu, memory, text, weight in await connection.execute(query):
            held_s = weight * self._half_life_s / math.log(2.0)
            used = usage.setdefault((queue, user or namespace), {})
            others = msgspec.json.decode(text, type=dict[str, int])
            for name, amount in amounts_of(cpu, memory, others):
                used[name] = used.get(name, 0.0) + in_units(name, amount) * held_s
        return usage

    def _weight(self, when: ColumnElement[float], at: float) -> ColumnElement[float]:
        return func.pow(literal(2.0), (when - at) / self._half_life_s)


def _sum(earlier: _Usage, later: _Usage, kept: float) -> _Usage:
    """Return `kept` of the earlier usage, and the later one."""
    total = {key: {name: kept * x for name, x in used.items()} for key, used in earlier.items()}
    for key, used in later.items():
        of_user = total.setdefault(key, {})
        for name, amount in used.items():
            of_user[name] = of_user.get(name, 0.0) + amount
    return total


class PastUsagePublisher:
    """Publishes one message per queue in each interval."""

    name: Final = "past-usage"

    def __init__(
        self,
        usage: UsageSums,
        periods: BudgetPeriods,
        bus: NatsBus,
        *,
        half_life_s: float,
        streams: Streams,
        subjects: Subjects,
        is_complete: asyncio.Event,
        env: Env,
    ) -> None:
        """`is_complete` is set once the database contains what happened before the start."""
        self._usage = usage
        self._periods = periods
        self._half_life_s = half_life_s
        self._publisher = bus.publisher(streams.usage.name)
        self._subjects = subjects
        self._is_complete = is_complete
        self._clock = env.clock
        self._log = env.log

    async def run(self) -> None:
        """Publish until cancelled; what fails is repeated in the next interval."""
        await self._is_complete.wait()
        while True:
            try:
                await self._publish(self._clock.now())
            except (SQLAlchemyError, OSError, PumiceError) as error:
                reason = str(error).partition("\n")[0]
                self._log.warning("past_usage_not_published", reason=reason)
            await self._clock.sleep(INTERVAL_S)

    async def _publish(self, now: float) -> None:
        by_queue: dict[str, dict[str, dict[str, float]]] = {}
        for (queue, user), used in (await self._usage.at(now)).items():
            by_queue.setdefault(queue, {})[user] = used
        periods = await self._periods.at(now)
        for queue in sorted(by_queue.keys() | periods.by_queue.keys()):
            if queue:
                message = QueueUsage(
                    queue=queue,
                    at=now,
                    half_life_s=self._half_life_s,
                    users=by_queue.get(queue, {}),
                    periods=periods.of(queue),
                )
                await self._publisher.publish(self._subjects.usage(queue), codec.encode(message))
