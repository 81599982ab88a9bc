"""Certificates on a real API server: renewed while it calls, shared by replicas, given, expired."""

import asyncio
import base64
import ssl
import time
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from shared.serving.certificates import Certificate, issue, new_authority
from tests.integration.admission.conftest import Door
from tests.support import world
from tests.support.api import Api
from tests.support.proxy import proxy
from tests.support.wait import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]

WORDS = "unable to find job plugin: nope"
SECRET = "pumice-admission-ca"


def bad(name: str = "bad") -> dict:
    return world.job(name, world.task("w", 1, cpu="100m", memory="16Mi"), plugins={"nope": []})


async def shown(port: int) -> x509.Certificate:
    """Return the certificate that a new connection gets to see."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    finally:
        writer.close()
        await writer.wait_closed()
    return x509.load_der_x509_certificate(der)


async def bundle(door: Door) -> list[x509.Certificate]:
    """Return the authorities that the API server trusts for us; all our webhooks have the same."""
    (text,) = {webhook["clientConfig"]["caBundle"] for webhook in await door.registered()}
    return x509.load_pem_x509_certificates(base64.b64decode(text))


async def test_authority_and_certificate_change_while_jobs_are_judged_w02(
    own_door: Door, space: str, api: Api
) -> None:
    """The authority is nearly due when it is found; no job slips through while it is replaced."""
    life_s = 60.0
    old = new_authority("ca", now=time.time() - life_s * 20 / 3 + 8, life_s=life_s)
    data = {"ca.crt": old.cert, "ca.key": old.key}
    await api.create("secrets", {"metadata": {"name": SECRET}, "stringData": data}, space)
    other = f"jobs-{space}"
    await api.create("namespaces", {"metadata": {"name": other}})
    await own_door.start(certificate_life=f"{life_s:g}s", webhook_namespace=space)
    await own_door.refuses("jobs", bad(), other, words=WORDS)

    async def probe() -> bool:
        said = await own_door.said("jobs", bad(), other)
        assert WORDS in said, f"{said}\n{own_door.services.logs()}"
        new, *kept = await bundle(own_door)
        return bool(kept) and signed(await shown(own_door.port), new)

    await until(probe, deadline_s=60, describe=own_door.services.logs, every_s=0.05)
    _, kept = await bundle(own_door)
    assert kept == x509.load_pem_x509_certificate(old.cert.encode())
    assert WORDS in await own_door.said("jobs", bad(), other)


def signed(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Tell whether a certificate is of this authority."""
    try:
        certificate.verify_directly_issued_by(authority)
    except InvalidSignature:
        return False
    return True


def write(directory: Path, certificate: Certificate, authority: Certificate) -> dict[str, str]:
    """Write certificate, key and CA; return the flags that name them."""
    files = {
        "tls_cert_file": certificate.cert,
        "tls_private_key_file": certificate.key,
        "ca_cert_file": authority.cert,
    }
    for name, text in files.items():
        (directory / name).write_text(text)
    return {name: str(directory / name) for name in files}


async def test_with_an_expired_certificate_objects_are_admitted_until_it_is_renewed_w02(
    own_door: Door, space: str, api: Api, tmp_path: Path
) -> None:
    now = time.time()
    authority = new_authority("ca", now=now, life_s=86400)
    expired = issue(authority, ["127.0.0.1"], now=now - 7200, life_s=3600)
    replica = await own_door.start(wait=False, **write(tmp_path, expired, authority))
    await until(own_door.registered, deadline_s=30, describe=lambda: replica.log)
    await replica.said("certificate_shown")

    async def says_so() -> bool:
        return "the certificate has expired" in await replica.unready()

    await until(says_so, deadline_s=30, describe=lambda: replica.log)
    for number in range(3):
        assert await own_door.said("jobs", bad(f"bad-{number}"), space) == ""
    write(tmp_path, issue(authority, ["127.0.0.1"], now=now, life_s=3600), authority)
    await own_door.refuses("jobs", bad("late"), space, words=WORDS)
    await replica.ready(deadline_s=30)


async def test_replicas_share_an_authority_and_a_restart_keeps_it_w02(
    own_door: Door, space: str, api: Api
) -> None:
    """Both stand behind one address, as behind a Service."""
    flags = {"webhook_namespace": space, "webhook_url": "", "register": "true"}
    async with proxy(own_door.port) as front:
        flags["webhook_url"] = f"https://127.0.0.1:{front.port}"
        one = await own_door.start(**flags)
        two = await own_door.start(**{**flags, "instance": "two", "port": "0"})
        port = await port_of(two)
        trusted = await bundle(own_door)
        assert len(trusted) == 1
        for certificate in (await shown(own_door.port), await shown(port)):
            certificate.verify_directly_issued_by(trusted[0])
        other = f"jobs-{space}"
        await api.create("namespaces", {"metadata": {"name": other}})
        await own_door.refuses("jobs", bad(), other, words=WORDS)
        before = await api.get("secrets", space, SECRET)
        one.kill()
        front.target = port
        await own_door.refuses("jobs", bad(), other, words=WORDS)
        three = await own_door.start(**{**flags, "instance": "three", "port": "0"})
        (await shown(await port_of(three))).verify_directly_issued_by(trusted[0])
        assert (await api.get("secrets", space, SECRET))["data"] == before["data"]
        assert await bundle(own_door) == trusted


async def port_of(replica) -> int:
    """Return the port of a replica that chose its own."""
    line = await replica.said("webhooks_listening")
    return int(line.partition('"address": "127.0.0.1:')[2].partition('"')[0])


async def test_of_two_that_make_an_authority_at_once_one_wins_w02(
    own_door: Door, space: str, api: Api
) -> None:
    flags = {"webhook_namespace": space}
    one = await own_door.start(wait=False, **flags)
    two = await own_door.start(wait=False, **{**flags, "instance": "two", "port": "0"})
    await one.ready(deadline_s=30)
    await two.ready(deadline_s=30)
    secret = await api.get("secrets", space, SECRET)
    (authority,) = x509.load_pem_x509_certificates(base64.b64decode(secret["data"]["ca.crt"]))
    for port in (own_door.port, await port_of(two)):
        certificate = await shown(port)
        assert certificate.issuer == authority.subject
        certificate.verify_directly_issued_by(authority)  # raises where the key is another


def _spoilt(how: str) -> dict[str, str]:
    """Return what a Secret may hold when somebody has been at it."""
    good, other = (new_authority("ca", now=time.time(), life_s=86400) for _ in range(2))
    return {
        "nothing-readable": {"ca.crt": "nonsense", "ca.key": "x"},
        "the-key-of-another": {"ca.crt": good.cert, "ca.key": other.key},
        "a-bundle-of-garbage": {
            "ca.crt": good.cert, "ca.key": good.key, "previous.crt": "nonsense"
        },
    }[how]  # fmt: skip


@pytest.mark.parametrize("how", ["nothing-readable", "the-key-of-another", "a-bundle-of-garbage"])
async def test_a_secret_that_somebody_spoilt_is_replaced_w02(
    own_door: Door, space: str, api: Api, how: str
) -> None:
    spoilt = {"metadata": {"name": SECRET}, "stringData": _spoilt(how)}
    await api.create("secrets", spoilt, space)
    await own_door.start(webhook_namespace=space)
    other = f"jobs-{space}"
    await api.create("namespaces", {"metadata": {"name": other}})
    await own_door.refuses("jobs", bad(), other, words=WORDS)
