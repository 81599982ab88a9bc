"""Where our certificate authority is kept: in a Secret that all replicas share, or in memory.

A new authority is made when two thirds of the old one's life are over. The old one stays in the
bundle until the next change, so that certificates of both are trusted meanwhile.
"""

import base64
from typing import Any, Final, Protocol

import msgspec

from shared.api import kinds
from shared.kube.client import Kube
from shared.runtime.clock import Clock
from shared.runtime.errors import Conflict, Gone, Retryable
from shared.runtime.logs import Logger
from shared.serving.certificates import (
    Certificate,
    is_bundle,
    new_authority,
    read_authority,
)

_CERT, _KEY, _PREVIOUS = "ca.crt", "ca.key", "previous.crt"
_ATTEMPTS: Final = 5


class Trusted(msgspec.Struct, frozen=True, kw_only=True):
    """The authority that signs now, and all that the API server shall trust."""

    authority: Certificate
    previous: str = ""

    @property
    def bundle(self) -> str:
        """Return the certificates to trust, PEM."""
        return self.authority.cert + self.previous


class Authorities(Protocol):
    """Keeps the authority."""

    async def trusted(self) -> Trusted:
        """Return the authority, made or renewed first when that is due. Raises Retryable."""
        ...


def _renewed(known: Trusted | None, signer: str, *, now: float, life_s: float) -> Trusted:
    """Return a new authority beside the one that was, if that still holds."""
    before = known.authority if known is not None else None
    former_cert = before.cert if before is not None and before.expires_at > now else ""
    return Trusted(authority=new_authority(signer, now=now, life_s=life_s), previous=former_cert)


class InMemory:
    """The authority of a single process, gone with it."""

    def __init__(self, *, clock: Clock, life_s: float, signer: str) -> None:
        """`signer` is the name of the authority."""
        self._clock = clock
        self._signer = signer
        self._life_s = life_s
        self._trusted: Trusted | None = None

    async def trusted(self) -> Trusted:
        """Return the authority."""
        now = self._clock.now()
        if self._trusted is None or self._trusted.authority.renew_at <= now:
            self._trusted = _renewed(self._trusted, self._signer, now=now, life_s=self._life_s)
        return self._trusted


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    uid: str = ""
    resource_version: str = ""


class _Secret(msgspec.Struct, frozen=True):
    metadata: _Meta
    data: dict[str, str] | None = None


class InSecret:
    """The authority of all replicas, in one Secret; of two that make one at once, one wins."""

    def __init__(
        self,
        kube: Kube,
        *,
        namespace: str,
        name: str,
        signer: str,
        clock: Clock,
        life_s: float,
        log: Logger,
    ) -> None:
        """`name` is the Secret's, `signer` that of the authority in it."""
        self._kube = kube
        self._signer = signer
        self._namespace = namespace
        self._name = name
        self._clock = clock
        self._life_s = life_s
        self._log = log

    async def trusted(self) -> Trusted:
        """Return the authority. Raises Retryable when the Secret cannot be agreed on for now."""
        for _ in range(_ATTEMPTS):
            now = self._clock.now()
            try:
                raw = await self._kube.get(kinds.SECRET, self._namespace, self._name)
            except Gone:
                secret, known = None, None
            else:
                secret = msgspec.json.decode(raw, type=_Secret)
                known = self._read(secret)
            if known is not None and known.authority.renew_at > now:
                return known
            made = _renewed(known, self._signer, now=now, life_s=self._life_s)
            try:
                await self._write(secret, made)
            except Conflict:
                continue  # another replica was first: take what it made
            self._log.info("authority_made", secret=f"{self._namespace}/{self._name}")
            return made
        raise Retryable(f"Secret {self._namespace}/{self._name} changes again and again")

    def _read(self, secret: _Secret) -> Trusted | None:
        data = {key: _plain(value) for key, value in (secret.data or {}).items()}
        try:
            authority = read_authority(data.get(_CERT, ""), data.get(_KEY, ""))
        except ValueError as error:
            self._log.warning("authority_unreadable", secret=self._name, reason=str(error))
            return None
        previous = data.get(_PREVIOUS, "")
        return Trusted(authority=authority, previous=previous if is_bundle(previous) else "")

    async def _write(self, secret: _Secret | None, made: Trusted) -> None:
        values = {_CERT: made.authority.cert, _KEY: made.authority.key}
        data: dict[str, Any] = {key: _encoded(value) for key, value in values.items()}
        data[_PREVIOUS] = _encoded(made.previous) if made.previous else None
        if secret is not None:
            await self._kube.patch(
                kinds.SECRET,
                self._namespace,
                self._name,
                {"data": data},
                uid=secret.metadata.uid,
                resource_version=secret.metadata.resource_version,
            )
            return
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": self._name,
                "namespace": self._namespace,
                "labels": {"app.kubernetes.io/part-of": "pumice"},
            },
            "data": {key: value for key, value in data.items() if value},
        }
        await self._kube.create(kinds.SECRET, self._namespace, body)


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _plain(text: str) -> str:
    return base64.b64decode(text).decode(errors="replace")
