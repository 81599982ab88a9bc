"""How plugins' answers are combined (SS06, SS07, SS09)."""

from types import SimpleNamespace

import pytest

from pumice.plugins import ABSTAIN, PERMIT, Invalid, Opinion, Vote
from pumice.plugins.points import Points
from services.scheduler.config import FLAG_DEFAULTS
from services.scheduler.engine.placement.hooks import Combined, Registrar

A, B, C = (SimpleNamespace(uid=uid) for uid in "abc")
REJECT = Opinion(Vote.REJECT, "no")


def proposing(*tasks):
    return lambda preemptor, candidates: list(tasks)


def abstaining(preemptor, candidates):
    return None


def registrar(hooks, *, tier=0, **flags):
    return Registrar(hooks, tier=tier, flags={**FLAG_DEFAULTS, **flags}, identity="x")


@pytest.mark.parametrize(
    ("tiers", "agreed"),
    [
        pytest.param([[proposing(A, B), proposing(B, C)]], [B], id="intersected in a tier"),
        pytest.param([[abstaining, proposing(A)]], [A], id="abstention is skipped"),
        pytest.param([[proposing(A), proposing()], [proposing(B)]], [B], id="empty ends the tier"),
        pytest.param([[proposing(A)], [proposing(B)]], [A], id="the first tier decides"),
        pytest.param(
            [[proposing(A), proposing(B), proposing(C)]], [C], id="a third plugin starts anew"
        ),
        pytest.param([[proposing(A), proposing(B)], [proposing(C)]], [C], id="disjoint falls on"),
        pytest.param([[abstaining]], [], id="nobody has an opinion"),
    ],
)
def test_victims_are_those_that_a_tier_agrees_on(tiers, agreed):
    hooks = Combined()
    for number, fns in enumerate(tiers):
        for fn in fns:
            registrar(hooks, tier=number).preemptable(fn)
    assert hooks.preemptable(A, [A, B, C]) == agreed


@pytest.mark.parametrize(
    ("tiers", "vote"),
    [
        pytest.param([], Vote.PERMIT, id="nobody asked"),
        pytest.param([[ABSTAIN], [ABSTAIN]], Vote.PERMIT, id="all abstain"),
        pytest.param([[PERMIT], [REJECT]], Vote.PERMIT, id="permit ends the asking"),
        pytest.param([[PERMIT, REJECT]], Vote.REJECT, id="reject beats permit in a tier"),
        pytest.param([[ABSTAIN], [REJECT]], Vote.REJECT, id="a later tier rejects"),
    ],
)
def test_ternary_votes_go_by_tier(tiers, vote):
    hooks = Combined()
    for number, opinions in enumerate(tiers):
        for opinion in opinions:
            registrar(hooks, tier=number).job_enqueueable(lambda job, o=opinion: o)
    assert hooks.job_enqueueable(None).vote is vote


def test_a_switched_off_extension_point_is_not_asked():
    hooks = Combined()
    registrar(hooks, enableJobOrder=False).job_order(lambda job: 1)
    assert list(hooks.of(Points.job_order)) == []


def test_validity_ignores_the_flags():
    hooks = Combined()
    off = dict.fromkeys(FLAG_DEFAULTS, False)
    Registrar(hooks, tier=0, flags=off, identity="x").job_valid(lambda job: Invalid("r", "m"))
    assert hooks.job_valid(None) == Invalid("r", "m")


def test_the_first_tier_with_an_opinion_decides_who_starves():
    hooks = Combined()
    assert not hooks.job_starving(None)
    registrar(hooks, tier=1).job_starving(lambda job: True)
    registrar(hooks, tier=1).job_starving(lambda job: False)
    registrar(hooks, tier=2).job_starving(lambda job: True)
    assert not hooks.job_starving(None)


def test_one_yes_makes_a_queue_overused_and_the_smallest_allowance_counts():
    hooks = Combined()
    for answer, allowance in ((False, 5), (True, 3)):
        registrar(hooks).overused(lambda queue, a=answer: a)
        registrar(hooks).allocatable(lambda queue, task_class, n, a=allowance: min(n, a))
    assert hooks.overused(None)
    assert hooks.allocatable(None, None, 9) == 3


def test_orders_of_several_plugins_apply_in_turn_and_end_in_age_and_name():
    hooks = Combined()
    registrar(hooks).job_order(lambda job: -job.priority)
    young = SimpleNamespace(priority=1, created="2", key="a")
    old = SimpleNamespace(priority=1, created="1", key="b")
    urgent = SimpleNamespace(priority=9, created="3", key="c")
    assert sorted([young, old, urgent], key=hooks.job_order) == [urgent, old, young]
