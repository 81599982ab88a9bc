"""Each view can be read and used without a mouse: names of what can be used, contrast, focus."""

import pytest

from tests.web.browser import Page, chromium, until

USED = {
    "button",
    "link",
    "textbox",
    "combobox",
    "searchbox",
    "spinbutton",
    "tab",
    "grid",
    "treegrid",
}
CONTRAST = """
    const light = ([r, g, b]) => {
        const part = (value) => {
            const share = value / 255;
            return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
        };
        return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
    };
    const channels = (colour) => colour.match(/[\\d.]+/g).map(Number);
    const ground = (element) => {
        for (let each = element; each; each = each.parentElement) {
            const found = channels(getComputedStyle(each).backgroundColor);
            if (found.length === 3 || found[3] === 1) return found;
        }
        return [255, 255, 255];
    };
    const weak = new Set();
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const element = walker.currentNode.parentElement;
        const shown = element.checkVisibility() && element.getClientRects().length;
        const text = walker.currentNode.data.trim();
        if (!shown || !text || element.closest('.unseen, option')) continue;
        const of = [channels(getComputedStyle(element).color), ground(element)].map(light);
        const ratio = (Math.max(...of) + 0.05) / (Math.min(...of) + 0.05);
        const where = element.className || element.tagName;
        if (ratio < 4.5) weak.add(`${where} ${ratio.toFixed(1)}`);
    }
    return [...weak];
"""


def place(served, name):
    job = served.world.jobs[0].metadata
    places = {
        "queue": "queues/team-01",
        "job": f"jobs/{job.namespace}/{job.name}",
        "changed queue": "what-if?change=team-01",
    }
    return places.get(name, name)


VIEWS = [
    "queues",
    "queue",
    "waiting",
    "running",
    "nodes",
    "job",
    "usage",
    "what-if",
    "changed queue",
    "events",
]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_stands_out_from_its_ground_in_every_view(small, dark):
    with chromium(dark=dark) as driver:
        page = Page(driver, small)
        for view in VIEWS:
            page.go(place(small, view))
            loaded(page)
            assert page.run(CONTRAST) == [], view


def test_the_measure_of_contrast_finds_weak_text(page):
    page.run("document.querySelector('h1').style.color = 'rgb(150, 150, 150)'")
    [weak] = page.run(CONTRAST)
    assert weak.startswith("H1 ")


def test_all_that_can_be_used_has_a_role_and_a_name(page, small):
    for view in VIEWS:
        page.go(place(small, view))
        loaded(page)
        nodes = page.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        shown = [node for node in nodes if not node.get("ignored")]
        roles = {node["role"]["value"] for node in shown}
        assert {"banner", "main", "navigation", "heading"} <= roles, view
        nameless = [
            node["role"]["value"]
            for node in shown
            if node["role"]["value"] in USED and not node.get("name", {}).get("value")
        ]
        assert nameless == [], view


def test_the_view_that_is_open_is_marked_and_has_the_focus(page):
    page.go("waiting")
    loaded(page)
    assert page.text('[aria-current="page"]') == "Waiting"
    assert page.run("return document.activeElement.getAttribute('role')") == "grid"
    rows = page.run("return document.querySelector('[role=grid]').getAttribute('aria-rowcount')")
    assert rows == "61"


def loaded(page):
    """Wait until a view shows what it has asked for."""
    until(lambda: "Loading" not in page.text("main") and page.text("h1"), "the view is loaded")
    page.driver.execute_async_script("requestAnimationFrame(() => setTimeout(arguments[0], 50))")
