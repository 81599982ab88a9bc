"""The live page in a real browser: each view, what is alive in it, keys, links, themes."""

import re
import time

import pytest

from shared.api.visibility import Change, ObjectRef, TimelineEntry
from shared.kube.errors import Busy, Status
from tests.unit.web.page_world import GPU, World
from tests.web.browser import Keys, Page, Served, chromium, until


def rows(page):
    return [row.text for row in page.all(".rows .row")]


HEAR = """
    const told = document.querySelector('#live');
    window.heard = [];
    new MutationObserver(() => window.heard.push(told.innerText))
        .observe(told, { childList: true, characterData: true, subtree: true });
"""


def is_cut(page, served):
    """Break the stream of changes; wait until the page has said so and follows again.

    The words are there for two seconds only, which a busy machine may spend elsewhere.
    """
    page.run(HEAR)
    served.cut()
    until(lambda: any("every 5 s" in words for words in page.run("return heard")), "the break")
    page.shows("live", "#live")


def test_the_tree_of_queues_shows_shares_and_closes_its_branches(page):
    page.go("queues")
    page.shows("team-00")
    assert page.run("return document.querySelector('[aria-label^=\"cpu: in use\"]') !== null")
    page.shows("production")
    page.run("document.querySelector('[aria-label=\"Close research\"]').click()")
    until(lambda: "team-00" not in page.text("main"), "the branch is closed")
    page.shows("team-01")
    assert page.all('[aria-expanded="false"]')


def test_the_line_of_a_queue_has_places_reasons_and_expected_starts(page, small):
    page.go("queues/team-01")
    page.shows("Line (")
    wanted = [job for job in small.world.jobs if job.queue == "team-01"]
    until(lambda: len(page.all(".rows .row")) >= min(10, len(wanted)), "the line")
    first = page.text('.rows .row[aria-rowindex="2"]')
    assert first.startswith("1\n")
    assert wanted[0].metadata.name in first
    assert wanted[0].gate in first
    assert "in " in first
    page.run("document.querySelector('[data-list=\"runningjobs\"]').click()")
    page.shows("serve-")


def test_heads_stand_above_their_columns_in_lists_that_scroll_and_in_short_ones(page, small):
    scrolls = {}
    queue = small.world.jobs[0].queue
    for place, words in (("waiting", "Expected start"), (f"queues/{queue}", "Line (")):
        page.go(place)
        page.shows(words)
        until(lambda: page.all(".rows .row"), "the list")
        lefts, scrolls[place] = page.run("""
            const lefts = (row) => [...row.children].map((at) => at.getBoundingClientRect().left);
            const rows = document.querySelector('.rows');
            return [[lefts(document.querySelector('.row.head')), lefts(rows.querySelector('.row'))],
                    rows.scrollHeight > rows.clientHeight];
        """)
        assert lefts[0] == pytest.approx(lefts[1], abs=1.0)
    assert set(scrolls.values()) == {True, False}


def test_a_job_that_waits_tells_why_and_what_it_lived_through(page, small):
    job = small.world.jobs[0]
    page.go("waiting")
    page.shows(job.metadata.name)
    page.run("document.querySelector('.rows a[href*=\"jobs\"]').click()")
    for words in (job.message, "Insufficient nvidia.com/gpu", "and 3 in namespaces", "Admitted"):
        page.shows(words)
    assert page.driver.current_url.endswith(f"#/jobs/{job.metadata.namespace}/{job.metadata.name}")


def test_running_gangs_show_what_they_hold(page, small):
    page.go("running")
    page.shows(small.world.running[0].metadata.name)
    page.shows("GiB")


def test_a_node_is_chosen_on_the_map_with_the_arrows(page, small):
    page.go("nodes")
    until(lambda: page.run("return document.querySelector('canvas')?.width > 300"), "the map")
    page.run("document.querySelector('canvas').focus()")
    page.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    with_gpus = [node for node in small.world.nodes if GPU in node.allocatable]
    page.shows(with_gpus[1].metadata.name, ".told")
    colours = page.run("""
        const canvas = document.querySelector('canvas');
        const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
        const found = new Set();
        for (let at = 0; at < data.length; at += 4) found.add(data.slice(at, at + 4).join());
        return found.size;
    """)
    assert colours > 5  # a step each


def test_the_map_shows_another_resource_when_it_is_chosen(page):
    page.go("nodes")
    page.shows("empty:")
    before = page.text(".legend.steps")
    page.run("""
        const select = document.querySelector('[aria-label="Resource"]');
        select.value = 'pods';
        select.dispatchEvent(new Event('change'));
    """)
    until(lambda: page.text(".legend.steps") != before, "other counts")


def test_the_legend_of_the_map_adds_up_to_the_number_of_nodes(page):
    page.go("nodes")
    page.shows("200 nodes:", ".legend.steps")
    parts = page.text(".legend.steps").replace("200 nodes:", "").split("of these")[0]
    counts = [int(part) for part in re.findall(r": (\d+)", parts)]
    assert sum(counts) == 200
    assert "without gpu: 40" in parts


def test_a_few_nodes_are_drawn_with_their_names_in_groups_of_equal_ones(browser):
    tall = "return document.querySelector('canvas').getBoundingClientRect().height"
    with Served(World(nodes=20, waiting=1, running=1, now_s=time.time(), seed=1)) as served:
        page = Page(browser, served, "nodes")
        # Two groups with headings, and more than one row of named cells.
        until(lambda: page.run(tall) > 3 * 38, "the map is laid out")
        height = page.run(tall)
        page.run("""
            const select = document.querySelector('[aria-label="Groups"]');
            select.value = '';
            select.dispatchEvent(new Event('change'));
        """)
        until(lambda: page.run(tall) < height, "one group without a heading")


def test_a_row_has_the_short_reason_and_its_title_the_whole_message(page, small):
    job = small.world.jobs[0]
    page.go("waiting")
    page.shows("60 of 60")
    [short] = job.shortages
    why = '.rows .row[aria-rowindex="2"] .why'
    page.shows(f"gpu: {short.requested} wanted, {short.free} free", why)
    assert page.run(f"return document.querySelector('{why}').title") == job.message
    is_cut = "(cell) => cell.scrollHeight > cell.clientHeight + 1"
    assert not page.run(f"return [...document.querySelectorAll('.why')].some({is_cut})")


def test_the_history_shows_curves_with_their_last_values(page):
    page.go("history")
    page.shows("waiting: 71")
    page.shows("nine of ten at most: 1 h 46 min")
    drawn = page.all(".chart path")
    assert len(drawn) == 6
    label = page.run("return document.querySelector('.chart').getAttribute('aria-label')")
    assert label.endswith("now cpu 89 %, gpu 89 %")


def test_the_usage_shows_queues_over_days_waits_shares_and_budgets(page, small):
    page.go("usage")
    page.shows("gpu hours a day, by queue")
    assert len(page.all('.chart path[class^="area"]')) == 5
    page.shows("others: ")
    page.shows("Waits of jobs, by the day of their submission")
    page.shows("used up on ")
    page.shows("1,000 of 1,000 gpu hours used; used up")
    page.shows("60 % used, a share of 33 %")
    page.run("""
        const select = document.querySelector('[aria-label="Resource"]');
        select.value = 'cpu';
        select.dispatchEvent(new Event('change'));
    """)
    page.shows("cpu hours a day, by queue")
    asked = {spec.report for spec in small.world.reported}
    assert asked == {"usage", "waits", "shares", "budgets"}


def test_a_change_is_shown_without_a_click(page, small):
    page.go("waiting")
    page.shows("60 of 60")
    small.change(small.world.jobs.clear, "pendingjobs")
    page.shows("No job waits.")


def test_the_feed_shows_what_happens_newest_first(page, small):
    page.go("events")
    page.shows("Nothing has happened yet.")
    about = ObjectRef(kind="Job", namespace="team-00", name="a")
    for what in ("Admitted", "Bound"):
        at = small.world.at(0)
        small.tell(Change(entry=TimelineEntry(at=at, what=what, about=about, message="m")))
    until(lambda: len(page.all(".rows .row")) == 2, "both events")
    assert "Bound" in page.text('.rows .row[aria-rowindex="2"]')


def test_what_has_happened_is_told_once_when_the_stream_is_opened_again(page, small):
    page.go("events")
    page.shows("Nothing has happened yet.")
    about = ObjectRef(kind="Job", namespace="team-00", name="a")

    def happens(what, before):
        entry = TimelineEntry(at=small.world.at(0), what=what, about=about, message="m")
        small.tell(Change(entry=entry))
        until(lambda: len(page.all(".rows .row")) == before + 1, what)

    happens("Admitted", 0)
    happens("Bound", 1)
    is_cut(page, small)
    happens("Evicted", 2)
    assert "Evicted" in page.text('.rows .row[aria-rowindex="2"]')


def test_a_search_finds_jobs_queues_and_nodes(page, small):
    page.press("/")
    page.press("train-0003")
    until(lambda: page.all('#found [role="option"]'), "hits")
    assert page.text("#found").count("train-0003") >= 2
    page.press(Keys.ARROW_DOWN, Keys.ENTER)
    until(lambda: "#/jobs/team-" in page.driver.current_url, "the job is open")
    page.press("/")
    page.press("node-17")
    page.shows("node", "#found")
    page.press(Keys.ENTER)
    page.shows("node-17", ".told")


def test_keys_lead_to_every_view_and_back(page):
    views = (("2", "Waiting"), ("3", "Running"), ("4", "Nodes"), ("5", "History"), ("1", "Queues"))
    for key, title in views:
        page.press(key)
        page.shows(title, "h1")
    page.press("2")
    page.shows("Waiting", "h1")
    page.press(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ENTER)
    page.shows("Gates")
    page.press(Keys.ESCAPE)
    page.shows("Waiting", "h1")
    page.press("?")
    page.shows("light, dark", "dialog")
    page.press(Keys.ESCAPE)
    until(lambda: not page.run("return document.querySelector('dialog').open"), "it is closed")


def test_a_theme_that_is_chosen_is_kept(page):
    def ground():
        return page.run("return getComputedStyle(document.body).backgroundColor")

    light = ground()
    page.press("t", "t")
    until(lambda: ground() != light, "a dark ground")
    dark = ground()
    Page(page.driver, page.served)
    assert ground() == dark
    page.run("localStorage.clear()")


def test_a_dark_system_gets_a_dark_page(small):
    with chromium(dark=True) as driver:
        page = Page(driver, small)
        assert (
            page.run("return getComputedStyle(document.body).backgroundColor") == "rgb(21, 25, 29)"
        )


@pytest.mark.parametrize(
    "place", ["queues", "waiting", "running", "nodes", "history", "usage", "what-if", "events"]
)
def test_nothing_is_wider_than_a_phone(small, place):
    with chromium(width=390, height=844) as driver:
        page = Page(driver, small, place)
        page.shows(" ", "h1, h2, main")
        width = page.run("return document.documentElement.scrollWidth")
        assert width <= 390


def test_a_user_of_one_namespace_is_shown_that_one(browser, small):
    small.may = lambda namespace: namespace == "team-00"
    page = Page(browser, small, "waiting")
    page.shows("team-00/", "main")
    assert "ns=team-00" in page.driver.current_url
    seen = {row.split("/")[0].split("\n")[-1] for row in rows(page)}
    assert seen == {"team-00"}
    page.go("nodes")
    page.shows("is forbidden")


@pytest.mark.parametrize("place", ["waiting", "jobs"])
def test_a_service_that_is_not_synced_yet_is_asked_again(browser, small, place):
    job = small.world.jobs[0].metadata
    words = "the state of the cluster is not synced yet"
    small.way.refuses = Busy("GET", Status(code=503, message=words))
    page = Page(browser, small, f"jobs/{job.namespace}/{job.name}" if place == "jobs" else place)
    page.shows(words)
    small.way.refuses = None
    page.shows("Gates" if place == "jobs" else "60 of 60")


def test_a_page_without_its_server_says_so_and_recovers(browser, small):
    page = Page(browser, small, "waiting")
    page.shows("60 of 60")
    is_cut(page, small)


def test_a_user_who_may_not_see_the_queues_begins_with_the_jobs_of_his_namespace(browser, small):
    small.may = lambda namespace: namespace == "team-00"
    page = Page(browser, small)
    page.shows("Waiting", "h1")
    page.shows("team-00/", "main")
    page.go("queues")
    page.shows("is forbidden")
