"""However an answer arrives, each request ends with its own answer or with an error, in time."""

import asyncio
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.kube.connections import READ_AHEAD, Address, Connections

pytestmark = pytest.mark.laws

ASK = b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n"
_DEADLINE_S = 10.0


class Exchange(NamedTuple):
    """One request: how its answer is written, and what its reader does with it."""

    size: int
    """Bytes of the body beside the request's number."""
    framing: str
    """length, chunked, trailers, close."""
    announcements: int
    """Answers of the kind 1xx before it."""
    cut_at: float | None
    """The share of the answer after which the server closes the connection."""
    garbage: bytes
    """Follows the answer unasked."""
    piece: int
    """Bytes per write of the server."""
    reader: str
    """all: reads it whole; some: reads a part and closes; none: closes unread."""


exchanges = st.builds(
    Exchange,
    size=st.sampled_from([0, 1, 100, READ_AHEAD - 1, READ_AHEAD + 1, 2 * READ_AHEAD]),
    framing=st.sampled_from(["length", "chunked", "trailers", "close"]),
    announcements=st.integers(0, 3),
    cut_at=st.one_of(st.none(), st.none(), st.floats(0, 1)),
    garbage=st.sampled_from([b"", b"", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n9", b"\0x"]),
    piece=st.sampled_from([1 << 9, 1 << 16, 1 << 20]),
    reader=st.sampled_from(["all", "all", "some", "none"]),
)


def written(exchange: Exchange, number: int) -> tuple[bytes, bytes]:
    """Return an answer as bytes, and its body, which names its request."""
    body = b"%d:" % number + bytes(exchange.size)
    early = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * exchange.announcements
    match exchange.framing:
        case "length":
            framed = b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        case "close":
            framed = b"Connection: close\r\n\r\n" + body
        case framing:
            half = len(body) // 2
            pieces = b"".join(
                b"%x\r\n%b\r\n" % (len(p), p) for p in (body[:half], body[half:]) if p
            )
            trailer = b"X-Trailer: x\r\n" if framing == "trailers" else b""
            framed = b"Transfer-Encoding: chunked\r\n\r\n%b0\r\n%b\r\n" % (pieces, trailer)
    return early + b"HTTP/1.1 200 OK\r\n" + framed, body


async def play(plan: list[Exchange]) -> None:
    """Ask one request after the other, as the plan says, and check each answer."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                number = int(head.split(b" ")[1][1:])
                exchange = plan[number]
                answer, _ = written(exchange, number)
                if exchange.cut_at is not None:
                    answer = answer[: int(len(answer) * exchange.cut_at)]
                else:
                    answer += exchange.garbage
                for at in range(0, len(answer), exchange.piece):
                    writer.write(answer[at : at + exchange.piece])
                    await writer.drain()
                if exchange.cut_at is not None or exchange.framing == "close":
                    return
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            return  # the client has ended, or the test
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    pool = Connections(limit=2)
    try:
        address = Address("127.0.0.1", server.sockets[0].getsockname()[1], None, "127.0.0.1")
        for number, exchange in enumerate(plan):
            async with asyncio.timeout(_DEADLINE_S):
                await ask(pool, address, exchange, number)
    finally:
        pool.close()
        server.close()
        await server.wait_closed()


async def ask(pool: Connections, address: Address, exchange: Exchange, number: int) -> None:
    """Ask one request; its answer is its own, or there is an error that the plan explains."""
    body = written(exchange, number)[1]
    is_broken = exchange.cut_at is not None or exchange.garbage
    try:
        answer = await pool.begin(address, ASK % number, is_repeatable=True)
        try:
            if exchange.reader == "all":
                read = await answer.read_all()
            elif exchange.reader == "some":
                read = await answer.read()
            else:
                read = b""
        finally:
            answer.close()
    except OSError:
        assert is_broken
        return
    if exchange.reader == "all" and not is_broken:
        assert read == body
    elif exchange.framing != "close":
        assert body.startswith(read)


@given(st.lists(exchanges, min_size=1, max_size=6))
def test_each_request_ends_with_its_own_answer_or_with_an_error(plan: list[Exchange]) -> None:
    asyncio.run(play(plan))
