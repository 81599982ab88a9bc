"""The transport of command lines: one connection, the errors of the services' transport."""

import socket

import pytest

from shared.kube.credentials import Access, Credentials, Loaded
from shared.kube.errors import AlreadyExists, Busy, Unreachable, Vanished
from shared.kube.plain import PlainTransport
from shared.kube.wire import Request
from shared.runtime.clock import SystemClock
from shared.runtime.errors import Rejected
from tests.support.scripted_api import ScriptedApi, json, status

PODS = Request(method="GET", path="/api/v1/pods", query=[("labelSelector", "a in (b)")])
MAKE = Request(method="POST", path="/api/v1/pods", body=b'{"a": 1}')


class Renewing:
    """A source whose token is another each time."""

    def __init__(self, host):
        self._host = host
        self._count = 0

    async def load(self):
        self._count += 1
        access = Access(host=self._host)
        return Loaded(access=access, authorization=f"Bearer token-{self._count}")


async def transport(host):
    credentials = await Credentials.open(Renewing(host), clock=SystemClock())
    return PlainTransport(credentials=credentials, user_agent="test", timeout_s=5.0)


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


async def test_refusals_are_the_errors_of_the_other_transport(api):
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


async def test_a_read_is_sent_again_when_the_kept_connection_was_closed(api):
    api.then(json({}), json({"again": True}))
    way = await transport(api.url)
    await way.exchange(PODS)
    way._connection.sock.shutdown(socket.SHUT_RDWR)
    assert await way.exchange(PODS) == b'{"again":true}'
    await way.close()


async def test_no_server_is_unreachable():
    way = await transport("http://127.0.0.1:1")
    with pytest.raises(Unreachable, match="refused") as caught:
        await way.exchange(PODS)
    assert isinstance(caught.value.__cause__, ConnectionRefusedError)


async def test_a_watch_is_refused():
    way = await transport("http://127.0.0.1:1")
    with pytest.raises(Rejected, match="no streams"):
        await way.open(PODS)
