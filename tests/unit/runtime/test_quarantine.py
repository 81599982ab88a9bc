"""Quarantine: what fails about one key stays with it, is shown, and is taken back."""

import asyncio

import pytest
import structlog

from shared.runtime.clock import SystemClock
from shared.runtime.errors import Retryable
from shared.runtime.quarantine import MAX_ITEMS, Quarantine, QuarantineRegistry
from tests.support.wait import until


class Kept:
    """A containment and what it tells."""

    def __init__(self, forget_after_s: float | None = None) -> None:
        self.aside = QuarantineRegistry()
        self.told: list[tuple[str, str, str, str]] = []
        self.quarantine = Quarantine(
            self.aside,
            clock=SystemClock(),
            log=structlog.get_logger(),
            forget_after_s=forget_after_s,
        )
        self.quarantine.on_quarantined(lambda *news: self.told.append(news))

    def fail(self, key: str, error: BaseException) -> None:
        with self.quarantine.isolate("jobs", key, stage="reconcile", uid="u"):
            raise error


def test_an_error_about_one_key_ends_there_and_is_told_once() -> None:
    kept = Kept()
    for _ in range(3):
        kept.fail("ns/a", ZeroDivisionError("no half"))
    (item,) = kept.aside.items()
    assert (item.kind, item.key, item.stage, item.failures) == ("jobs", "ns/a", "reconcile", 3)
    assert item.reason == "ZeroDivisionError: no half"
    message = "Quarantined until it changes: reconcile: ZeroDivisionError: no half"
    assert kept.told == [("jobs", "ns/a", "u", message)]
    kept.fail("ns/a", ValueError("another"))
    assert len(kept.told) == 2, "a new reason is news"


def test_who_asks_is_told_how_it_ended() -> None:
    kept = Kept()
    with kept.quarantine.isolate("jobs", "ns/a", stage="reconcile") as isolated:
        raise RecursionError("too deep")
    assert isinstance(isolated.error, RecursionError)
    with kept.quarantine.isolate("jobs", "ns/a", stage="reconcile") as isolated:
        pass
    assert isolated.error is None


PASSING = [Retryable("busy"), asyncio.CancelledError(), KeyboardInterrupt()]


@pytest.mark.parametrize("error", PASSING)
def test_what_is_no_fault_of_an_object_passes(error: BaseException) -> None:
    kept = Kept()
    with pytest.raises(type(error)):
        kept.fail("ns/a", error)
    assert kept.aside.items() == []


def test_a_key_is_taken_back_by_the_stage_that_failed_or_when_it_is_gone() -> None:
    kept = Kept()
    for key in ("ns/a", "ns/b"):
        kept.fail(key, ValueError("x"))
    kept.quarantine.handled("jobs", "ns/a", stage="fold")
    assert len(kept.aside) == 2, "another stage says nothing about a look"
    kept.quarantine.handled("jobs", "ns/a", stage="reconcile")
    kept.quarantine.gone("jobs", "ns/b")
    assert kept.aside.items() == []


def test_a_list_takes_back_what_it_does_not_name() -> None:
    kept = Kept()
    for key in ("ns/a", "ns/b"):
        kept.quarantine.failed("pods", key, stage="read", error="cannot be read")
    kept.quarantine.failed("pods", "ns/c", stage="publish", error="too large")
    kept.quarantine.keep_only("pods", {"ns/b"}, stage="read")
    assert [item.key for item in kept.aside.items()] == ["ns/b", "ns/c"]
    kept.quarantine.begin_anew(stage="publish")
    assert [item.key for item in kept.aside.items()] == ["ns/b"]


def test_half_a_character_in_a_reason_can_be_shown() -> None:
    kept = Kept()
    kept.fail("ns/a", ValueError("\ud800"))
    (item,) = kept.aside.items()
    assert item.reason == "ValueError: \\ud800"


async def test_where_nobody_tells_of_deletions_a_key_ends_by_itself() -> None:
    kept = Kept(forget_after_s=0.05)
    for number in range(MAX_ITEMS + 50):
        kept.fail(f"ns/{number}", ValueError("x"))
    assert len(kept.aside) == MAX_ITEMS
    await until(lambda: not kept.aside.items(), describe="nothing is shown any more")
