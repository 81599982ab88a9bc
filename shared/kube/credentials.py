"""The credentials of a client, kept current while tokens and certificates rotate.

Each request takes its Authorization header from `Credentials`. New certificates are loaded into the
TLS context that the client already uses; new connections present them. A source
(`shared.kube.sources`) says what is loaded and when to load again.
"""

import asyncio
import contextlib
import ipaddress
import os
import ssl
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit

import msgspec

from shared.runtime.clock import Clock
from shared.runtime.errors import PumiceError, Rejected

_RETRY_LOAD_S: Final = 5.0
"""Least time between two loads after a failure or a 401: plugins are slow processes."""


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """Where the API server is, what a connection to it needs, and who we are."""

    host: str
    """Address with its scheme, without a slash at the end."""
    verify: bool = True
    server_name: str | None = None
    """Name in the server's certificate, if it is not the host's."""
    proxy: str | None = None
    ca: bytes | None = None
    """Authorities in PEM; None: those of the system."""
    certificate: bytes | None = None
    """Client certificate in PEM, with its chain."""
    key: bytes | None = None
    authorization: str | None = None
    """Value of the Authorization header, None for certificates alone or for no account."""
    files: tuple[Path, ...] = ()
    """Files whose change means: load again."""
    reload_at: float | None = None
    """Unix seconds from which the credential is to be renewed, None if it does not age."""


class Source(Protocol):
    """Where credentials come from."""

    async def load(self) -> Access:
        """Read everything. Raises Rejected for a wrong file, Retryable for a failed plugin."""
        ...


class Credentials:
    """The current credential; every request asks `authorization()` for it."""

    def __init__(self, source: Source, access: Access, *, clock: Clock) -> None:
        """Use `Credentials.open`, which loads the first time."""
        self._source = source
        self._clock = clock
        self._lock = asyncio.Lock()
        self.access = access
        """How to connect, as of the last load."""
        self._stamps = _stamps(access.files)
        self._next_load = 0.0
        self.tls = _tls_context(access)

    @classmethod
    async def open(cls, source: Source, *, clock: Clock) -> "Credentials":
        """Load for the first time; raises what the source raises."""
        return cls(source, await source.load(), clock=clock)

    @property
    def host(self) -> str:
        """Return the API server's address, scheme included, without a slash at the end."""
        return self.access.host

    async def authorization(self) -> str | None:
        """Return the header's value for the next request, renewed if it has aged.

        A renewal that fails keeps the old value, which the server may still accept.
        """
        if self._is_stale():
            async with self._lock:
                if self._is_stale():
                    await self._renew()
        return self.access.authorization

    async def refused(self, authorization: str | None) -> bool:
        """Load again after a 401; return whether the request is worth repeating."""
        async with self._lock:
            if self.access.authorization != authorization:
                return True
            if self._clock.now() >= self._next_load:
                self._next_load = self._clock.now() + _RETRY_LOAD_S
                await self._renew()
            return self.access.authorization != authorization

    def _is_stale(self) -> bool:
        reload_at = self.access.reload_at
        aged = reload_at is not None and self._clock.now() >= max(reload_at, self._next_load)
        return aged or _stamps(self.access.files) != self._stamps

    async def _renew(self) -> None:
        stamps = _stamps(self.access.files)
        try:
            access = await self._source.load()
            _load_material(self.tls, access)
            if not _needs_system_roots(self.access) and _needs_system_roots(access):
                self.tls.load_default_certs()
        except (PumiceError, ssl.SSLError, OSError) as exc:
            self._next_load = self._clock.now() + _RETRY_LOAD_S
            self._stamps = stamps  # what is half written is read again when it is whole
            import structlog  # half of what a command line would import for a list

            log = structlog.get_logger(__name__)
            log.warning("credential_renewal_failed", error=str(exc))
            return
        # The stamps from before the load: a file that changed during it is read once more.
        self._stamps = stamps if access.files == self.access.files else _stamps(access.files)
        self.access = access


def _tls_context(access: Access) -> ssl.SSLContext:
    """Return a TLS context with the CA, client certificate and strictness that are wanted.

    Python 3.13's strict X.509 checks are off, as they are in Go's client: many cluster CAs lack
    the extensions that it asks for. Raises Rejected when a file cannot be read or used.
    """
    try:
        if access.ca or _needs_system_roots(access):
            context = ssl.create_default_context(cadata=_text(access.ca))
        else:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        _load_material(context, access)
    except (ssl.SSLError, OSError, UnicodeDecodeError) as exc:
        raise Rejected(f"TLS material for {access.host} cannot be used: {exc}") from exc
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not access.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _needs_system_roots(access: Access) -> bool:
    """Tell whether a connection may have to trust the authorities of the system.

    Reading them takes 50 ms of CPU, for nothing where no TLS is spoken: without it on this machine,
    where no proxy is asked either.
    """
    plain = access.host.startswith("http://") and is_loopback(access.host) and not access.proxy
    return not access.ca and not plain


def is_loopback(host: str) -> bool:
    """Tell whether an address with its scheme is one of this machine."""
    name = urlsplit(host).hostname or ""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def _load_material(context: ssl.SSLContext, access: Access) -> None:
    if access.ca:
        context.load_verify_locations(cadata=_text(access.ca))
    if not access.certificate:
        return
    # The TLS library reads from nothing but a file.
    handle, name = tempfile.mkstemp(prefix="pumice-")  # mode 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(access.certificate + b"\n" + (access.key or b""))
        context.load_cert_chain(name)
    finally:
        Path(name).unlink()


def _text(ca: bytes | None) -> str | None:
    """Return authorities as the TLS library takes them: without comments that are no ASCII."""
    return ca.decode("ascii", "ignore") if ca else None


def _stamps(files: Sequence[Path]) -> tuple[tuple[int, int, int], ...]:
    """Return what changes when a file is written or replaced (two microseconds per file)."""
    stamps = []
    for file in files:
        stamp = (0, 0, 0)
        with contextlib.suppress(OSError):  # a file that is being replaced: read again soon
            found = os.stat(file)  # noqa: PTH116 - half the time of Path.stat, per request
            stamp = (found.st_mtime_ns, found.st_ino, found.st_size)
        stamps.append(stamp)
    return tuple(stamps)
