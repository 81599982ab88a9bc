"""Keeps our certificate fresh and our registration right, as one part of the service.

The order matters when the authority changes: first the API server is set to trust both, then we
show a certificate of the new one. A certificate that is given in files is shown again when they
change.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

from shared.runtime.clock import Clock
from shared.runtime.env import Env
from shared.runtime.errors import Conflict, PumiceError, Rejected, Retryable
from shared.runtime.health import ReadinessGate
from shared.serving.authorities import Authorities
from shared.serving.certificates import Certificate, is_bundle, issue, read
from shared.serving.identity import ServingCertificate

_CHECK_EVERY_S: Final = 5.0
"""How often files, the Secret and the registration are checked."""
_RETRY_S: Final = 1.0
_UNREGISTER_S: Final = 3.0

Register = Callable[[str], Awaitable[None]]
"""Registers us with a bundle of authorities."""
Unregister = Callable[[], Awaitable[None]]
Close = Callable[[], Awaitable[None]]


class CertificateSource(Protocol):
    """Where certificates come from."""

    async def bundle(self) -> str:
        """Return what the API server shall trust."""
        ...

    async def certificate(self, shown: Certificate | None) -> Certificate | None:
        """Return the certificate to show from now on; None when the shown one will do."""
        ...

    def due_at(self, shown: Certificate | None) -> float:
        """Return the time of the next change that is known already."""
        ...


class IssuedCertificates:
    """Certificates that our own authority signs."""

    def __init__(
        self, authorities: Authorities, hosts: Sequence[str], *, clock: Clock, life_s: float
    ) -> None:
        self._authorities = authorities
        self._hosts = hosts
        self._clock = clock
        self._life_s = life_s
        self._signer = ""

    async def bundle(self) -> str:
        """Return our authorities; the newest is made or read first."""
        return (await self._authorities.trusted()).bundle

    async def certificate(self, shown: Certificate | None) -> Certificate | None:
        """Return a new certificate when the shown one's time is near or another signs now."""
        authority = (await self._authorities.trusted()).authority
        now = self._clock.now()
        if shown is not None and shown.renew_at > now and self._signer == authority.cert:
            return None
        self._signer = authority.cert
        return issue(authority, self._hosts, now=now, life_s=self._life_s)

    def due_at(self, shown: Certificate | None) -> float:
        """Return when the shown certificate is to be renewed."""
        return shown.renew_at if shown is not None else 0.0


class CertificateFiles:
    """A certificate in files that another program renews (W02)."""

    def __init__(self, *, cert: Path, key: Path, ca: Path | None, clock: Clock) -> None:
        self._cert, self._key, self._ca = cert, key, ca
        self._clock = clock

    async def bundle(self) -> str:
        """Return the CA's file, or the certificate itself where none was given. Raises Rejected."""
        flag = "ca-cert-file" if self._ca else "tls-cert-file"
        text = _text(self._ca or self._cert, flag)
        if not is_bundle(text):
            raise Rejected(f"--{flag}: {self._ca or self._cert} holds no certificate", field=flag)
        return text

    async def certificate(self, shown: Certificate | None) -> Certificate | None:
        """Return what the files hold, when that is another than the shown one. Raises Rejected."""
        cert = _text(self._cert, "tls-cert-file")
        key = _text(self._key, "tls-private-key-file")
        if shown is not None and (shown.cert, shown.key) == (cert, key):
            return None
        await self.bundle()
        try:
            return read(cert, key)
        except ValueError as error:
            raise Rejected(
                f"--tls-cert-file: {self._cert} holds no certificate: {error}",
                field="tls-cert-file",
            ) from error

    def due_at(self, shown: Certificate | None) -> float:
        """Return never: files are checked again and again."""
        del shown
        return float("inf")


def _text(path: Path, flag: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Rejected(f"--{flag}: cannot read {path}: {error}", field=flag) from error


class Certification:
    """The part of the service that renews the certificate and the registration."""

    name: Final = "certification"

    def __init__(
        self,
        source: CertificateSource,
        identity: ServingCertificate,
        *,
        register: Register | None,
        unregister: Unregister | None,
        close: Close,
        check_now: asyncio.Event,
        gate: ReadinessGate,
        env: Env,
    ) -> None:
        """Make it; setting `check_now` starts a check, and `close` is called at the very end."""
        self._source = source
        self._identity = identity
        self._register = register
        self._unregister = unregister
        self._close = close
        self._check_now = check_now
        self._gate = gate
        self._clock = env.clock
        self._log = env.log
        self._last_failure = ""

    async def run(self) -> None:
        """Keep certificate and registration up to date until cancelled."""
        try:
            while True:
                await self._wait(await self._check())
        finally:
            await self._end()

    async def _end(self) -> None:
        """Leave nothing behind that sends the API server to a closed port."""
        try:
            if self._unregister is not None:
                async with asyncio.timeout(_UNREGISTER_S):
                    await self._unregister()
        except (PumiceError, TimeoutError) as error:
            self._log.warning("unregistering_failed", reason=str(error))
        finally:
            await self._close()

    async def _check(self) -> float:
        """Do what is due; returns how long to wait."""
        self._check_now.clear()
        try:
            if self._identity.shown is None:
                await self._renew()
            if self._register is not None:
                await self._register(await self._source.bundle())
            await self._renew()
        except (Retryable, Conflict, Rejected) as error:
            if self._identity.shown is None and isinstance(error, Rejected):
                raise
            self._gate.set(ok=False, reason=str(error))
            if (
                str(error) != self._last_failure
            ):  # not each second of an hour without the API server
                self._last_failure = str(error)
                self._log.warning("certification_failed", reason=self._last_failure)
            return _RETRY_S
        self._last_failure = ""
        assert self._identity.shown is not None, "shown above"
        left_s = self._identity.shown.expires_at - self._clock.now()
        self._gate.set(ok=left_s > 0, reason="" if left_s > 0 else "the certificate has expired")
        until_s = self._source.due_at(self._identity.shown) - self._clock.now()
        return min(max(until_s, 0.05), _CHECK_EVERY_S)

    async def _renew(self) -> None:
        fresh = await self._source.certificate(self._identity.shown)
        if fresh is None:
            return
        self._identity.show(fresh)
        self._log.info(
            "certificate_shown", expires_in_s=round(fresh.expires_at - self._clock.now())
        )

    async def _wait(self, wait_s: float) -> None:
        try:
            async with asyncio.timeout(wait_s):
                await self._check_now.wait()
        except TimeoutError:
            return
