"""Certificates that renew themselves, and what the API server is told meanwhile (W02)."""

import asyncio
import contextlib
import datetime as dt
import functools
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from shared.runtime.errors import Rejected, Retryable
from shared.runtime.health import Readiness
from shared.runtime.metrics import Metrics
from shared.serving.authorities import InMemory
from shared.serving.certificates import (
    Certificate,
    issue,
    new_authority,
    read,
    read_authority,
)
from shared.serving.certification import CertificateFiles, Certification, IssuedCertificates
from shared.serving.identity import ServingCertificate
from tests.support.certificates import Authority
from tests.support.clock import VirtualClock
from tests.support.env import env_of_a_test

LIFE_S = 900.0
NOW = 1_800_000_000.0


def parsed(certificate: Certificate) -> x509.Certificate:
    return x509.load_pem_x509_certificate(certificate.cert.encode())


def test_a_certificate_is_for_its_hosts_and_signed_by_the_authority_w02() -> None:
    authority = new_authority("ca", now=NOW, life_s=LIFE_S)
    made = issue(authority, ["adm.sys.svc", "127.0.0.1"], now=NOW, life_s=LIFE_S)
    names = parsed(made).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["adm.sys.svc"]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    parsed(made).verify_directly_issued_by(parsed(authority))


def test_it_is_renewed_after_two_thirds_of_its_life_and_never_outlives_its_authority_w02() -> None:
    authority = new_authority("ca", now=NOW, life_s=LIFE_S)
    assert authority.expires_at == NOW + 10 * LIFE_S
    late = issue(authority, ["h"], now=NOW + 9.5 * LIFE_S, life_s=LIFE_S)
    assert late.expires_at == authority.expires_at
    fresh = issue(authority, ["h"], now=NOW, life_s=LIFE_S)
    assert fresh.renew_at == pytest.approx(NOW + 600)
    end = parsed(fresh).not_valid_after_utc
    assert end == dt.datetime.fromtimestamp(NOW + LIFE_S, dt.UTC)


def test_what_was_made_can_be_read_again_w02() -> None:
    made = new_authority("ca", now=NOW, life_s=LIFE_S)
    again = read(made.cert, made.key)
    assert (again.cert, again.key, again.expires_at) == (made.cert, made.key, made.expires_at)
    assert again.renew_at == pytest.approx(made.renew_at, abs=1)
    with pytest.raises(ValueError, match="PEM"):
        read("nonsense", "")


class Server:
    """What the API server was told, and what is shown to it; may be away."""

    def __init__(self) -> None:
        self.bundles: list[str] = []
        self.away = False
        self.gone = False

    async def register(self, bundle: str) -> None:
        if self.away:
            raise Retryable("the API server is away")
        self.bundles.append(bundle)

    async def unregister(self) -> None:
        self.gone = True

    async def close(self) -> None:
        """Nothing is held."""


class Log:
    """Takes every line."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def info(self, *_: object, **__: object) -> None: ...

    def warning(self, _: str, *, reason: str) -> None:
        self.warnings.append(reason)


class Stage:
    """One certification on a clock that is moved by hand."""

    def __init__(self, origin_of) -> None:
        self.clock = VirtualClock(NOW)
        self.server = Server()
        self.readiness = Readiness()
        self.log = Log()
        self.identity = ServingCertificate(Metrics().gauge("expiry", "of the test"))
        self.part = Certification(
            origin_of(self.clock),
            self.identity,
            register=self.server.register,
            unregister=self.server.unregister,
            close=self.server.close,
            check_now=asyncio.Event(),
            gate=self.readiness.gate("certificate"),
            env=env_of_a_test(clock=self.clock, log=self.log),
        )

    @property
    def shown(self) -> Certificate:
        assert self.identity.shown is not None
        return self.identity.shown


def made(clock) -> IssuedCertificates:
    return IssuedCertificates(
        InMemory(clock=clock, life_s=LIFE_S, signer="ca"), ["h"], clock=clock, life_s=LIFE_S
    )


async def test_a_certificate_is_changed_in_time_and_the_api_server_need_not_know_w02() -> None:
    stage = Stage(made)
    assert await stage.part._check() > 0
    first = stage.shown
    await stage.clock.advance(500)
    await stage.part._check()
    assert stage.shown is first
    await stage.clock.advance(101)
    await stage.part._check()
    assert stage.shown is not first
    assert len(set(stage.server.bundles)) == 1, "the authority is the same"


async def test_during_a_change_of_authorities_both_are_trusted_w02() -> None:
    stage = Stage(made)
    await stage.part._check()
    (before,) = stage.server.bundles
    await stage.clock.advance(6001)
    await stage.part._check()
    after = stage.server.bundles[-1]
    assert after.endswith(before)
    assert after != before
    parsed(stage.shown).verify_directly_issued_by(x509.load_pem_x509_certificate(after.encode()))


async def test_nothing_new_is_shown_before_the_api_server_trusts_it_w02() -> None:
    stage = Stage(made)
    await stage.part._check()
    first = stage.shown
    await stage.clock.advance(6001)
    stage.server.away = True
    await stage.part._check()
    assert stage.shown is first
    assert stage.readiness.shut() == [{"gate": "certificate", "reason": "the API server is away"}]
    stage.server.away = False
    await stage.part._check()
    assert stage.shown is not first
    assert stage.readiness.shut() == []


async def test_an_orderly_end_takes_the_registration_back_w01() -> None:
    stage = Stage(made)
    task = asyncio.ensure_future(stage.part.run())
    while not stage.server.bundles:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stage.server.gone


def given(directory: Path):
    authority = Authority(directory / "ca")
    issued = authority.issue("h")
    cert, key = directory / "tls.crt", directory / "tls.key"
    cert.write_bytes(issued.cert.read_bytes())
    key.write_bytes(issued.key.read_bytes())
    return authority, cert, key


async def test_given_files_are_shown_anew_when_they_change_w02(tmp_path: Path) -> None:
    authority, cert, key = given(tmp_path)
    stage = Stage(
        lambda clock: CertificateFiles(cert=cert, key=key, ca=authority.ca_file, clock=clock)
    )
    await stage.part._check()
    assert stage.server.bundles == [authority.ca_file.read_text()]
    first = stage.shown
    other = authority.issue("h2")
    cert.write_bytes(other.cert.read_bytes())
    await stage.part._check()
    assert stage.shown is first, "the key is not there yet"
    assert "do not go together" in stage.readiness.shut()[0]["reason"]
    key.write_bytes(other.key.read_bytes())
    await stage.part._check()
    assert stage.shown.cert == other.cert.read_text()


@pytest.mark.parametrize("missing", ["tls.crt", "tls.key"])
async def test_a_file_that_is_not_there_stops_the_start_w02(tmp_path: Path, missing: str) -> None:
    _, cert, key = given(tmp_path)
    (tmp_path / missing).unlink()
    stage = Stage(lambda clock: CertificateFiles(cert=cert, key=key, ca=None, clock=clock))
    with pytest.raises(Rejected, match=missing):
        await stage.part._check()


def greet(server: ssl.SSLContext, ca_file: Path) -> str:
    """Shake hands with a server in memory; return the name of what it shows. Raises SSLError."""
    client = ssl.create_default_context(cafile=str(ca_file))
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(back, there, server_hostname="localhost"),
        server.wrap_bio(there, back, server_side=True),
    ]
    for _ in range(4):
        for side in sides:
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
    subject = sides[0].getpeercert()["subject"]
    return dict(pair for part in subject for pair in part)["commonName"]


async def test_while_files_are_half_changed_the_old_certificate_works_on_w02(
    tmp_path: Path,
) -> None:
    """The TLS library forgets the old key as soon as it has seen a certificate of another one."""
    authority, cert, key = given(tmp_path)
    stage = Stage(
        lambda clock: CertificateFiles(cert=cert, key=key, ca=authority.ca_file, clock=clock)
    )
    await stage.part._check()
    assert greet(stage.identity.context, authority.ca_file) == "h"
    other = authority.issue("h2")
    cert.write_bytes(other.cert.read_bytes())
    await stage.part._check()
    assert greet(stage.identity.context, authority.ca_file) == "h"
    key.write_bytes(other.key.read_bytes())
    await stage.part._check()
    assert greet(stage.identity.context, authority.ca_file) == "h2"


def private(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, password: bytes = b"") -> str:
    how = (
        serialization.BestAvailableEncryption(password)
        if password
        else serialization.NoEncryption()
    )
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, how).decode()


async def test_a_key_behind_a_pass_phrase_is_refused_and_nobody_is_asked_for_it_w02(
    tmp_path: Path,
) -> None:
    _, cert, key = given(tmp_path)
    plain = serialization.load_pem_private_key(key.read_bytes(), password=None)
    assert isinstance(plain, ec.EllipticCurvePrivateKey)
    key.write_text(private(plain, b"secret"))
    stage = Stage(lambda clock: CertificateFiles(cert=cert, key=key, ca=None, clock=clock))
    with pytest.raises(Rejected, match="do not go together"):
        await stage.part._check()


async def test_a_file_may_hold_remarks_beside_the_certificate_w02(tmp_path: Path) -> None:
    authority, cert, key = given(tmp_path)
    cert.write_text(f"# für die Zulassung\n{cert.read_text()}", encoding="utf-8")
    stage = Stage(
        lambda clock: CertificateFiles(cert=cert, key=key, ca=authority.ca_file, clock=clock)
    )
    await stage.part._check()
    assert greet(stage.identity.context, authority.ca_file) == "h"


async def test_a_ca_file_without_a_certificate_stops_the_start_w02(tmp_path: Path) -> None:
    _, cert, key = given(tmp_path)
    empty = tmp_path / "empty.crt"
    empty.write_text("nothing")
    stage = Stage(lambda clock: CertificateFiles(cert=cert, key=key, ca=empty, clock=clock))
    with pytest.raises(Rejected, match=r"--ca-cert-file: .*empty.crt holds no certificate"):
        await stage.part._check()


@functools.cache
def spoilt() -> dict[str, tuple[str, str]]:
    """Return certificate and key that somebody spoilt, each in another way."""
    good, other = (new_authority("ca", now=NOW, life_s=LIFE_S) for _ in range(2))
    leaf = issue(good, ["h"], now=NOW, life_s=LIFE_S)
    elliptic = ec.generate_private_key(ec.SECP256R1())
    foreign = rsa.generate_private_key(public_exponent=65_537, key_size=2048)
    return {
        "nothing": ("", ""),
        "no-key": (good.cert, ""),
        "a-key-of-garbage": (
            good.cert,
            good.key[:60] + good.key[70:],
        ),
        "the-key-of-another": (good.cert, other.key),
        "a-key-of-another-kind": (good.cert, private(foreign)),
        "a-key-behind-a-pass-phrase": (good.cert, private(elliptic, b"secret")),
        "no-authority": (leaf.cert, leaf.key),
        "a-certificate-for-a-key": (good.cert, good.cert),
    }


@pytest.mark.parametrize(
    "how",
    [
        "nothing",
        "no-key",
        "a-key-of-garbage",
        "the-key-of-another",
        "a-key-of-another-kind",
        "a-key-behind-a-pass-phrase",
        "no-authority",
        "a-certificate-for-a-key",
    ],
)
def test_an_authority_that_can_sign_nothing_is_told_by_its_looks_w02(how: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        read_authority(*spoilt()[how])


def test_an_authority_of_ours_is_read_as_it_was_made_w02() -> None:
    made_one = new_authority("ca", now=NOW, life_s=LIFE_S)
    assert read_authority(made_one.cert, made_one.key).key == made_one.key


async def test_a_start_without_the_api_server_waits_for_it_w01() -> None:
    stage = Stage(made)
    stage.server.away = True
    for _ in range(3):
        assert await stage.part._check() <= 1, "it is asked again soon"
    assert stage.log.warnings == ["the API server is away"], "said once, not each second"
    assert stage.readiness.shut() == [{"gate": "certificate", "reason": "the API server is away"}]
    stage.server.away = False
    await stage.part._check()
    assert stage.readiness.shut() == []
    parsed(stage.shown).verify_directly_issued_by(
        x509.load_pem_x509_certificate(stage.server.bundles[0].encode())
    )
