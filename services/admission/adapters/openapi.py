"""Reads what the API server itself knows of pods and claims: its OpenAPI of the core group.

Any account may read it. Without it, as on an API server that has none, nothing is said of fields.
"""

from typing import Final

import msgspec

from services.admission.rules.fields import CLAIM, TEMPLATE, Schema, Schemas
from shared.kube.client import Kube
from shared.runtime.clock import Clock
from shared.runtime.errors import PumiceError
from shared.runtime.logs import Logger

_PATH: Final = "/openapi/v3/api/v1"
_AGAIN_S: Final = 600.0
"""An API server is upgraded now and then."""
_RETRY_S: Final = 30.0


class _Components(msgspec.Struct, frozen=True, kw_only=True):
    schemas: dict[str, Schema] = msgspec.field(default_factory=dict)


class _Document(msgspec.Struct, frozen=True, kw_only=True):
    components: _Components = _Components()


class OpenApi:
    """A part of the service: `schemas` are those of the last good answer."""

    name: Final = "openapi"

    def __init__(self, kube: Kube, *, clock: Clock, log: Logger) -> None:
        self._kube = kube
        self._clock = clock
        self._log = log
        self._complaint = ""
        self.schemas: Schemas = {}

    async def run(self) -> None:
        """Read it now and again, until cancelled."""
        while True:
            await self._clock.sleep(_AGAIN_S if await self._read() else _RETRY_S)

    async def _read(self) -> bool:
        try:
            answer = await self._kube.request("GET", _PATH)
            found = msgspec.json.decode(answer, type=_Document).components.schemas
        except (PumiceError, msgspec.DecodeError) as error:
            self._complain(str(error))
            return False
        if not {TEMPLATE, CLAIM} <= found.keys():
            self._complain(f"{_PATH} has no {TEMPLATE}")
            return False
        self.schemas, self._complaint = found, ""
        return True

    def _complain(self, why: str) -> None:
        if why != self._complaint:
            self._complaint = why
            self._log.info("openapi_not_read", reason=why)
