"""The registry of what a service has left out: what it holds, tells and forgets."""

from shared.runtime.metrics import Metrics
from shared.runtime.quarantine import MAX_ITEMS, QuarantineRegistry, describe


def put(
    aside: QuarantineRegistry,
    key: str,
    *,
    reason: str = "boom",
    stage: str = "fold",
    now: float = 1.0,
):
    return aside.put("pods", key, stage=stage, reason=reason, now=now)


def test_a_key_is_news_once_and_again_when_its_reason_or_stage_changes() -> None:
    aside = QuarantineRegistry()
    told = [put(aside, "a/b"), put(aside, "a/b"), put(aside, "a/b", reason="bang")]
    assert told == [True, False, True]
    assert put(aside, "a/b", reason="bang", stage="status")


def test_the_first_time_and_the_number_of_failures_are_kept() -> None:
    aside = QuarantineRegistry()
    put(aside, "a/b", now=10.0)
    put(aside, "a/b", now=20.0)
    (item,) = aside.items()
    assert (item.since, item.failures) == (10.0, 2)


def test_a_key_that_is_handled_well_is_taken_back_by_the_stage_that_failed() -> None:
    aside = QuarantineRegistry()
    put(aside, "a/b", stage="status")
    assert not aside.drop("pods", "a/b", stage="fold")
    assert aside.get("pods", "a/b") is not None
    assert aside.drop("pods", "a/b", stage="status")
    assert not aside.drop("pods", "a/b")
    assert len(aside) == 0


def test_beginning_anew_takes_back_one_stage_or_all() -> None:
    aside = QuarantineRegistry()
    put(aside, "a/b", stage="fold")
    put(aside, "c/d", stage="status")
    aside.clear(stage="fold")
    assert [item.key for item in aside.items()] == ["c/d"]
    aside.clear()
    assert aside.items() == []


def test_however_many_fail_the_registry_stays_small_and_keeps_the_latest() -> None:
    aside = QuarantineRegistry()
    for number in range(MAX_ITEMS + 5):
        put(aside, f"a/{number:05}")
    assert len(aside) == MAX_ITEMS
    assert aside.get("pods", "a/00004") is None
    assert aside.get("pods", f"a/{MAX_ITEMS + 4:05}") is not None


def test_a_reason_is_one_short_line_whatever_the_object_says() -> None:
    aside = QuarantineRegistry()
    put(aside, "a/b", reason=describe(ValueError("x\n" * 100_000)))
    (item,) = aside.items()
    assert item.reason.startswith("ValueError: x x")
    assert "\n" not in item.reason
    assert len(item.reason) == 500


def test_metrics_tell_what_is_held_now_and_what_ever_failed() -> None:
    metrics, aside = Metrics(), QuarantineRegistry()
    metrics.registry.register(aside)
    put(aside, "a/b")
    put(aside, "a/c")
    aside.drop("pods", "a/b")
    page = metrics.render().decode()
    assert 'pumice_quarantined_objects{kind="pods"} 1.0' in page
    assert 'pumice_quarantine_failures_total{kind="pods",stage="fold"} 2.0' in page
