"""Certificates: an authority of our own, and what it signs. The caller gives the time.

Keys are elliptic (P-256), which are made quickly, with random numbers of the library. Everything is
PEM text; times are Unix seconds.
"""

import datetime as dt
import ipaddress
from collections.abc import Sequence
from typing import Final

import msgspec
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_SKEW: Final = dt.timedelta(hours=1)
"""Certificates begin in the past: the API server's clock may be behind ours."""
RENEW_AFTER: Final = 2 / 3
_AUTHORITY_LIVES: Final = 10
"""An authority lives as long as so many of the certificates that it signs."""


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate with its key."""

    cert: str
    key: str
    renew_at: float
    """When two thirds of its life are over."""
    expires_at: float


def new_authority(name: str, *, now: float, life_s: float) -> Certificate:
    """Return an authority for certificates that live `life_s`."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name)
    life = life_s * _AUTHORITY_LIVES
    builder = _builder(subject, subject, key, now=now, life_s=life).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), critical=True
    )
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False,
        key_encipherment=False, data_encipherment=False, key_agreement=False,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip
    builder = builder.add_extension(usage, critical=True)
    return _made(builder.sign(key, hashes.SHA256()), key, now=now, life_s=life)


def issue(
    authority: Certificate, hosts: Sequence[str], *, now: float, life_s: float
) -> Certificate:
    """Return a server's certificate for host names or addresses."""
    signer = serialization.load_pem_private_key(authority.key.encode(), password=None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey), "see read_authority"
    issuer = x509.load_pem_x509_certificate(authority.cert.encode())
    key = ec.generate_private_key(ec.SECP256R1())
    life = min(life_s, authority.expires_at - now)
    builder = (
        _builder(_name(hosts[0][:64]), issuer.subject, key, now=now, life_s=life)
        .add_extension(
            x509.SubjectAlternativeName([host_name(host) for host in hosts]), critical=False
        )
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
    )
    return _made(builder.sign(signer, hashes.SHA256()), key, now=now, life_s=life)


def read(cert: str, key: str) -> Certificate:
    """Return a certificate that was made here before. Raises ValueError when it is none."""
    parsed = x509.load_pem_x509_certificate(cert.encode())
    begin = (parsed.not_valid_before_utc + _SKEW).timestamp()
    end = parsed.not_valid_after_utc.timestamp()
    return Certificate(
        cert=cert, key=key, renew_at=begin + (end - begin) * RENEW_AFTER, expires_at=end
    )


def read_authority(cert: str, key: str) -> Certificate:
    """Return an authority that was made here before. Raises ValueError when it can sign nothing."""
    found = read(cert, key)
    parsed = x509.load_pem_x509_certificate(cert.encode())
    try:
        signer = serialization.load_pem_private_key(key.encode(), password=None)
    except (TypeError, UnsupportedAlgorithm) as error:  # behind a pass phrase; of a strange kind
        raise ValueError(f"the key cannot be used: {error}") from error
    elliptic = isinstance(signer, ec.EllipticCurvePrivateKey)
    if not elliptic or signer.public_key() != parsed.public_key():
        raise ValueError("certificate and key do not go together")
    try:
        may_sign = parsed.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        may_sign = False
    if not may_sign:
        raise ValueError("the certificate is that of no authority")
    return found


def is_bundle(text: str) -> bool:
    """Tell whether a text holds one certificate or more, PEM."""
    try:
        return bool(x509.load_pem_x509_certificates(text.encode()))
    except ValueError:
        return False


def _made(
    cert: x509.Certificate, key: ec.EllipticCurvePrivateKey, *, now: float, life_s: float
) -> Certificate:
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Certificate(
        cert=cert.public_bytes(serialization.Encoding.PEM).decode(),
        key=text.decode(),
        renew_at=now + life_s * RENEW_AFTER,
        expires_at=cert.not_valid_after_utc.timestamp(),
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    *,
    now: float,
    life_s: float,
) -> x509.CertificateBuilder:
    begin = dt.datetime.fromtimestamp(now, dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin - _SKEW)
        .not_valid_after(begin + dt.timedelta(seconds=life_s))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def host_name(host: str) -> x509.GeneralName:
    """Return an address or a DNS name, as a certificate lists it."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
