"""Words of any length become conditions that fit into a message, and are said once."""

import pytest

from pumice.plugins import Condition
from services.scheduler.decision import Decision
from services.scheduler.engine.plan import MESSAGE_LETTERS, bounded
from services.scheduler.scheduler_state import SchedulerState
from shared.contracts import messages as m
from tests.unit.scheduler.test_scheduler_state import (
    add_group,
    add_pod,
    put,
    scheduler,
    small_world,
    step,
)

MANY = {f"example.com/{'x' * 50}-{i}": "1" for i in range(5_000)}
"""Resources that no node has: the API server takes a pod that asks for them all."""


def said(decision: Decision) -> dict[str, tuple[m.DesiredCondition, ...]]:
    return {w.message.key: w.message.conditions for w in decision.statuses if w.kind != "queues"}


def asked_for_thousands() -> tuple[SchedulerState, dict[str, tuple[m.DesiredCondition, ...]]]:
    """Return a scheduler with a pod that asks for all of MANY, and its statuses of two cycles."""
    under = scheduler(settle_s=0.0)
    small_world(under)
    add_group(under, "g", "Inqueue")
    container = {"name": "c", "resources": {"requests": {"cpu": "1", **MANY}}}
    add_pod(under, "p", "g", containers=[container])
    told = {**said(step(under, 0.0, 1)), **said(step(under, 2.0, 2))}
    return under, told


def test_a_pod_that_asks_for_thousands_of_resources_is_told_so_in_few_words():
    under, told = asked_for_thousands()
    assert set(told) == {"ns/g", "ns/p"}
    for condition, *_ in told.values():
        assert 1_000 < len(condition.message) <= MESSAGE_LETTERS
    explained = step(under, 3.0, 3).full_plan.explanations[0]
    assert len(explained.message) + len(explained.details) <= 2 * MESSAGE_LETTERS + 100
    assert len(explained.reasons) <= 50


def test_a_condition_that_the_api_server_shows_shortened_is_not_wanted_anew():
    under, told = asked_for_thousands()
    shown = [{"type": c.type, "status": c.status, "reason": c.reason, "message": c.message}
             for c in told["ns/g"]]  # fmt: skip
    meta = {"name": "g", "namespace": "ns", "uid": "g"}
    spec = {"minMember": 1, "queue": "default"}
    put(under, "podgroups", {"metadata": meta, "spec": spec,
                             "status": {"phase": "Inqueue", "conditions": shown}})  # fmt: skip
    assert "ns/g" not in said(step(under, 4.0, 3))


def test_a_condition_that_another_wrote_is_taken_in_shortened():
    under = scheduler(settle_s=0.0)
    small_world(under)
    meta = {"name": "g", "namespace": "ns", "uid": "g"}
    shown = [{"type": "Odd", "status": "True", "reason": "r" * 900_000, "message": "m" * 900_000}]
    put(under, "podgroups", {"metadata": meta, "spec": {"minMember": 1, "queue": "default"},
                             "status": {"phase": "Pending", "conditions": shown}})  # fmt: skip
    add_pod(under, "p", "g")
    told = [said(step(under, float(i), i)) for i in (1, 2, 3)]
    sizes = [len(c.reason) + len(c.message) for t in told for c in t.get("ns/g", ())]
    assert sizes
    assert max(sizes) <= MESSAGE_LETTERS + 320


@pytest.mark.parametrize("letters", [0, 1_999, 2_000, 2_001, 1_000_000])
def test_shortening_twice_is_shortening_once(letters: int):
    once = bounded(Condition("t", "s", "r" * letters, "m" * letters))
    assert bounded(once) == once
    assert len(once.message) == min(letters, MESSAGE_LETTERS)
