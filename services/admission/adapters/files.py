"""Files named by flags, read at the start and again when they change.

`--admission-conf` holds resource groups (W02, W30), sources of users and limits.
`--client-ca-file` holds the CA of the certificate that a caller must show: kube-apiserver shows one
to webhooks when its `--admission-control-config-file` names a kubeconfig with it. If a file becomes
unreadable, its last good content stays in force, and this is logged.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from services.admission.rules.groups import BadConfiguration, read_configuration
from services.admission.rules.review import Terms
from shared.runtime.clock import Clock
from shared.runtime.errors import Rejected
from shared.runtime.logs import Logger
from shared.serving.identity import ServingCertificate

_POLL_S: Final = 1.0
"""Files are polled: a mounted ConfigMap changes by a link, which not every watcher sees."""


class Configuration:
    """The settings of the rules, including those of the file; a part that rereads the file."""

    name: Final = "admission-conf"

    def __init__(
        self,
        path: str,
        terms: Terms,
        *,
        changed: Callable[[], None],
        clock: Clock,
        log: Logger,
    ) -> None:
        """Read the file for the first time. Raises Rejected when it cannot be used."""
        self._path = Path(path) if path else None
        self._changed = changed
        self._clock = clock
        self._log = log
        self._text = ""
        self._terms = terms
        if self._path is not None:
            try:
                self._apply(self._path.read_text(encoding="utf-8"))
            except (OSError, UnicodeDecodeError, BadConfiguration) as error:
                raise Rejected(
                    f"--admission-conf: {self._path}: {error}", field="admission-conf"
                ) from error

    @property
    def terms(self) -> Terms:
        """Return the current settings of the rules."""
        return self._terms

    async def run(self) -> None:
        """Reread the file when it changes, until cancelled."""
        while True:
            await self._clock.sleep(_POLL_S)
            if self._path is not None:
                self._read_file(self._path)

    def _read_file(self, path: Path) -> None:
        try:
            text = path.read_text(encoding="utf-8")
            if text == self._text:
                return
            self._text = text
            self._apply(text)
        except (OSError, UnicodeDecodeError, BadConfiguration) as error:
            self._log.error("admission_conf_refused", file=str(path), reason=str(error))
            return
        self._log.info("admission_conf_read", file=str(path))
        self._changed()

    def _apply(self, text: str) -> None:
        self._text = text
        found = read_configuration(text)
        self._terms = msgspec.structs.replace(
            self._terms,
            resource_groups=found.resource_groups,
            user_sources={source.requester: source.annotation for source in found.users},
            submit_limits=found.limits,
        )


_FLAG: Final = "client-ca-file"


class ClientAuthority:
    """The CA of callers' certificates; a part of the service that rereads the file."""

    name: Final = "client-ca"

    def __init__(
        self, path: str, identity: ServingCertificate, *, clock: Clock, log: Logger
    ) -> None:
        """Read the file for the first time. Raises Rejected when it cannot be used."""
        self._path = Path(path) if path else None
        self._identity = identity
        self._clock = clock
        self._log = log
        self._text = ""
        if self._path is not None:
            self._apply(self._path)

    async def run(self) -> None:
        """Reread the file when it changes, until cancelled."""
        while True:
            await self._clock.sleep(_POLL_S)
            if self._path is None:
                continue
            try:
                if self._apply(self._path):
                    self._log.info("client_ca_read", file=str(self._path))
            except Rejected as error:
                self._log.error("client_ca_refused", reason=str(error))

    def _apply(self, path: Path) -> bool:
        """Trust the certificates of the file; return whether they have changed."""
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
