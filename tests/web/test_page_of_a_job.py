"""The page of one job: what of its start is known, and its life when it waits on or is gone."""

from msgspec.structs import replace

from shared.api.visibility import ExpectedStart
from tests.support.browser import Page

LATE = "more than one of ten draws is not within 4h"


def opened(page: Page, small) -> str:
    """Open the page of the first job that waits; return its key."""
    about = small.world.waiting[0].metadata
    page.go(f"jobs/{about.namespace}/{about.name}")
    page.shows("Timeline")
    return f"{about.namespace}/{about.name}"


def test_a_median_is_shown_where_the_later_bound_is_not_known(page, small):
    expected = ExpectedStart(median=small.world.at(7200.0), unknown=LATE)
    small.world.waiting[0] = replace(small.world.waiting[0], expected_start=expected)
    opened(page, small)
    page.shows(f"; {LATE}")
    assert "in 2 h" in page.text("main") or "in 1 h" in page.text("main")
    page.go("waiting")
    page.shows("60 of 60")
    assert LATE not in page.text('.rows .row[aria-rowindex="2"]')


def test_the_reason_is_shown_where_no_bound_is_known(page, small):
    expected = ExpectedStart(unknown="not within 7 days")
    small.world.waiting[0] = replace(small.world.waiting[0], expected_start=expected)
    opened(page, small)
    page.shows("Expected start\nnot within 7 days")
    page.go("waiting")
    page.shows("not within 7 days")


def test_a_wait_that_goes_on_has_lasted_until_now(page, small):
    small.answers.waits_on = True
    opened(page, small)
    [first, second] = page.all("li.entry.waits")
    assert first.find_element("css selector", ".lasted").text == "25 min"
    assert second.find_element("css selector", ".lasted").text.startswith("> 35 min")
    width = "return arguments[0].querySelector('.span i').getBoundingClientRect().width"
    assert page.run(width, second) > page.run(width, first) > 0


def test_a_job_that_was_deleted_is_gone(page, small):
    small.answers.gone = True
    opened(page, small)
    page.shows("gone, deleted while Pending")
