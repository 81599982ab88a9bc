"""Accounting's rows do not depend on the order of its streams, or on when it was killed."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.accounting.books.rows import usage_of
from tests.support import world
from tests.unit.accounting.usage import Database, T, bound, pod_fact, recorded

PODS = ("ns/p0", "ns/p1")


def history(pod, begin, life, ending):
    """Return the events and the facts of one pod, each in the order of its stream."""
    facts = [(pod_fact(pod, node=""), begin - 1), (pod_fact(pod), begin + 0.5)]
    if ending == "Succeeded":
        facts.append((pod_fact(pod, phase="Succeeded"), begin + life))
    facts.append((world.gone("pods", pod, f"uid-{pod}"), begin + life + 1))
    return [bound(pod, begin)], facts


@pytest.mark.laws
@given(
    st.lists(
        st.tuples(st.integers(1, 300_000), st.sampled_from(["Succeeded", "Deleted"])),
        min_size=len(PODS),
        max_size=len(PODS),
    ),
    st.integers(0, 1 << 32),
)
def test_any_order_and_any_restart_give_the_same_rows(lives, seed):
    # Given: two streams that are read independently, and a process that dies between transactions
    histories = [
        history(pod, T + at, float(life), ending)
        for at, (pod, (life, ending)) in enumerate(zip(PODS, lives, strict=True))
    ]
    events = [each for one, _ in histories for each in one]
    facts = sorted((each for _, many in histories for each in many), key=lambda each: each[1])
    plain = recorded(*events, *facts)
    # When: they are read in a drawn order, with restarts after which facts come again
    drawn, database = random.Random(seed), Database()
    ledger = database.ledger()
    read_events = read_facts = 0
    while read_events < len(events) or read_facts < len(facts):
        step = drawn.choice(["event", "event", "fact", "fact", "fact", "restart"])
        if step == "event" and read_events < len(events):
            database.feed(ledger, events[read_events])
            read_events += 1
        elif step == "fact" and read_facts < len(facts):
            database.feed(ledger, facts[read_facts])
            read_facts += 1
        elif step == "restart":
            ledger = database.ledger()
            last = {fact.key: (fact, at_s) for fact, at_s in facts[:read_facts]}
            for item in sorted(last.values(), key=lambda each: each[1]):
                database.feed(ledger, item)
    database.complete(ledger)
    # Then
    times = {uid: (row.started, row.ended) for uid, row in database.allocations.items()}
    assert times == {uid: (row.started, row.ended) for uid, row in plain.allocations.items()}
    usage: dict = {}
    for row in database.allocations.values():
        for key, amount in usage_of(row):
            usage[key] = usage.get(key, 0.0) + amount
    assert {key: amount for key, amount in database.usage.items() if amount} == pytest.approx(usage)
