"""A Lease as Volcano's clients keep it: respected while it is renewed, taken when it is not."""

import pytest

from shared.election.cluster_lease import LeaseCandidate, LeaseSpec, LeaseTimes, released

OURS = "pumice-local-0123456789"
VOLCANO = "node-1_6a9b1d7e-0f43-4b3e-9a0e-6d8a3c1e2f00"
TIME = "2026-08-20T10:00:00.000000Z"


def volcanos(renewals: int = 0, *, duration_s: int | None = 15, transitions: int = 3) -> LeaseSpec:
    """Return a record as client-go writes it; its times are of a clock that is years off."""
    return LeaseSpec(
        holder_identity=VOLCANO,
        lease_duration_seconds=duration_s,
        acquire_time="2031-01-01T00:00:00.000000Z",
        renew_time=f"2031-01-01T00:00:{renewals:02d}.000000Z",
        lease_transitions=transitions,
    )


@pytest.fixture
def election() -> LeaseCandidate:
    return LeaseCandidate(OURS, LeaseTimes())


def test_a_lease_that_is_not_there_is_free(election):
    assert election.other_holder(None, now=0) == ""
    assert election.acquired(None, time=TIME) == LeaseSpec(
        holder_identity=OURS,
        lease_duration_seconds=15,
        acquire_time=TIME,
        renew_time=TIME,
        lease_transitions=0,
    )


def test_a_holder_that_renews_is_respected_for_ever(election):
    for second in range(0, 60, 2):
        assert election.other_holder(volcanos(second), now=1000.0 + second) == VOLCANO


def test_a_holder_counts_as_dead_when_its_record_has_not_changed_for_its_duration(election):
    assert election.other_holder(volcanos(7), now=100) == VOLCANO
    assert election.other_holder(volcanos(7), now=114.9) == VOLCANO
    assert election.other_holder(volcanos(7), now=115) == ""


def test_what_the_record_says_of_the_time_counts_for_nothing(election):
    past = LeaseSpec(
        holder_identity=VOLCANO, lease_duration_seconds=15, renew_time="1999-01-01T00:00:00Z"
    )
    assert election.other_holder(past, now=100) == VOLCANO


def test_the_duration_is_the_holders_own(election):
    assert election.other_holder(volcanos(duration_s=60), now=0) == VOLCANO
    assert election.other_holder(volcanos(duration_s=60), now=59) == VOLCANO
    assert election.other_holder(volcanos(duration_s=60), now=60) == ""


def test_a_record_without_a_duration_gets_ours(election):
    assert election.other_holder(volcanos(duration_s=None), now=0) == VOLCANO
    assert election.other_holder(volcanos(duration_s=None), now=15) == ""


@pytest.mark.parametrize("holder", ["", None])
def test_a_lease_that_was_given_back_is_free_at_once(election, holder):
    given_back = LeaseSpec(holder_identity=holder, lease_duration_seconds=1, lease_transitions=3)
    assert election.other_holder(volcanos(), now=0) == VOLCANO
    assert election.other_holder(given_back, now=0.1) == ""
    assert election.acquired(given_back, time=TIME).lease_transitions == 4


def test_a_renewal_changes_its_time_alone(election):
    first = election.acquired(None, time=TIME)
    later = election.acquired(first, time="2026-08-20T10:00:05.000000Z")
    assert later.renew_time == "2026-08-20T10:00:05.000000Z"
    assert (later.acquire_time, later.lease_transitions) == (TIME, 0)


def test_another_replica_of_the_installation_goes_on_at_once_in_the_same_term(election):
    ours = election.acquired(None, time=TIME)
    standby = LeaseCandidate(OURS, LeaseTimes())
    assert standby.other_holder(ours, now=0) == ""
    assert standby.acquired(ours, time=TIME).lease_transitions == ours.lease_transitions


def test_a_takeover_counts_as_a_transition(election):
    taken = election.acquired(volcanos(transitions=3), time=TIME)
    assert taken.lease_transitions == 4
    assert taken.acquire_time == TIME


def test_a_lease_that_we_give_back_is_free_for_all(election):
    given_back = released(election.acquired(None, time=TIME), time=TIME)
    assert given_back.holder_identity is None
    assert given_back.lease_duration_seconds == 1
    assert LeaseCandidate("pumice-other-1", LeaseTimes()).other_holder(given_back, now=0) == ""


def test_a_holder_that_comes_back_to_life_is_respected_again(election):
    election.other_holder(volcanos(1), now=0)
    assert election.other_holder(volcanos(1), now=20) == ""
    assert election.other_holder(volcanos(2), now=21) == VOLCANO


def test_a_holder_has_time_for_a_second_attempt_before_it_counts_itself_out():
    times = LeaseTimes()
    assert times.renew_s + times.retry_s < times.deadline_s < times.duration_s
