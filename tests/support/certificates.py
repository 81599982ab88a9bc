"""A certificate authority for tests of TLS, on disk in a directory of the test."""

import datetime as dt
import ipaddress
import ssl
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Issued(NamedTuple):
    """Files of one certificate."""

    cert: Path
    key: Path


class Authority:
    """Issues certificates for servers on the loopback and for clients by name."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(f"authority {directory.name}")
        self._serial = 0
        cert = self._builder(self._name, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        self.ca_file = directory / "ca.crt"
        self.ca_file.write_bytes(_pem(cert.sign(self._key, hashes.SHA256())))

    def issue(self, name: str) -> Issued:
        """Return a new certificate for `name`, valid for the loopback address too."""
        self._serial += 1
        key = ec.generate_private_key(ec.SECP256R1())
        alternatives = [
            x509.DNSName("localhost"),
            x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        ]
        builder = self._builder(_name(name), key).add_extension(
            x509.SubjectAlternativeName(alternatives), critical=False
        )
        issued = Issued(
            self._directory / f"{self._serial}.crt", self._directory / f"{self._serial}.key"
        )
        issued.cert.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))
        issued.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return issued

    def server_context(self, verify: ssl.VerifyMode = ssl.CERT_REQUIRED) -> ssl.SSLContext:
        """Return the TLS context of a server that asks its clients for certificates."""
        server = self.issue("server")
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.ca_file))
        context.load_cert_chain(server.cert, server.key)
        context.verify_mode = verify
        return context

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey
    ) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + dt.timedelta(days=1))
        )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _pem(cert: x509.Certificate) -> bytes:
    return cert.public_bytes(serialization.Encoding.PEM)
