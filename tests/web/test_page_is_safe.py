"""Names are hostile: whatever a cluster holds is text on the page, and no code of it runs."""

from urllib.parse import quote

import msgspec
import pytest

from shared.api.visibility import Change, ObjectRef, TimelineEntry
from tests.web.browser import Page, until

HOSTILE = "<img src=x onerror=window.hit=1><script>window.hit=1</script>"


def named(obj):
    """Return an object's metadata with a name that reads like markup."""
    return msgspec.structs.replace(obj.metadata, name=HOSTILE)


@pytest.fixture
def hostile(small):
    """A cluster whose every text is markup; real names cannot be, messages can."""
    world = small.world
    replace = msgspec.structs.replace
    world.jobs = [
        replace(job, message=HOSTILE, gate=HOSTILE, queue=HOSTILE, metadata=named(job))
        for job in world.jobs[:3]
    ]
    world.running = [
        replace(job, queue=HOSTILE, metadata=named(job), allocated={HOSTILE: HOSTILE})
        for job in world.running[:3]
    ]
    world.queues = [
        replace(
            queue,
            state=HOSTILE,
            metadata=named(queue),
            resources=tuple(replace(each, resource=HOSTILE) for each in queue.resources),
        )
        for queue in world.queues[:1]
    ]
    world.nodes = [
        replace(node, allocatable={HOSTILE: "1"}, metadata=named(node)) for node in world.nodes[:3]
    ]
    return small


@pytest.mark.parametrize("place", ["queues", "waiting", "running", "nodes"])
def test_markup_in_names_and_messages_is_shown_as_text(browser, hostile, place):
    page = Page(browser, hostile, place)
    page.shows("<script>" if place != "nodes" else "script>", "main")
    assert page.run("return window.hit === undefined")
    assert page.run("return document.querySelectorAll('main img, main script').length") == 0


def test_markup_in_events_searches_and_addresses_is_shown_as_text(browser, hostile):
    page = Page(browser, hostile, "events")
    about = ObjectRef(kind=HOSTILE, namespace=HOSTILE, name=HOSTILE)
    entry = TimelineEntry(at=hostile.world.at(0), what=HOSTILE, about=about, message=HOSTILE)
    hostile.tell(Change(entry=entry))
    page.shows("<script>")
    page.press("/")
    page.press("img")
    until(lambda: "<img" in page.text("#found"), "hits")
    page.go(f"jobs/{quote(HOSTILE, safe='')}/{quote(HOSTILE, safe='')}")
    page.shows("onerror", "h1")
    assert page.run("return window.hit === undefined")
    assert page.run("return document.querySelectorAll('main img, #found img').length") == 0


def test_the_policy_stops_code_and_styles_that_get_into_the_page_all_the_same(browser, small):
    page = Page(browser, small)
    refused = page.run("""
        const script = document.createElement('script');
        const tries = [
            () => { document.body.innerHTML = '<b>x</b>'; },
            () => { script.text = 'window.hit = 1'; },
            () => { script.src = 'main.js'; },
        ];
        const outcome = (attempt) => {
            try { attempt(); return ''; } catch (error) { return error.name; }
        };
        return tries.map(outcome);
    """)
    assert refused == ["TypeError"] * 3  # no policy of trusted types exists
    page.run("""
        const image = document.createElement('img');
        image.src = 'https://example.org/x.png';
        const stop = (event) => { window.stopped = event.violatedDirective; };
        document.addEventListener('securitypolicyviolation', stop);
        document.body.append(image);
    """)
    until(lambda: page.run("return window.stopped") == "img-src", "the policy")


def test_the_key_of_the_page_cannot_be_read_by_code(browser, small):
    page = Page(browser, small)
    assert page.run("return document.cookie") == ""
    assert "key=" not in page.driver.current_url
