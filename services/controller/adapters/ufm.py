"""Asks a fabric manager for its ports (H03). User and password come from a Secret."""

import base64
from typing import Final

import aiohttp
import msgspec

from services.controller.hypernode import ufm
from services.controller.hypernode.config import UfmSource
from shared.api import kinds
from shared.contracts.subjects import split_key
from shared.kube.client import Kube
from shared.runtime.errors import Gone, Rejected, Retryable

_TIME_S: Final = 30.0
_LARGEST_BYTES: Final = 256 * 1024 * 1024
"""A fabric of 100,000 ports is some 150 MB."""
_CHUNK_BYTES: Final = 64 * 1024
_OK: Final = 200


class _Secret(msgspec.Struct, frozen=True, kw_only=True):
    data: dict[str, str] = msgspec.field(default_factory=dict)


class FabricManager:
    """One fabric manager."""

    def __init__(self, kube: Kube, source: UfmSource, *, time_s: float = _TIME_S) -> None:
        """Ask as `source` says; an answer has `time_s` seconds to be there whole."""
        self._kube = kube
        self._source = source
        self._time_s = time_s

    async def ports(self) -> list[ufm.Port]:
        """Return the computers' ports. Raises Retryable, or Rejected for bad credentials."""
        headers = {"Authorization": await self._authorization()}
        url = self._source.endpoint.rstrip("/") + ufm.PORTS_PATH
        timeout = aiohttp.ClientTimeout(total=self._time_s)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, headers=headers) as session,
                session.get(
                    url, ssl=not self._source.insecure_skip_verify, allow_redirects=False
                ) as answer,
            ):
                if answer.status != _OK:
                    raise Retryable(f"{url} answered {answer.status}")
                body = await _whole(answer, url)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Retryable(f"{url}: {type(error).__name__} {error}") from error
        try:
            found = ufm.ports(body)
        except msgspec.DecodeError as error:
            raise Retryable(f"{url} answers no list of ports: {error}") from error
        if not found:  # a manager that starts has seen nothing yet: that is no news of the fabric
            raise Retryable(f"{url} names no computer")
        return found

    async def _authorization(self) -> str:
        namespace, name = split_key(self._source.secret)
        try:
            answer = await self._kube.get(kinds.SECRET, namespace, name)
        except Gone as error:
            raise Retryable(f"there is no Secret {self._source.secret}") from error
        data = msgspec.json.decode(answer, type=_Secret).data
        try:
            user, password = (
                base64.b64decode(data[key], validate=True).decode()
                for key in ("username", "password")
            )
        except (KeyError, ValueError) as error:
            raise Rejected(
                f"Secret {self._source.secret} needs username and password", field="data"
            ) from error
        return aiohttp.encode_basic_auth(user, password)


async def _whole(answer: aiohttp.ClientResponse, url: str) -> bytes:
    """Return the body of an answer, unless it is without measure."""
    body = bytearray()
    async for chunk in answer.content.iter_chunked(_CHUNK_BYTES):
        body += chunk
        if len(body) > _LARGEST_BYTES:
            raise Retryable(f"{url} answers more than {_LARGEST_BYTES} bytes")
    return bytes(body)
