"""A certificate authority for one installation, which exists while it signs and not longer.

Its key is written nowhere, so that no further identity can be signed later. Keys are elliptic
(P-256), which takes no time; every file that holds a key has mode 0600. Certificates outlive
any reasonable data directory (ten years). They have the extensions of RFC 5280 that Python demands
of a chain since 3.13.

A local control plane has its own (`Pki`), made when its data directory is new and kept with it. One
authority signs everything but the certificate with which the API server passes requests on to
others: it has an authority of its own, so that no other certificate can speak for the users. The
stack listens on the loopback alone.
"""

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from pumice.local.files import write_private
from pumice.local.ports import LOOPBACK
from shared.serving.certificates import host_name

ADMIN_NAME: Final = "pumice-admin"
"""Name of the user that the local stack, its services and its owner are."""
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
                x509.SubjectAlternativeName([host_name(host) for host in hosts]), critical=False
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


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,  # kube-apiserver reads no other
        serialization.NoEncryption(),
    ).decode()


_SERVER_HOSTS: Final = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    LOOPBACK,
    "10.96.0.1",
)


class Pki(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the parts need to trust each other."""

    ca: Path
    server: Pair
    """For the API server: valid for the loopback."""
    admin: Pair
    """Client certificate of the group system:masters, for the person at the terminal."""
    service_account_key: Path
    front_proxy_ca: Path
    front_proxy: Pair
    """Client certificate of the API server towards those that it passes requests on to."""


FRONT_PROXY: Final = "front-proxy-client"
"""Name of that certificate's files, and its common name."""
REQUEST_HEADERS: Final = {
    "allowed-names": FRONT_PROXY,
    "username-headers": "X-Remote-User",
    "uid-headers": "X-Remote-Uid",
    "group-headers": "X-Remote-Group",
    "extra-headers-prefix": "X-Remote-Extra-",
}
"""How an API server says to those behind it who it is, and who asks; as flags are called behind
`--requestheader-`."""


def ensure_pki(directory: Path) -> Pki:
    """Return the certificates in `directory`, made now if they are not all there."""
    pki = Pki(
        ca=directory / "ca.crt",
        server=pair(directory, "server"),
        admin=pair(directory, "admin"),
        service_account_key=directory / "service-account.key",
        front_proxy_ca=directory / "front-proxy-ca.crt",
        front_proxy=pair(directory, FRONT_PROXY),
    )
    if not pki.service_account_key.exists():  # written last
        _make(pki)
    if not pki.front_proxy.key.exists():  # likewise; a directory of an older version has none
        authority = Authority("pumice-local-front-proxy")
        write_private(pki.front_proxy_ca, authority.certificate)
        authority.issue(pki.front_proxy, FRONT_PROXY)
    return pki


def _make(pki: Pki) -> None:
    authority = Authority("pumice-local")
    write_private(pki.ca, authority.certificate)
    authority.issue(pki.server, "kube-apiserver", hosts=_SERVER_HOSTS)
    authority.issue(pki.admin, ADMIN_NAME, groups=("system:masters",))
    write_signing_key(pki.service_account_key)
