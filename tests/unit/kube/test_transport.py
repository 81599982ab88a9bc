"""The transport on a server that does what an API server rarely does."""

import asyncio
import ssl

import pytest

from shared.kube.credentials import Access
from shared.kube.errors import AlreadyExists, Busy, Expired, Silence, Unreachable, Vanished
from shared.kube.transport import open_transport
from shared.kube.wire import Request
from shared.runtime.clock import SystemClock
from tests.support.certificates import Authority
from tests.support.scripted_api import ScriptedApi, chunks, hang, json, status

PODS = Request(method="GET", path="/api/v1/pods", query=[("labelSelector", "a in (b)")])
OPTIONS = {"user_agent": "test", "request_timeout_s": 30.0, "clock": SystemClock()}
MAKE = Request(method="POST", path="/api/v1/pods", body=b'{"a": 1}')


class Renewing:
    """A source whose token is another each time."""

    def __init__(self, host):
        self._host = host
        self._count = 0

    async def load(self):
        self._count += 1
        return Access(host=self._host, authorization=f"Bearer token-{self._count}")


class Fixed:
    """A source of one way to connect."""

    def __init__(self, access):
        self._access = access

    async def load(self):
        return self._access


async def transport(host):
    return await open_transport(Renewing(host), **OPTIONS)


@pytest.fixture
async def api():
    async with ScriptedApi().serving() as served:
        yield served


async def test_requests_travel_over_one_connection_with_query_body_and_token(api):
    api.then(json({"items": []}), json({"made": True}, 201))
    way = await transport(f"{api.url}/below/")
    assert await way.exchange(PODS) == b'{"items":[]}'
    assert await way.exchange(MAKE) == b'{"made":true}'
    await way.close()
    read, made = api.seen
    assert (read.path, read.query) == ("/below/api/v1/pods", {"labelSelector": "a in (b)"})
    assert read.headers["Authorization"] == "Bearer token-1"
    assert (made.method, made.body) == ("POST", b'{"a": 1}')
    assert read.peer == made.peer


async def test_refusals_are_errors_of_their_kinds(api):
    api.then(
        status(404, "no such pod"), status(409, "is there", "AlreadyExists"), status(503, "ill")
    )
    way = await transport(api.url)
    for request, kind in ((PODS, Vanished), (MAKE, AlreadyExists), (PODS, Busy)):
        with pytest.raises(kind):
            await way.exchange(request)
    await way.close()


async def test_a_refused_token_is_renewed_once(api):
    api.then(status(401, "who?"), json({}))
    way = await transport(api.url)
    assert await way.exchange(PODS) == b"{}"
    await way.close()
    assert [seen.headers["Authorization"] for seen in api.seen] == [
        "Bearer token-1",
        "Bearer token-2",
    ]


async def test_no_server_is_unreachable():
    way = await transport("http://127.0.0.1:1")
    with pytest.raises(Unreachable, match="refused") as caught:
        await way.exchange(PODS)
    assert isinstance(caught.value.__cause__, ConnectionRefusedError)


@pytest.mark.parametrize("name", [None, "localhost"], ids=["by-address", "by-name"])
async def test_certificates_are_presented_and_checked(tmp_path, name):
    authority = Authority(tmp_path / "ca")
    client = authority.issue("someone")
    async with ScriptedApi().serving(authority.server_context()) as api:
        access = Access(
            host=api.url,
            server_name=name,
            ca=authority.ca_file.read_bytes(),
            certificate=client.cert.read_bytes(),
            key=client.key.read_bytes(),
        )
        api.then(json({}))
        way = await open_transport(Fixed(access), **OPTIONS)
        assert await way.exchange(PODS) == b"{}"
        await way.close()
        assert [seen.client for seen in api.seen] == ["someone"]


@pytest.mark.parametrize("name", [None, "another"], ids=["of-another-authority", "of-another-name"])
async def test_a_server_with_another_certificate_is_refused(tmp_path, name):
    authority = Authority(tmp_path / "ca")
    trusted = authority if name else Authority(tmp_path / "stranger")
    tls = authority.server_context(verify=ssl.CERT_NONE)
    async with ScriptedApi().serving(tls) as api:
        access = Access(host=api.url, server_name=name, ca=trusted.ca_file.read_bytes())
        way = await open_transport(Fixed(access), **OPTIONS)
        with pytest.raises(Unreachable, match="certificate"):
            await way.exchange(PODS)
        assert api.seen == []


async def test_an_answer_that_does_not_come_is_unreachable(api):
    api.then(hang())
    short = {**OPTIONS, "request_timeout_s": 0.05}
    way = await open_transport(Fixed(Access(host=api.url)), **short)
    with pytest.raises(Unreachable, match=r"no answer in 0\.05 s"):
        await way.exchange(PODS)
    await way.close()


async def test_a_cancelled_request_ends_at_once_and_the_next_goes_out(api):
    api.then(hang(), json({}))
    way = await open_transport(Fixed(Access(host=api.url)), **OPTIONS)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await way.exchange(PODS)
    assert await way.exchange(MAKE) == b"{}"
    await way.close()


WATCH = Request(method="GET", path="/api/v1/pods", query=[("watch", "true")])
LINE = b'{"type":"ADDED"}\n'


async def test_a_watch_arrives_piece_by_piece_while_other_requests_go_on(api):
    api.then(chunks(LINE, ending="hang"), json({"beside": True}))
    way = await transport(api.url)
    stream = await way.open(WATCH)
    assert await stream.read(silence_s=5) == LINE
    assert await way.exchange(PODS) == b'{"beside":true}'
    stream.close()
    await way.close()
    watch, beside = api.seen
    assert watch.query == {"watch": "true"}
    assert watch.peer != beside.peer


@pytest.mark.parametrize(("ending", "is_orderly"), [("end", True), ("reset", False)])
async def test_the_end_of_a_watch_is_told_from_a_break(api, ending, is_orderly):
    api.then(chunks(LINE, ending=ending))
    way = await transport(api.url)
    stream = await way.open(WATCH)
    assert await stream.read(silence_s=5) == LINE
    if is_orderly:
        assert await stream.read(silence_s=5) == b""
    else:
        with pytest.raises(Unreachable):
            await stream.read(silence_s=5)
    stream.close()


async def test_a_watch_that_is_refused_raises_what_a_request_does(api):
    api.then(status(401, "who?"), status(410, "too old"))
    way = await transport(api.url)
    with pytest.raises(Expired):
        await way.open(WATCH)
    assert [seen.headers["Authorization"] for seen in api.seen] == [
        "Bearer token-1",
        "Bearer token-2",
    ]


async def test_a_watch_without_a_byte_is_silent_and_its_reader_can_be_cancelled(api):
    api.then(chunks(ending="hang"), chunks(ending="hang"))
    way = await transport(api.url)
    first, second = await way.open(WATCH), await way.open(WATCH)
    with pytest.raises(Silence):
        await first.read(silence_s=0.05)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await second.read(silence_s=60)
    first.close()
    second.close()
