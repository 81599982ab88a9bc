"""How much of expressions an evaluator keeps, and that its end does not wait for one."""

import asyncio
import threading

import pytest

from services.scheduler.adapters.expression_process import Exceeded, ExpressionProcess
from services.scheduler.adapters.expressions import ExpressionEvaluator, Expressions
from services.scheduler.policy.devices.selectors import LETTERS, SelectorFault
from tests.unit.scheduler.test_expression_limits import BENIGN, DEVICE, evaluator, until_known


class Quiet:
    """A log that nobody reads."""

    def error(self, *_: object, **__: object) -> None:
        return


def test_what_is_kept_is_bounded(monkeypatch):
    monkeypatch.setattr("services.scheduler.adapters.expressions.KNOWN_MAX", 10)
    with evaluator() as found:
        for number in range(50):
            assert found.verdict("ns", f"{number} >= 0", DEVICE) is True
        assert found._size <= 10
        assert sum(map(len, found._known.values())) == found._size


def test_long_expressions_take_the_place_of_many_verdicts(monkeypatch):
    """Else a tenant has the scheduler keep gigabytes: each may have 10 KiB."""
    monkeypatch.setattr("services.scheduler.adapters.expressions.KNOWN_MAX", 100)
    with evaluator() as found:
        for number in range(30):
            assert found.verdict("ns", f"{'true && ' * 200}{number} >= 0", DEVICE) is True
        assert sum(map(len, found._known)) <= 100 * 100


def test_of_expressions_beyond_their_limit_no_text_is_kept(monkeypatch):
    """Ten thousand are remembered, of 10 KiB each; and so many of others have a known cost."""

    def exceeding(self, expression, devices):
        if "false" in expression:
            raise Exceeded("too much")
        return [True for _ in devices]

    monkeypatch.setattr(ExpressionProcess, "answers", exceeding)
    monkeypatch.setattr("services.scheduler.adapters.expressions.KNOWN_MAX", 100)
    with evaluator() as found:
        for number in range(100):
            for word in ("false", "true"):
                found.verdict("ns", f"{'true && ' * 1_000}{word} && {number} >= 0", DEVICE)
        assert isinstance(
            found.verdict("ns", f"{'true && ' * 1_000}false && 7 >= 0", DEVICE), SelectorFault
        )
        assert letters_of(found) < 50_000


def test_long_expressions_of_a_namespace_that_wait_are_few(monkeypatch):
    go = threading.Event()

    def waiting(self, expression, devices):
        go.wait()
        return [True for _ in devices]

    monkeypatch.setattr(ExpressionProcess, "answers", waiting)
    monkeypatch.setattr("services.scheduler.adapters.expressions.QUEUED_MAX", 1_000)
    with evaluator(wait_s=0.0) as found:
        for number in range(200):
            found.verdict("ns", f"{'true && ' * 1_000}{number} >= 0", DEVICE)
        assert letters_of(found) < 2 * 1_000 * LETTERS
        go.set()
        found._left_s = 50.0
        assert found.verdict("other", BENIGN, DEVICE) is True
        until_known(found)


def letters_of(found: ExpressionEvaluator) -> int:
    """Return how many letters an evaluator keeps."""
    total, todo = 0, list(vars(found).values())
    while todo:
        each = todo.pop()
        if isinstance(each, str):
            total += len(each)
        elif isinstance(each, dict):
            todo += [*each, *each.values()]
    return total


async def test_the_end_of_a_service_does_not_wait_for_an_expression(monkeypatch):
    begun, go, ended = threading.Event(), threading.Event(), threading.Event()

    def waiting(self, expression, devices):
        begun.set()
        go.wait()
        return [True for _ in devices]

    monkeypatch.setattr(ExpressionProcess, "answers", waiting)
    monkeypatch.setattr(ExpressionProcess, "close", lambda _: ended.set())
    part = Expressions(wait_s=0.0, changed=lambda: None, log=Quiet())
    running = asyncio.create_task(part.run())
    await asyncio.sleep(0)
    assert part.evaluator.verdict("ns", BENIGN, DEVICE) is None
    assert await asyncio.to_thread(begun.wait, 50)
    release = threading.Timer(20.0, go.set)
    release.start()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not go.is_set(), "the loop waited for the answer"
    release.cancel()
    go.set()
    assert await asyncio.to_thread(ended.wait, 50), "the thread ends the process"
