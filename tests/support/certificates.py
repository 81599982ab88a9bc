"""A certificate authority for tests of TLS, on disk in a directory of the test."""

import ssl
from pathlib import Path

from pumice.local import authority
from pumice.local.authority import Pair, pair


class Authority:
    """Issues certificates for servers on the loopback and for clients by name."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._issuer = authority.Authority(f"authority {directory.name}")
        self._serial = 0
        self.ca_file = directory / "ca.crt"
        self.ca_file.write_text(self._issuer.certificate)

    def issue(self, name: str) -> Pair:
        """Return a new certificate for `name`, valid for the loopback address too."""
        self._serial += 1
        issued = pair(self._directory, str(self._serial))
        self._issuer.issue(issued, name, hosts=["localhost", "127.0.0.1"])
        return issued

    def server_context(self, verify: ssl.VerifyMode = ssl.CERT_REQUIRED) -> ssl.SSLContext:
        """Return the TLS context of a server that asks its clients for certificates."""
        server = self.issue("server")
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.ca_file))
        context.load_cert_chain(server.cert, server.key)
        context.verify_mode = verify
        return context
