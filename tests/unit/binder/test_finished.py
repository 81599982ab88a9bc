"""A pod of which nothing is wanted any more is known before its outcome comes back on the bus."""

from services.binder.adapters.outcomes import FinishedIntents
from shared.contracts.messages import Bind, Evict, Victim
from shared.runtime.health import Readiness
from tests.support.env import env_of_a_test
from tests.support.world import bind_of


def finished() -> FinishedIntents:
    """Make one that has read nothing: it follows no stream until it runs."""
    return FinishedIntents(
        None,
        stream="OUTCOME",
        subjects=["outcome.0"],
        env=env_of_a_test(),
        gate=Readiness().gate("outcomes"),
    )


def test_a_pod_that_this_binder_has_bound_is_over_at_once():
    known, item = finished(), Bind(pod="ns/p", uid="u", node="n")
    known.bound(bind_of(item, id="1"), item)
    assert known.is_settled("u")
    assert not known.is_settled("v")


def test_a_pod_that_this_binder_has_evicted_is_over_at_once():
    known, victim = finished(), Victim(pod="ns/p", uid="u")
    known.evicted(Evict(id="1", cycle=1, reason="preempt", victims=(victim,)), victim)
    assert known.is_settled("u")
