"""A body is not read before its sender is known, and never beyond the bound."""

import asyncio
import ssl
from urllib.parse import urlsplit

import pytest

from tests.contract.apiserver.client import REQUEST_S, Side

pytestmark = pytest.mark.asyncio(loop_scope="session")

HUGE = 700 << 20
MAPS = "/api/v1/namespaces/default/configmaps"


async def status_of(
    side: Side, method: str, path: str, *, token: str = "", sent: bytes = b""
) -> int:
    """Return the status of an answer to a request that announces a huge body and sends less."""
    url = urlsplit(side.plane.url)
    tls = ssl.create_default_context(cafile=str(side.plane.pki.ca))
    async with asyncio.timeout(REQUEST_S):
        reader, writer = await asyncio.open_connection(url.hostname, url.port, ssl=tls)
        try:
            account = f"Authorization: Bearer {token}\r\n" if token else ""
            writer.write(
                f"{method} {path} HTTP/1.1\r\nHost: {url.netloc}\r\n{account}"
                f"Content-Type: application/json\r\nContent-Length: {HUGE}\r\n\r\n".encode()
                + sent
            )
            return int((await reader.readline()).split()[1])
        finally:
            writer.close()


async def test_health_is_told_without_a_look_at_the_body(side: Side):
    assert await status_of(side, "GET", "/healthz") == 200


@pytest.mark.parametrize("token", ["", "of-a-stranger"])
async def test_an_unknown_client_is_refused_without_a_look_at_the_body(side: Side, token: str):
    assert await status_of(side, "POST", MAPS, token=token) in (401, 403)


async def test_a_body_beyond_the_bound_is_refused(side: Side):
    sent = b'{"data": {"a": "' + b"x" * (4 << 20)
    assert await status_of(side, "POST", MAPS, token=side.plane.token, sent=sent) == 413
