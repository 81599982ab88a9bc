"""One browser for a file of tests, and a page of a large cluster for each test."""

import time

import pytest

from tests.unit.web.page_world import World
from tests.web.browser import Page, Served, chromium

SEED = 7


def world(*, nodes=5000, waiting=2000, running=1500) -> World:
    return World(nodes=nodes, waiting=waiting, running=running, now_s=time.time(), seed=SEED)


@pytest.fixture(scope="module")
def browser():
    with chromium() as driver:
        yield driver


@pytest.fixture
def small():
    with Served(world(nodes=200, waiting=60, running=40)) as served:
        yield served


@pytest.fixture
def page(browser, small):
    browser.get_log("browser")  # of the tests before
    yield Page(browser, small)
    found = browser.get_log("browser")
    browser.get("about:blank")  # before the server ends
    assert [each for each in found if each["level"] == "SEVERE"] == []
