"""Whose certificate a caller must show: the CA in `--client-ca-file`, reread when it changes.

kube-apiserver shows a client certificate to webhooks when its `--admission-control-config-file`
names a kubeconfig with one. A file that cannot be read any more leaves the last good CA in force.
"""

from pathlib import Path
from typing import Final

from services.admission.adapters.identity import Identity
from shared.runtime.clock import Clock
from shared.runtime.errors import Rejected
from shared.runtime.logs import Logger

_LOOK_S: Final = 1.0
_FLAG: Final = "client-ca-file"


class ClientAuthority:
    """A part of the service."""

    name: Final = "client-ca"

    def __init__(self, path: str, identity: Identity, *, clock: Clock, log: Logger) -> None:
        """Read the file for the first time. Raises Rejected when it cannot be used."""
        self._path = Path(path) if path else None
        self._identity = identity
        self._clock = clock
        self._log = log
        self._text = ""
        if self._path is not None:
            self._take(self._path)

    async def run(self) -> None:
        """Reread the file when it changes, until cancelled."""
        while True:
            await self._clock.sleep(_LOOK_S)
            if self._path is None:
                continue
            try:
                if self._take(self._path):
                    self._log.info("client_ca_read", file=str(self._path))
            except Rejected as error:
                self._log.error("client_ca_refused", reason=str(error))

    def _take(self, path: Path) -> bool:
        """Trust what the file holds; returns whether that is something else than before."""
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise Rejected(f"--{_FLAG}: cannot read {path}: {error}", field=_FLAG) from error
        if text == self._text:
            return False
        try:
            self._identity.trust(text)
        except ValueError as error:
            raise Rejected(f"--{_FLAG}: {path}: {error}", field=_FLAG) from error
        self._text = text
        return True
