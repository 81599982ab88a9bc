"""A certificate authority for one installation, which exists while it signs and not longer.

Its key is written nowhere, so that no further identity can be signed later. Keys are elliptic
(P-256), which takes no time; every file that holds a key has mode 0600. Certificates outlive
any reasonable data directory (ten years). They have the extensions of RFC 5280 that Python demands
of a chain since 3.13.
"""

import datetime as dt
import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from pumice.local.files import write_private

_LIFE: Final = dt.timedelta(days=3650)
_BEGIN: Final = dt.timedelta(hours=1)
_SIGNS_CERTIFICATES: Final = x509.KeyUsage(
    key_cert_sign=True, crl_sign=True, digital_signature=True, content_commitment=False,
    key_encipherment=False, data_encipherment=False, key_agreement=False,
    encipher_only=False, decipher_only=False,
)  # fmt: skip


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """Files of one certificate and its key."""

    cert: Path
    key: Path


def pair(directory: Path, name: str) -> Pair:
    """Return the files of the certificate `name` in a directory."""
    return Pair(cert=directory / f"{name}.crt", key=directory / f"{name}.key")


class Authority:
    """Signs certificates of one installation."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = (
            self._builder(self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_SIGNS_CERTIFICATES, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate = _pem(certificate)

    def issue(
        self,
        files: Pair,
        name: str,
        *,
        groups: Sequence[str] = (),
        hosts: Sequence[str] = (),
    ) -> None:
        """Write a certificate and its key, as `issued` makes them."""
        certificate, key = self.issued(name, groups=groups, hosts=hosts)
        write_private(files.cert, certificate)
        write_private(files.key, key)

    def issued(
        self, name: str, *, groups: Sequence[str] = (), hosts: Sequence[str] = ()
    ) -> tuple[str, str]:
        """Return a certificate for the user `name` of `groups`, and its key.

        With `hosts`, which are names or IP addresses, it serves them too. The API server takes the
        name and the groups for the user's.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = self._builder(_subject(name, groups), key)
        if hosts:
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False
            )
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = (
            builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(signer, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return _pem(certificate), _key_pem(key)

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey
    ) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        identity = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _BEGIN)
            .not_valid_after(now + _LIFE)
            .add_extension(identity, critical=False)
        )


def write_signing_key(path: Path) -> None:
    """Write a private key with which an API server signs the tokens of service accounts."""
    write_private(path, _key_pem(ec.generate_private_key(ec.SECP256R1())))


def _subject(name: str, groups: Sequence[str]) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,  # kube-apiserver reads no other
        serialization.NoEncryption(),
    ).decode()
