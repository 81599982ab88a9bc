"""When a holder renews its lease, and that a process of many leases does so in one moment."""

import asyncio
from contextlib import suppress
from types import SimpleNamespace

import pytest

from shared.bus.values import Ack
from shared.election.lease import renewal_in_s
from tests.support.clock import VirtualClock, settle
from tests.support.nats_servers import lease_of

RENEW_S = 0.4


@pytest.mark.parametrize(
    ("renewed_at", "wait_s"),
    [(10.0, 0.4), (10.1, 0.3), (10.3, 0.1), (10.35, 0.05), (10.38, 0.4), (1.2, 0.4)],
)
def test_a_renewal_comes_at_a_multiple_of_the_period_and_no_later_than_it(
    renewed_at: float, wait_s: float
) -> None:
    assert renewal_in_s(renewed_at, RENEW_S) == pytest.approx(wait_s)


class Written:
    """A stream of leases that stores every write, and when."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.moments: dict[str, list[float]] = {}

    async def publish(self, subject: str, _payload: bytes, *, expect_last: int) -> Ack:
        self.moments.setdefault(subject, []).append(self._clock.monotonic())
        return Ack(sequence=expect_last + 1)

    async def away(self, _for_s: float) -> None:
        await asyncio.Event().wait()


async def test_leases_taken_at_different_times_are_renewed_in_the_same_moments() -> None:
    clock = VirtualClock()
    written = Written(clock)
    bus = SimpleNamespace(publisher=lambda _stream: written, away=written.away)
    keeping = []
    for number in range(3):
        lease = lease_of(bus, "a.1", name=f"part-{number}", clock=clock)
        assert await lease.take()
        keeping.append(asyncio.create_task(lease.keep()))
        await clock.advance(0.07)
    await clock.advance(10 * RENEW_S)
    renewed = [moments[1:] for moments in written.moments.values()]
    assert renewed[0][1:] == renewed[1][1:] == renewed[2][1:]
    gaps = [after - before for before, after in zip(renewed[0], renewed[0][1:], strict=False)]
    assert gaps == pytest.approx([RENEW_S] * len(gaps))
    assert len(gaps) >= 8
    for task in keeping:
        task.cancel()
    await settle()
    for task in keeping:
        with suppress(asyncio.CancelledError):
            await task
