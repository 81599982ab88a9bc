"""The live page on a local cluster with all services: `pumice up`, `pumice web`, a browser."""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Coroutine
from contextlib import contextmanager

import pytest

from pumice.local.ports import free_port
from tests.support.api import connect
from tests.support.world import job, queue, task
from tests.web.browser import Browsed, until

pytestmark = pytest.mark.timeout(300)


def pumice(*words: object) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pumice", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr + done.stdout


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """The data directory of a cluster of four nodes."""
    directory = tmp_path_factory.mktemp("local") / "cluster"
    pumice("up", "--data-dir", directory, "--nodes", 4, "--cpu", 4, "--gpus", 2)
    yield directory
    pumice("down", "--purge", "--data-dir", directory)


@contextmanager
def web(directory):
    """Start `pumice web`; yields the address that it prints."""
    words = ("web", "--no-browser", "--data-dir", directory, "--port", free_port())
    with subprocess.Popen(
        [sys.executable, "-m", "pumice", *map(str, words)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def on(directory, act: Callable[..., Coroutine]):
    """Do something on the cluster's API server."""

    async def run():
        async with connect(directory / "kubeconfig") as api:
            return await act(api)

    return asyncio.run(run())


def test_a_user_sees_why_a_job_waits_what_runs_and_what_would_be(browser, cluster):
    on(cluster, lambda api: api.create("jobs", job("wide", task("work", 1, cpu="5")), "default"))
    runs = job("runs", task("work", 2, cpu="1", annotations={"pumice.dev/run-seconds": "600"}))
    on(cluster, lambda api: api.create("jobs", runs, "default"))
    with web(cluster) as address:
        page = Browsed(browser, address)
        page.go("waiting")
        page.shows("wide")
        page.shows("predicate")
        page.go("running")
        page.shows("runs")
        page.go("queues")
        page.shows("default")
        page.go("nodes")
        page.shows("empty: ")
        page.go("jobs/default/wide")
        for words in ("Gates", "Failed".lower(), "Insufficient cpu", "Created"):
            page.shows(words)
        page.go("events")
        page.shows("Bound")
        page.go("what-if")
        page.fill('input[name="pods"]', "2")
        page.run("document.querySelector('form button').click()")
        page.shows("It starts now.")
        page.fill('input[name="cpu"]', "100")
        page.run("document.querySelector('form button').click()")
        page.shows("It waits at the gate")


def test_a_queue_that_would_get_more_starts_the_job_that_waits_for_it(browser, cluster):
    narrow = queue("narrow", capability={"cpu": "1"})
    on(cluster, lambda api: api.create("queues", narrow))
    held = job("held", task("work", 1, cpu="2"), queue="narrow")
    on(cluster, lambda api: api.create("jobs", held, "default"))
    with web(cluster) as address:
        page = Browsed(browser, address)
        page.go("waiting")
        page.shows("held")
        page.go("what-if?queue=narrow&cpu=2&change=narrow")
        until(lambda: page.all('[name="capability.cpu"][placeholder="now 1"]'), "what it has now")
        page.run("document.querySelector('form button').click()")
        page.shows("It waits at the gate")
        page.fill('[name="pods"]', "0")
        page.fill('[name="capability.cpu"]', "2")
        page.run("document.querySelector('form button').click()")
        page.shows("default/held", '[aria-label="Would start"]')
        page.fill('[name="pods"]', "1")
        page.fill('[name="capability.cpu"]', "4")
        page.run("document.querySelector('form button').click()")
        page.shows("It starts now.")


def test_a_job_that_comes_is_shown_without_a_click(browser, cluster):
    with web(cluster) as address:
        page = Browsed(browser, address)
        page.go("waiting")
        until(lambda: "of" in page.text(".bar-of-view"), "the list")
        wide = job("later", task("work", 1, cpu="6"))
        on(cluster, lambda api: api.create("jobs", wide, "default"))
        page.shows("later")
        on(cluster, lambda api: api.delete("jobs", "default", "later"))
        until(lambda: "later" not in page.text("main"), "the job is gone")
