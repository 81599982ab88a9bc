"""What a service that writes makes of what markers say about the Lease that it needs."""

import asyncio

import pytest
import structlog

from shared.contracts.messages import CONTROL, SCHEDULING, ClusterLeaseStatus, Marker
from shared.election.installation import TERM_HEADER, InstallationLeadership, term_headers, term_of
from shared.runtime.errors import Retryable
from shared.runtime.health import Readiness
from tests.support.clock import VirtualClock, settle

LEASE = "volcano-system/volcano"
OTHER = ClusterLeaseStatus(lease=LEASE, holder="node-1_6a9b")


def ours(left_s: float = 10, term: str = "uid.0") -> ClusterLeaseStatus:
    return ClusterLeaseStatus(lease=LEASE, term=term, left_s=left_s)


def marker(*holds: ClusterLeaseStatus) -> Marker:
    given = {"leases": dict(zip([SCHEDULING, CONTROL], holds, strict=False))} if holds else {}
    return Marker(complete=(), bookmarks={}, time=0, instance="cache-1", **given)


class Seen:
    """The leadership, its clock and gate, and how often its change was told."""

    def __init__(self, *, required: bool = True) -> None:
        self.clock = VirtualClock()
        self.gate = Readiness().gate("leadership")
        self.changes: list[bool] = []
        self.leadership = InstallationLeadership(
            SCHEDULING,
            required=required,
            clock=self.clock,
            gate=self.gate,
            log=structlog.get_logger(),
        )
        self.leadership.on_change(lambda: self.changes.append(self.leadership.held))

    def hear(self, *holds: ClusterLeaseStatus) -> None:
        self.leadership.observe(marker(*holds))


@pytest.fixture
async def seen() -> Seen:
    return Seen()


async def test_nothing_is_written_before_the_cache_has_spoken(seen):
    assert not seen.leadership.held
    assert not seen.gate.ok
    with pytest.raises(Retryable, match="not reported yet"):
        seen.leadership.check()


async def test_a_hold_is_relied_on_for_its_time_by_the_readers_own_clock(seen):
    seen.hear(ours(left_s=8))
    assert seen.leadership.held
    assert seen.gate.ok
    await seen.clock.advance(7.9)
    seen.leadership.check()
    await seen.clock.advance(0.1)
    assert not seen.leadership.held
    with pytest.raises(Retryable):
        seen.leadership.check()


async def test_a_leader_of_the_cache_that_does_not_know_yet_takes_nothing_back(seen):
    seen.hear(ours(left_s=8))
    await seen.clock.advance(2)
    seen.hear(ClusterLeaseStatus(lease=LEASE, reason="it has not been asked for yet"))
    assert seen.leadership.held
    await seen.clock.advance(6)
    assert not seen.leadership.held


async def test_another_holder_ends_it_at_once_and_is_named(seen):
    seen.hear(ours())
    seen.hear(OTHER)
    assert not seen.leadership.held
    assert seen.gate.reason == f"lease {LEASE} is held by node-1_6a9b"
    assert seen.changes == [True, False]


async def test_it_is_told_when_a_hold_comes_back_that_had_run_out_unseen(seen):
    seen.hear(ours(left_s=5))
    await seen.clock.advance(6)
    seen.hear(ours(left_s=5))
    assert seen.changes == [True, True]


async def test_each_role_has_its_own_lease(seen):
    seen.hear(OTHER, ours())
    assert not seen.leadership.held
    seen.hear(ours(), OTHER)
    assert seen.leadership.held


async def test_where_nothing_hangs_on_a_lease_all_is_allowed(seen):
    seen.hear()
    await seen.clock.advance(1000)
    assert seen.leadership.held
    assert seen.gate.ok
    assert seen.leadership.refusal("uid.0") == ""


async def test_a_service_that_needs_no_lease_never_waits():
    seen = Seen(required=False)
    assert seen.leadership.held
    seen.hear(OTHER)
    assert seen.leadership.held
    assert seen.gate.ok
    seen.leadership.check()


async def test_what_was_decided_before_another_had_its_turn_is_refused(seen):
    seen.hear(ours(term="uid.0"))
    assert seen.leadership.refusal("uid.0") == ""
    assert seen.leadership.refusal("") == "", "of a scheduler of an earlier release"
    seen.hear(OTHER)
    assert "held by" in seen.leadership.refusal("uid.0")
    seen.hear(ours(term="uid.2"))
    assert "another's since" in seen.leadership.refusal("uid.0")
    assert seen.leadership.refusal("uid.2") == ""


async def test_work_under_way_writes_no_more_in_a_later_term(seen):
    seen.hear(ours(term="uid.0"))
    with seen.leadership.working("uid.0"):
        seen.leadership.check()
        seen.hear(ours(term="uid.2"))
        with pytest.raises(Retryable, match="another's since"):
            seen.leadership.check()
    seen.leadership.check()


async def test_work_waits_until_it_is_known_who_may_act(seen):
    waiting = asyncio.create_task(seen.leadership.settled())
    await settle()
    assert not waiting.done()
    seen.hear(ClusterLeaseStatus(lease=LEASE, reason="the API server does not answer"))
    await settle()
    assert not waiting.done()
    seen.hear(OTHER)
    await settle()
    assert waiting.done()


def test_the_term_of_a_decision_travels_as_a_header():
    assert term_of(term_headers("uid.3")) == "uid.3"
    assert term_headers("") == {}
    assert term_of(None) == term_of({}) == ""
    assert list(term_headers("x")) == [TERM_HEADER]
