"""Serves requests to the kubelets of fake nodes with an error: no container runs on them.

kube-apiserver hands `kubectl logs`, `exec`, `attach`, `cp` and `port-forward` to the kubelet of the
pod's node over HTTPS. KWOK plays nodes without a kubelet, and without this endpoint a user is told
of a host name that cannot be looked up. One endpoint answers for all nodes: every node has the
address `localhost` (`stages.yaml`), and kube-apiserver is told its port.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

import msgspec

from pumice.local.authority import Pair
from pumice.local.ports import LOOPBACK

_REQUEST_S: Final = 10.0
_SUBRESOURCES: Final[Mapping[str, str]] = {
    "attach": "attach",
    "containerLogs": "log",
    "exec": "exec",
    "portForward": "portforward",
}
"""First part of a kubelet's path → subresource of pods in the request to kube-apiserver."""


def no_program(pod: str, subresource: str) -> str:
    """Return the message for a request of a subresource of a pod on a fake node."""
    return (
        f"pod {pod} runs on a fake node: no program was started, so there is nothing to"
        f" answer {subresource}"
    )


class FakeKubelet:
    """One HTTPS endpoint on the loopback that refuses with a message."""

    def __init__(self, port: int, certificate: Pair) -> None:
        self.port = port
        self._certificate = certificate
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen. Raises OSError when the port is taken."""
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(self._certificate.cert, self._certificate.key)
        self._server = await asyncio.start_server(self._serve, LOOPBACK, self.port, ssl=tls)

    async def stop(self) -> None:
        """Stop listening; harmless if it was not started."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        unreadable = (OSError, TimeoutError, EOFError, asyncio.LimitOverrunError)
        with contextlib.closing(writer), contextlib.suppress(*unreadable):
            async with asyncio.timeout(_REQUEST_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(response(head))
                await writer.drain()


def response(head: bytes) -> bytes:
    """Return the HTTP response to a request that begins with `head`.

    The codes are those with which kube-apiserver passes the words on: it takes the text of a 406
    for logs, and the message of a Status for what would upgrade the connection.
    """
    line = head.partition(b"\r\n")[0].decode("ascii", "replace").split(" ")
    path = unquote(line[1].partition("?")[0]) if len(line) > 1 else ""
    first, _, rest = path.strip("/").partition("/")
    subresource = _SUBRESOURCES.get(first)
    pod = rest.split("/")[1] if rest.count("/") else ""
    if subresource is None or not pod:
        return _response("404 Not Found", "text/plain", b"a fake node serves no such path\n")
    message = no_program(pod, subresource)
    if subresource == "log":
        return _response("406 Not Acceptable", "text/plain", message.encode())
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": "BadRequest",
        "message": message,
        "code": 400,
    }
    return _response("400 Bad Request", "application/json", msgspec.json.encode(status))


def _response(status: str, content_type: str, body: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
