"""The certificate of the listening socket, which is changed while the service runs.

The TLS library reads certificates from files only. They are written to a private directory for the
moment of loading and removed at once, so that no key stays on a disk.
"""

import ssl
import tempfile
from pathlib import Path

from prometheus_client import Gauge

from shared.runtime.errors import Rejected
from shared.serving.certificates import Certificate


class ServingCertificate:
    """The TLS side of a server's socket."""

    def __init__(self, expiry: Gauge) -> None:
        self.context = _context("", required=True)
        """For the next connection; it is another one when callers must show other certificates."""
        self.shown: Certificate | None = None
        self._expiry = expiry

    def trust(self, authorities: str, *, required: bool = True) -> None:
        """Check callers' certificates by these authorities (PEM), from now on.

        Callers without one are dropped if it is `required`. Raises ValueError when the text holds
        no authority.
        """
        context = _context(authorities, required=required)
        before, self.context = self.context, context
        if self.shown is not None:
            try:
                self.show(self.shown)
            except Rejected:
                self.context = before
                raise

    def show(self, certificate: Certificate) -> None:
        """Show `certificate` from the next connection on.

        Raises Rejected when it is unsound; what was shown before is shown on then. The library
        drops the old certificate before it finds that the new one has another key, so each is tried
        on a context of its own first.
        """
        with tempfile.TemporaryDirectory(prefix="pumice-tls-") as directory:
            cert, key = Path(directory, "tls.crt"), Path(directory, "tls.key")
            cert.write_text(certificate.cert, encoding="utf-8")
            key.touch(mode=0o600)
            key.write_text(certificate.key, encoding="utf-8")
            try:
                for context in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), self.context):
                    context.load_cert_chain(cert, key, password=_no_password)
            except ssl.SSLError as error:
                raise Rejected(
                    f"certificate and key do not go together: {error.reason or error}",
                    field="tls-cert-file",
                ) from error
        self.shown = certificate
        self._expiry.set(certificate.expires_at)


def _context(authorities: str, *, required: bool) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if authorities:
        try:
            context.load_verify_locations(cadata=authorities)
        except ssl.SSLError as error:
            raise ValueError(f"holds no certificate: {error.reason or error}") from error
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # Go is not as strict as Python 3.13
    return context


def _no_password() -> str:
    """Answer for a key with a pass phrase: without it the library asks the terminal, and waits."""
    return ""
