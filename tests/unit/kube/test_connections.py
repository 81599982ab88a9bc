"""The pool of connections, on servers that send what a test wrote down, byte by byte."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from shared.kube.connections import READ_AHEAD, Address, ConnectionEndedError, Connections
from tests.support.wait import until

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
ASK = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
Play = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """Counts connections; plays `script` on each, one entry per connection, the last for all."""

    def __init__(self, *script: Play) -> None:
        self.script = list(script)
        self.connections = 0
        self.requests = 0
        self.ended = asyncio.Event()
        """Some connection was ended by the client."""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Address]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            yield Address("127.0.0.1", port, None, "127.0.0.1")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        play = self.script[min(self.connections, len(self.script) - 1)]
        self.connections += 1
        try:
            await play(reader, writer)
            await reader.read()
        except ConnectionError:
            pass  # of a client that ended with bytes unread
        finally:
            self.ended.set()
            writer.close()


def answering(*answers: bytes, close: bool = False) -> Play:
    """Send an answer to each request, then hang or close."""

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
        if close:
            writer.write_eof()
            writer.close()

    return play


async def whole(pool: Connections, address: Address, request: bytes = ASK) -> bytes:
    answer = await pool.begin(address, request, is_repeatable=request.startswith(b"GET"))
    try:
        return await answer.read_all()
    finally:
        answer.close()


@pytest.fixture
async def pool() -> AsyncIterator[Connections]:
    pool = Connections(limit=4)
    yield pool
    pool.close()


async def test_a_connection_serves_one_request_after_the_other(pool: Connections) -> None:
    server = Server(answering(OK, OK, OK))
    async with server.serving() as address:
        assert [await whole(pool, address) for _ in range(3)] == [b"ok"] * 3
    assert server.connections == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK,
    ],
    ids=["in-pieces", "last-of-its-connection", "announced"],
)
async def test_an_answer_may_be_framed_in_each_way(pool: Connections, answer: bytes) -> None:
    async with Server(answering(answer, OK), answering(OK)).serving() as address:
        assert await whole(pool, address) == b"ok"
        assert await whole(pool, address) == b"ok"


async def test_a_body_without_a_length_ends_with_its_connection(pool: Connections) -> None:
    script = answering(b"HTTP/1.0 200 OK\r\n\r\nok", close=True), answering(OK)
    async with Server(*script).serving() as address:
        assert await whole(pool, address) == b"ok"
        assert await whole(pool, address) == b"ok"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n",
    ],
    ids=["nothing", "half-a-head", "half-a-body", "no-last-piece"],
)
async def test_an_answer_that_is_cut_off_is_no_answer(pool: Connections, answer: bytes) -> None:
    async with Server(answering(answer, close=True)).serving() as address:
        with pytest.raises(ConnectionEndedError, match="before its answer"):
            await whole(pool, address)


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nok",
    ],
    ids=["another-protocol", "an-upgrade", "two-lengths", "no-length"],
)
async def test_what_is_not_http_is_said_to_be_so(pool: Connections, answer: bytes) -> None:
    server = Server(answering(answer))
    async with server.serving() as address:
        with pytest.raises(ConnectionEndedError, match="not HTTP"):
            await whole(pool, address)
        await asyncio.wait_for(server.ended.wait(), 5)


async def test_only_what_may_be_repeated_is_sent_again_when_a_kept_connection_was_closed(
    pool: Connections,
) -> None:
    async def forgets(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer, and end the connection when the second request comes."""
        await answering(OK)(reader, writer)
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    server = Server(forgets, forgets, answering(OK))
    async with server.serving() as address:
        assert await whole(pool, address) == b"ok"
        assert await whole(pool, address) == b"ok", "of the second connection"
        with pytest.raises(ConnectionEndedError):
            await whole(pool, address, b"POST / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert server.connections == 2


async def test_a_server_that_closed_an_idle_connection_is_asked_over_a_new_one(
    pool: Connections,
) -> None:
    async with Server(answering(OK, close=True), answering(OK)).serving() as address:
        assert await whole(pool, address) == b"ok"
        await until(lambda: not pool._idle[0].is_open)
        assert await whole(pool, address, b"POST / HTTP/1.1\r\nHost: x\r\n\r\n") == b"ok"


@pytest.mark.parametrize("extra", [OK, b"HTTP/1.1 2", b"x"], ids=["answer", "part", "noise"])
async def test_more_than_was_asked_for_never_answers_another_request(
    pool: Connections, extra: bytes
) -> None:
    mine = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nmine"
    async with Server(answering(OK + extra, OK), answering(mine)).serving() as address:
        answer = await pool.begin(address, ASK, is_repeatable=False)
        try:
            assert await answer.read_all() == b"ok"
        except ConnectionEndedError:
            assert extra == b"x"
        finally:
            answer.close()
        assert await whole(pool, address) == b"mine"


async def test_a_cancelled_request_takes_its_connection_along(pool: Connections) -> None:
    server = Server(answering(), answering(OK))
    async with server.serving() as address:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await whole(pool, address)
        await asyncio.wait_for(server.ended.wait(), 5)
        assert await whole(pool, address) == b"ok"


async def test_what_was_begun_ends_on_an_old_connection_and_what_follows_takes_a_new_one(
    pool: Connections,
) -> None:
    mine = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nmine"
    script = [answering(OK, mine), answering(OK, mine), answering(OK, OK)]
    async with Server(*script).serving() as address:
        begun, idle = [await pool.begin(address, ASK, is_repeatable=True) for _ in range(2)]
        assert await idle.read_all() == b"ok"
        idle.close()
        pool.renew()
        assert await begun.read_all() == b"ok"
        begun.close()
        assert [await whole(pool, address) for _ in range(2)] == [b"ok", b"ok"]


async def test_requests_beyond_the_limit_wait_for_their_turn() -> None:
    pool = Connections(limit=2)
    piece = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n"
    server = Server(answering(piece), answering(piece), answering(OK))
    async with server.serving() as address:
        held = [await pool.begin(address, ASK, is_repeatable=True) for _ in range(2)]
        third = asyncio.ensure_future(whole(pool, address))
        assert [await answer.read() for answer in held] == [b"o", b"o"]
        assert not third.done()
        assert server.connections == 2
        held[0].close()
        held[0].close()
        assert await third == b"ok"
        pool.close()


async def test_a_stream_that_is_read_slowly_holds_its_server_back(pool: Connections) -> None:
    size, sent = 1 << 16, asyncio.Event()

    async def pours(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (size * 1000))
        for _ in range(1000):
            writer.write(b"x" * size)
            await writer.drain()
        sent.set()

    async with Server(pours).serving() as address:
        answer = await pool.begin(address, ASK, is_repeatable=True)
        assert answer._connection is not None
        held = answer._connection
        await until(lambda: held._is_paused)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(sent.wait(), 0.2)
        assert answer._connection._held < 1 << 20
        assert len(await answer.read()) < 1 << 20
        left = 0
        while piece := await answer.read():
            left += len(piece)
        assert left > size * 900
        answer.close()
        assert sent.is_set()


async def test_a_pool_that_is_closed_fails_what_is_open_and_what_follows(
    pool: Connections,
) -> None:
    async with Server(answering()).serving() as address:
        waiting = asyncio.ensure_future(whole(pool, address))
        await until(lambda: pool._open)
        pool.close()
        for request in (waiting, whole(pool, address)):
            with pytest.raises(ConnectionEndedError):
                await request


def sized(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


async def test_a_connection_whose_answer_came_whole_and_was_not_read_serves_the_next_request(
    pool: Connections,
) -> None:
    server = Server(answering(sized(bytes(READ_AHEAD + 1)), OK))
    async with server.serving() as address:
        unread = await pool.begin(address, ASK, is_repeatable=True)
        await until(lambda: unread.is_whole, describe="the answer came whole")
        unread.close()
        assert await asyncio.wait_for(whole(pool, address), 5) == b"ok"
    assert server.connections == 1


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * (2 * READ_AHEAD),
        b"HTTP/1.1 200 OK\r\n" + b"X: x\r\n" * READ_AHEAD,
        b"HTTP/1.1 200 " + b"O" * (2 * READ_AHEAD),
        b"HTTP/1.1 103 Early\r\n" + b"X: x\r\n" * READ_AHEAD,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n"
        + b"X: x\r\n" * READ_AHEAD,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;" + b"x" * (2 * READ_AHEAD),
    ],
    ids=["one-header", "many-headers", "reason", "announcement", "trailer", "chunk-extension"],
)
async def test_a_head_without_end_is_refused(pool: Connections, head: bytes) -> None:
    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for at in range(0, len(head), 1 << 14):
            writer.write(head[at : at + (1 << 14)])
            await writer.drain()

    server = Server(pour)
    async with server.serving() as address:
        with pytest.raises(ConnectionEndedError, match="larger than"):
            await asyncio.wait_for(whole(pool, address), 5)
        await asyncio.wait_for(server.ended.wait(), 5)
