"""Certificates that renew themselves, and what the API server is told meanwhile (W02)."""

import asyncio
import datetime as dt
from pathlib import Path

import pytest
from cryptography import x509

from services.admission.adapters.authorities import InMemory
from services.admission.adapters.certification import Certification, Given, Made
from services.admission.adapters.identity import Identity
from services.admission.certificates import Certificate, issue, new_authority, read
from shared.runtime.errors import Rejected, Retryable
from shared.runtime.health import Readiness
from shared.runtime.metrics import Metrics
from tests.support.certificates import Authority
from tests.support.clock import VirtualClock

LIFE_S = 900.0
NOW = 1_800_000_000.0


def parsed(certificate: Certificate) -> x509.Certificate:
    return x509.load_pem_x509_certificate(certificate.cert.encode())


def test_a_certificate_is_for_its_hosts_and_signed_by_the_authority_w02() -> None:
    authority = new_authority(now=NOW, life_s=LIFE_S)
    made = issue(authority, ["adm.sys.svc", "127.0.0.1"], now=NOW, life_s=LIFE_S)
    names = parsed(made).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["adm.sys.svc"]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    parsed(made).verify_directly_issued_by(parsed(authority))


def test_it_is_renewed_after_two_thirds_of_its_life_and_never_outlives_its_authority_w02() -> None:
    authority = new_authority(now=NOW, life_s=LIFE_S)
    assert authority.expires_at == NOW + 10 * LIFE_S
    late = issue(authority, ["h"], now=NOW + 9.5 * LIFE_S, life_s=LIFE_S)
    assert late.expires_at == authority.expires_at
    fresh = issue(authority, ["h"], now=NOW, life_s=LIFE_S)
    assert fresh.renew_at == pytest.approx(NOW + 600)
    end = parsed(fresh).not_valid_after_utc
    assert end == dt.datetime.fromtimestamp(NOW + LIFE_S, dt.UTC)


def test_what_was_made_can_be_read_again_w02() -> None:
    made = new_authority(now=NOW, life_s=LIFE_S)
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

    def info(self, *_: object, **__: object) -> None: ...

    def warning(self, *_: object, **__: object) -> None: ...


class Stage:
    """One certification on a clock that is moved by hand."""

    def __init__(self, origin_of) -> None:
        self.clock = VirtualClock(NOW)
        self.server = Server()
        self.readiness = Readiness()
        self.identity = Identity(Metrics().gauge("expiry", "of the test"))
        self.part = Certification(
            origin_of(self.clock),
            self.identity,
            register=self.server.register,
            unregister=self.server.unregister,
            close=self.server.close,
            look=asyncio.Event(),
            gate=self.readiness.gate("certificate"),
            clock=self.clock,
            log=Log(),
        )

    @property
    def shown(self) -> Certificate:
        assert self.identity.shown is not None
        return self.identity.shown


def made(clock) -> Made:
    return Made(InMemory(clock=clock, life_s=LIFE_S), ["h"], clock=clock, life_s=LIFE_S)


async def test_a_certificate_is_changed_in_time_and_the_api_server_need_not_know_w02() -> None:
    stage = Stage(made)
    assert await stage.part._turn() > 0
    first = stage.shown
    await stage.clock.advance(500)
    await stage.part._turn()
    assert stage.shown is first
    await stage.clock.advance(101)
    await stage.part._turn()
    assert stage.shown is not first
    assert len(set(stage.server.bundles)) == 1, "the authority is the same"


async def test_during_a_change_of_authorities_both_are_trusted_w02() -> None:
    stage = Stage(made)
    await stage.part._turn()
    (before,) = stage.server.bundles
    await stage.clock.advance(6001)
    await stage.part._turn()
    after = stage.server.bundles[-1]
    assert after.endswith(before)
    assert after != before
    parsed(stage.shown).verify_directly_issued_by(x509.load_pem_x509_certificate(after.encode()))


async def test_nothing_new_is_shown_before_the_api_server_trusts_it_w02() -> None:
    stage = Stage(made)
    await stage.part._turn()
    first = stage.shown
    await stage.clock.advance(6001)
    stage.server.away = True
    await stage.part._turn()
    assert stage.shown is first
    assert stage.readiness.shut() == [{"gate": "certificate", "reason": "the API server is away"}]
    stage.server.away = False
    await stage.part._turn()
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
    stage = Stage(lambda clock: Given(cert=cert, key=key, ca=authority.ca_file, clock=clock))
    await stage.part._turn()
    assert stage.server.bundles == [authority.ca_file.read_text()]
    first = stage.shown
    other = authority.issue("h2")
    cert.write_bytes(other.cert.read_bytes())
    await stage.part._turn()
    assert stage.shown is first, "the key is not there yet"
    assert "do not go together" in stage.readiness.shut()[0]["reason"]
    key.write_bytes(other.key.read_bytes())
    await stage.part._turn()
    assert stage.shown.cert == other.cert.read_text()


@pytest.mark.parametrize("missing", ["tls.crt", "tls.key"])
async def test_a_file_that_is_not_there_stops_the_start_w02(tmp_path: Path, missing: str) -> None:
    _, cert, key = given(tmp_path)
    (tmp_path / missing).unlink()
    stage = Stage(lambda clock: Given(cert=cert, key=key, ca=None, clock=clock))
    with pytest.raises(Rejected, match=missing):
        await stage.part._turn()
