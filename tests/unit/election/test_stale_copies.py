"""What is read of a copied stream may come from a copy that is behind, now and then."""

from types import SimpleNamespace

from shared.bus.values import Message
from shared.contracts import codec
from shared.contracts.leases import LeaseRecord, ServiceReplica
from shared.election.members import SILENT_S, Members
from tests.support.clock import VirtualClock
from tests.support.env import context_of_a_test
from tests.support.nats_servers import SUBJECTS, lease_of

BUS = SimpleNamespace(publisher=lambda _stream: None)


def lease_at(sequence: int, *, time: float | None = None) -> Message:
    record = LeaseRecord(holder="dead.1", renewals=sequence, time=0.0)
    return Message(
        subject=SUBJECTS.lease("scheduler"),
        sequence=sequence,
        payload=codec.encode(record),
        time=float(sequence) if time is None else time,
    )


def announced_at(sequence: int) -> Message:
    member = ServiceReplica(service="binder", instance="binder-a", accepts=(1,), time=0.0)
    return Message(
        subject=SUBJECTS.member("binder", "binder-a"),
        sequence=sequence,
        payload=codec.encode(member),
        time=float(sequence),
    )


async def test_a_dead_holder_is_no_more_alive_for_copies_that_differ():
    clock = VirtualClock()
    lease = lease_of(BUS, "b.1", clock=clock)
    for sequence in (10, 7, 10, 7, 10, 7):
        assert not lease.observe(lease_at(sequence))
        await clock.advance(lease.timing.takeover_s / 6)
    assert lease.observe(lease_at(10))


async def test_a_holder_in_a_stream_that_was_made_anew_is_alive_with_smaller_numbers():
    clock = VirtualClock()
    lease = lease_of(BUS, "b.1", clock=clock)
    lease.observe(lease_at(1000))
    for sequence in range(1, 7):
        await clock.advance(lease.timing.takeover_s / 3)
        assert not lease.observe(lease_at(sequence, time=1000.0 + sequence))


async def test_a_dead_member_is_no_more_alive_for_copies_that_differ():
    clock = VirtualClock()
    context = context_of_a_test(service="binder", instance="binder-b", clock=clock)
    members = Members(BUS, context, subjects=SUBJECTS)
    for sequence in (10, 7, 10, 7, 10, 7, 10):
        members._take([announced_at(sequence)], [])
        await clock.advance(SILENT_S / 6)
    assert members.live("binder") == []
