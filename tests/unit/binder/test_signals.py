"""HTTP calls to pods that will be evicted: to the pod alone, once, and within its grace."""

import asyncio
from typing import Any

import msgspec
import pytest
from aiohttp import web
from msgspec import structs

from services.binder.adapters.checkpoint_signals import call_pod
from services.binder.adapters.cluster import snapshot_of
from services.binder.adapters.notices import EvictionNotices
from services.binder.intents.signals import signal_url
from tests.support.clock import VirtualClock
from tests.support.env import env_of_a_test
from tests.unit.binder.test_notices import ASKING, INTENT, NOW, OnePod

URL = "http://10.1.2.3:8080/save"


@pytest.mark.parametrize(
    ("stated", "url"),
    [
        ("http://:8080/save", "http://10.1.2.3:8080/save"),
        ("http://:80", "http://10.1.2.3:80/"),
        ("http://:8080/a?now=1", "http://10.1.2.3:8080/a?now=1"),
    ],
)
def test_the_annotation_names_port_and_path(stated: str, url: str):
    assert signal_url(stated, pod_ip="10.1.2.3") == url


def test_an_address_may_be_of_version_6():
    assert signal_url("http://:80/x", pod_ip="fd00::1") == "http://[fd00::1]:80/x"


@pytest.mark.parametrize(
    "stated",
    [
        "", "http://example.com:80/", "http://10.0.0.1:80/", "http://@example.com:80/", "http://:0/",
        "http://:65536/", "http://:80@example.com/", "https://:80/", "http://:/", "http://:80/a b",
        "http://:80/a\r\nHost: b", "http://:80\\@b/", "http://:\u0663/", "http://:80/" + "a" * 300,
        "file:///etc/passwd",
    ],
)  # fmt: skip
def test_no_other_host_scheme_or_form_is_called(stated: str):
    assert signal_url(stated, pod_ip="10.1.2.3") == ""


@pytest.mark.parametrize(
    "address",
    ["", "127.0.0.1", "169.254.169.254", "0.0.0.0", "224.0.0.1", "::1", "fe80::1", "fe80::1%eth0",
     "::ffff:127.0.0.1", "example.com", "255.255.255.255"],
)  # fmt: skip
def test_no_address_is_called_that_no_pod_has(address: str):
    assert signal_url("http://:80/", pod_ip=address) == ""


def pod(*, host_network: bool = False, **annotations: str) -> bytes:
    notes = {f"pumice.dev/{key.replace('_', '-')}": text for key, text in annotations.items()}
    return msgspec.json.encode(
        {
            "metadata": {"name": "p", "namespace": "ns", "uid": "u", "annotations": notes},
            "spec": {"hostNetwork": host_network, "schedulerName": "volcano"},
            "status": {"podIP": "10.1.2.3", "phase": "Running"},
        }
    )


def test_the_address_is_the_pods_own():
    body = pod(checkpoint_signal="http://:8080/save")
    assert snapshot_of(body, ("volcano",)).signal == URL
    assert snapshot_of(pod(), ("volcano",)).signal == ""


def test_a_pod_on_the_network_of_its_node_is_not_called():
    body = pod(host_network=True, checkpoint_signal="http://:10250/run")
    assert snapshot_of(body, ("volcano",)).signal == ""


async def calls_of(signal: str, *, deaths: int = 0) -> tuple[list[tuple[str, float]], float]:
    """Return the calls with their time limits, and how long an eviction waited."""
    clock, calls = VirtualClock(NOW), list[tuple[str, float]]()
    server = OnePod(clock, 10, set())
    server.pod = structs.replace(ASKING, grace_s=10, signal=signal)

    async def call(url: str, pod: str, *, timeout_s: float) -> bool:
        calls.append((url, timeout_s))
        await clock.sleep(3)
        return True

    notices = EvictionNotices(server, env=env_of_a_test(clock=clock), most_s=60, call=call)  # type: ignore[arg-type]
    for _ in range(deaths):
        binder = asyncio.create_task(notices.prepare(INTENT))
        await clock.advance(1)
        binder.cancel()
        await asyncio.gather(binder, return_exceptions=True)
    binder = asyncio.create_task(notices.prepare(INTENT))
    while not binder.done():
        await clock.advance(0.25)
    await binder
    return calls, clock.now() - NOW


async def test_a_victim_is_called_once_and_keeps_its_grace():
    calls, waited_s = await calls_of(URL)
    assert calls == [(URL, 10)]
    assert 10 <= waited_s <= 11


async def test_a_binder_that_takes_over_calls_again_with_what_is_left():
    calls, waited_s = await calls_of(URL, deaths=1)
    assert calls == [(URL, 10), (URL, 9)]
    assert 10 <= waited_s <= 11


async def test_who_asks_for_no_call_gets_none():
    assert (await calls_of(""))[0] == []


# --- over HTTP -------------------------------------------------------------------------------


async def served(handler: Any, *, timeout_s: float = 5) -> bool:
    """Call a server on this machine whose handler is given; return whether it answered."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        env = env_of_a_test(clock=VirtualClock(NOW))
        url = f"http://127.0.0.1:{port}/save"
        return await call_pod(url, "ns/p", timeout_s=timeout_s, log=env.log)
    finally:
        await runner.cleanup()


async def test_the_call_is_a_post_that_follows_no_redirect():
    seen = []

    async def handler(request: web.Request) -> web.Response:
        seen.append((request.method, request.path, await request.read()))
        raise web.HTTPFound("/elsewhere")

    assert await served(handler)
    assert seen == [("POST", "/save", b"")]


async def test_a_pod_that_does_not_answer_fails_no_eviction():
    async def handler(_: web.Request) -> web.Response:
        await asyncio.Event().wait()
        return web.Response()

    assert not await served(handler, timeout_s=0.2)


async def test_a_port_on_which_nobody_listens_fails_no_eviction():
    env = env_of_a_test(clock=VirtualClock(NOW))
    assert not await call_pod("http://127.0.0.1:1/save", "ns/p", timeout_s=1, log=env.log)
