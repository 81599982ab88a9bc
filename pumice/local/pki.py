"""Certificates of one local control plane: made when its data directory is new, kept with it.

One authority signs everything. Keys are elliptic (P-256), which are made in no time; every file
that holds a key has mode 0600. The certificates outlive any reasonable data directory (ten years),
and the stack listens on the loopback alone.
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
from pumice.local.ports import LOOPBACK

_LIFE: Final = dt.timedelta(days=3650)
_SERVER_NAMES: Final = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
_BEGIN: Final = dt.timedelta(hours=1)


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """Files of one certificate and its key."""

    cert: Path
    key: Path


class Pki(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the parts need to trust each other."""

    ca: Path
    server: Pair
    """For the API server and etcd: valid for the loopback."""
    admin: Pair
    """Client certificate of the group system:masters, for the person at the terminal."""
    etcd_client: Pair
    service_account_key: Path


def ensure(directory: Path) -> Pki:
    """Return the certificates in `directory`, made now if they are not all there."""
    pki = Pki(
        ca=directory / "ca.crt",
        server=_pair(directory, "server"),
        admin=_pair(directory, "admin"),
        etcd_client=_pair(directory, "etcd-client"),
        service_account_key=directory / "service-account.key",
    )
    if not pki.service_account_key.exists():  # written last
        _make(pki)
    return pki


def _pair(directory: Path, name: str) -> Pair:
    return Pair(cert=directory / f"{name}.crt", key=directory / f"{name}.key")


def _make(pki: Pki) -> None:
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca_name = _name("pumice-local")
    ca = (
        _builder(ca_name, ca_name, ca_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    write_private(pki.ca, _pem(ca))

    def issue(pair: Pair, name: x509.Name, names: Sequence[x509.GeneralName] = ()) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = _builder(name, ca_name, key)
        if names:
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        cert = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False).sign(
            ca_key, hashes.SHA256()
        )
        write_private(pair.cert, _pem(cert))
        write_private(pair.key, _key_pem(key))

    addresses = [ipaddress.ip_address(LOOPBACK), ipaddress.ip_address("10.96.0.1")]
    names = [*map(x509.DNSName, _SERVER_NAMES), *map(x509.IPAddress, addresses)]
    issue(pki.server, _name("kube-apiserver"), names)
    issue(pki.admin, _name("pumice-admin", group="system:masters"))
    issue(pki.etcd_client, _name("etcd-client"))
    write_private(pki.service_account_key, _key_pem(ec.generate_private_key(ec.SECP256R1())))


def _name(common: str, *, group: str = "") -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group)] if group else []
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEGIN)
        .not_valid_after(now + _LIFE)
    )


def _pem(cert: x509.Certificate) -> str:
    return cert.public_bytes(serialization.Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,  # kube-apiserver reads no other
        serialization.NoEncryption(),
    ).decode()
