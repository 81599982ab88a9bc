"""The page of one job: what of its start is known, and its life when it waits on or is gone."""

from msgspec.structs import replace

from shared.api.visibility import Change, ExpectedStart
from tests.unit.web.page_world import owned_by_a_deployment
from tests.web.browser import Page, until

LATE = "more than one of ten draws is not within 4h"


def opened(page: Page, small) -> str:
    """Open the page of the first job that waits; return its key."""
    about = small.world.jobs[0].metadata
    page.go(f"jobs/{about.namespace}/{about.name}")
    page.shows("Timeline")
    return f"{about.namespace}/{about.name}"


def test_a_median_is_shown_where_the_later_bound_is_not_known(page, small):
    expected = ExpectedStart(median=small.world.at(7200.0), unknown=LATE)
    small.world.jobs[0] = replace(small.world.jobs[0], expected_start=expected)
    opened(page, small)
    page.shows(f"; {LATE}")
    assert "in 2 h" in page.text("main") or "in 1 h" in page.text("main")
    page.go("waiting")
    page.shows("60 of 60")
    assert LATE not in page.text('.rows .row[aria-rowindex="2"]')


def test_the_reason_is_shown_where_no_bound_is_known(page, small):
    expected = ExpectedStart(unknown="not within 7 days")
    small.world.jobs[0] = replace(small.world.jobs[0], expected_start=expected)
    opened(page, small)
    page.shows("Expected start\nnot within 7 days")
    page.go("waiting")
    page.shows("not within 7 days")


def test_a_wait_that_goes_on_has_lasted_until_now(page, small):
    small.world.waits_on = True
    opened(page, small)
    [first, second] = page.all("li.entry.waits")
    assert first.find_element("css selector", ".lasted").text == "25 min"
    assert second.find_element("css selector", ".lasted").text.startswith("> 35 min")
    width = "return arguments[0].querySelector('.span i').getBoundingClientRect().width"
    assert page.run(width, second) > page.run(width, first) > 0


def test_a_job_that_was_deleted_is_gone(page, small):
    small.world.gone = True
    opened(page, small)
    page.shows("gone, deleted while Pending")


def test_pods_are_rows_of_one_chart_and_many_are_shown_when_asked_for(page, small):
    small.world.pods = 50
    opened(page, small)
    until(lambda: len(page.all(".gantt li")) == 40, "the first pods")
    first = page.run("return document.querySelector('.gantt li').getAttribute('aria-label')")
    assert "worker-0: Waits 5 min, Running 10 min" in first
    lefts = page.run("""
        return [...document.querySelectorAll('.gantt li:nth-child(3) .life i')]
            .map((span) => span.getBoundingClientRect().left);
    """)
    assert lefts == sorted(lefts)
    assert lefts[0] < lefts[1]
    page.run("document.querySelector('.gantt ~ button').click()")
    until(lambda: len(page.all(".gantt li")) == 50, "all pods")


def test_a_job_without_a_decision_says_nothing_of_one(page, small):
    opened(page, small)
    page.shows("Decided")
    small.world.decided = False
    small.tell(Change(resources=("pendingjobs",)))
    until(lambda: "Decided" not in page.text("main"), "no decision is claimed")
    assert "no decision heard" not in page.text("main")


def test_a_job_bears_the_name_of_the_workload_that_owns_it(page, small):
    namespace, name = owned_by_a_deployment(small.world, small.way)
    page.go("waiting")
    page.shows(f"{namespace}/deployment/web")
    page.go(f"jobs/{namespace}/{name}")
    page.shows("Workload\nDeployment web")
