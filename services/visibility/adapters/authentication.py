"""Knows the API server by its certificate, and its users by the headers that it sends.

What to trust is in the ConfigMap `extension-apiserver-authentication`, which the API server
writes itself, or in flags. Either is read again and again, as certificates are renewed. What was
good last stays in force when it cannot be read.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import msgspec
from aiohttp import web

from services.visibility.api.statuses import unauthorized
from services.visibility.api.users import RequestHeaders, User, from_config_map, read_user
from shared.api.kinds import CONFIGMAP
from shared.kube.client import Kube
from shared.runtime.clock import Clock
from shared.runtime.errors import PumiceError, Rejected
from shared.runtime.health import ReadinessGate
from shared.runtime.logs import Logger
from shared.serving.identity import ServingCertificate

_NAMESPACE: Final = "kube-system"
_NAME: Final = "extension-apiserver-authentication"
_REFRESH_S: Final = 10.0
_RETRY_S: Final = 1.0

Source = Callable[[], Awaitable[RequestHeaders]]
"""Returns what to trust now; raises a PumiceError when that cannot be read."""


class _ConfigMap(msgspec.Struct, frozen=True):
    data: dict[str, str] = {}


def in_cluster(kube: Kube) -> Source:
    """Return the source that is the API server's own ConfigMap."""

    async def read() -> RequestHeaders:
        raw = await kube.get(CONFIGMAP, _NAMESPACE, _NAME)
        try:
            return from_config_map(msgspec.json.decode(raw, type=_ConfigMap).data)
        except ValueError as error:
            raise Rejected(f"ConfigMap {_NAMESPACE}/{_NAME}: {error}") from error

    return read


def in_flags(file: str, headers: RequestHeaders) -> Source:
    """Return the source that is a file with authorities, and headers that flags name."""
    flag = "requestheader-client-ca-file"

    def text() -> str:
        try:
            return Path(file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise Rejected(f"--{flag}: cannot read {file}: {error}", field=flag) from error

    async def read() -> RequestHeaders:
        return msgspec.structs.replace(headers, authorities=text())

    return read


class Authentication:
    """A part of the service: returns the user of a request, and keeps what to trust up to date."""

    name: Final = "authentication"

    def __init__(
        self,
        source: Source,
        identity: ServingCertificate,
        *,
        gate: ReadinessGate,
        clock: Clock,
        log: Logger,
    ) -> None:
        self._source = source
        self._identity = identity
        self._gate = gate
        self._clock = clock
        self._log = log
        self._headers: RequestHeaders | None = None
        self._last_failure = ""

    async def run(self) -> None:
        """Read the source now and again, until cancelled."""
        while True:
            await self._clock.sleep(_REFRESH_S if await self._read() else _RETRY_S)

    def user(self, request: web.Request) -> User:
        """Return the user of a request. Raises ApiFailure (401)."""
        if self._headers is None:
            raise unauthorized()
        return read_user(
            self._headers,
            _common_names(request),
            values=lambda name: request.headers.getall(name, []),
            names=list(request.headers),
        )

    async def _read(self) -> bool:
        try:
            found = await self._source()
            if found != self._headers:
                self._trust(found)
        except PumiceError as error:
            if str(error) != self._last_failure:
                self._last_failure = str(error)
                self._log.warning("authentication_not_read", reason=self._last_failure)
            if self._headers is None:
                self._gate.set(ok=False, reason=str(error))
            return False
        self._last_failure = ""
        self._gate.set(ok=True)
        return True

    def _trust(self, found: RequestHeaders) -> None:
        try:
            self._identity.trust(found.authorities, required=False)
        except ValueError as error:
            raise Rejected(f"the authority of the API server's certificate {error}") from error
        self._headers = found
        self._log.info("authentication_read", names=list(found.allowed_names))


def _common_names(request: web.Request) -> list[str] | None:
    """Return the common names of the caller's certificate, None when it shows none."""
    transport = request.transport
    shown = transport.get_extra_info("peercert") if transport is not None else None
    if not shown:
        return None
    return [value for rdn in shown["subject"] for key, value in rdn if key == "commonName"]
