"""Attacks on the real process: whatever is held open or sent to it, reviews are answered.

Memory is the process's own highest mark. A caller is anybody who reaches the port, since a
certificate is asked for only where it is configured (the last tests here).
"""

import asyncio
import contextlib
import io
import json
import os
import ssl
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from tests.support.certificates import Authority
from tests.support.scripted_api import ScriptedApi
from tests.support.scripted_api import json as said
from tests.support.wait import until
from tests.unit.admission.asking import queue_named, sparse_job
from tests.unit.admission.test_server import GOOD, request, review

MIB = 1024 * 1024
LARGE = 2_900_000
ENOUGH = 100_000
LIMIT = 512 * MIB
"""Memory that the manifest gives to a pod of admission."""
CONNECTIONS = 256


async def cluster(_: web.Request) -> web.StreamResponse:
    items = [queue_named("default")]
    return await said({"metadata": {"resourceVersion": "1"}, "items": items})(_)


class Admission:
    """The process, and ways to reach it."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self.process = process
        self._log = log
        self.context = ssl.create_default_context()
        self.context.check_hostname, self.context.verify_mode = False, ssl.CERT_NONE

    def events(self, name: str) -> list[dict]:
        lines = [line for line in self._log.read_text().splitlines() if line.startswith("{")]
        return [event for event in map(json.loads, lines) if event["event"] == name]

    async def port(self) -> int:
        seen = await until(
            lambda: self.events("webhooks_listening") and self.events("certificate_shown"),
            deadline_s=30,
            describe=self._log.read_text,
        )
        assert seen
        return int(self.events("webhooks_listening")[0]["address"].rpartition(":")[2])

    def peak(self) -> int:
        """Return the most memory that the process ever had, in bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        (line,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
        return int(line.split()[1]) * 1024

    def sockets(self) -> int:
        """Return how many files and sockets the process holds."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    async def judges(self, body: bytes = GOOD, *, context: ssl.SSLContext | None = None) -> bool:
        """Send a review as the API server does, on a connection of its own."""
        connector = aiohttp.TCPConnector(ssl=context or self.context)
        url = f"https://127.0.0.1:{await self.port()}/jobs/validate"
        headers = {"Content-Type": "application/json"}
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.post(url, data=io.BytesIO(body), headers=headers) as answer,
        ):
            text = await answer.text()
            if answer.status != 200:
                raise RuntimeError(f"{answer.status} {text}")
            allowed: bool = json.loads(text)["response"]["allowed"]
            return allowed

    async def opened(self, *, tls: bool = True) -> asyncio.StreamWriter:
        port = await self.port()
        context = self.context if tls else None
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        return writer


@contextlib.asynccontextmanager
async def admission(directory: Path, *flags: str) -> AsyncIterator[Admission]:
    async with ScriptedApi().serving() as api:
        api.then(*[cluster] * ENOUGH)
        kubeconfig = directory / "kubeconfig"
        kubeconfig.write_text(api.kubeconfig(token="t"))
        log = directory / "log"
        with log.open("wb") as stderr:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", "services.admission", f"--kubeconfig={kubeconfig}",
                "--port=0", "--bind-address=127.0.0.1", "--webhook-url=https://127.0.0.1:1",
                "--register=false", "--log-format=json", *flags,
                stderr=stderr, cwd=Path.cwd(),
                env={"PATH": os.environ["PATH"], "PYTHONPATH": str(Path.cwd())},
            )  # fmt: skip
        try:
            yield Admission(process, log)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def head(length: int) -> bytes:
    return (
        b"POST /jobs/validate HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
        b"Content-Length: " + str(length).encode() + b"\r\n\r\n"
    )


async def send(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Send as much as the process takes within a moment; it may end the connection."""
    with contextlib.suppress(OSError, TimeoutError):
        writer.write(data)
        async with asyncio.timeout(2):
            await writer.drain()


async def test_unfinished_bodies_fill_no_memory_and_keep_no_review_waiting(tmp_path) -> None:
    async with admission(tmp_path) as running:
        assert await running.judges()
        calm = running.peak()
        writers = [await running.opened() for _ in range(120)]
        async with asyncio.TaskGroup() as tasks:
            for writer in writers:
                tasks.create_task(send(writer, head(LARGE) + b" " * (LARGE - 1)))
            for _ in range(5):
                await until(running.judges, describe="a review is judged")
        assert running.peak() - calm < 120 * MIB, "120 bodies of 2.9 MB are 348 MB"
        for writer in writers:
            writer.transport.abort()
        large = review(request(sparse_job(), padding="x" * LARGE))
        await until(lambda: running.judges(large), deadline_s=60, describe="large ones are read")


async def test_half_open_requests_are_not_held(tmp_path) -> None:
    async with admission(tmp_path) as running:
        assert await running.judges()
        calm = running.sockets()
        writers = []
        for number in range(600):
            tls = number % 3 > 0
            writer = await running.opened(tls=tls)
            if tls:
                await send(writer, b"POST /jobs/validate HTTP/1.1\r\nHost: h\r\n"[: number % 40])
            writers.append(writer)
        assert running.sockets() <= calm + CONNECTIONS + 20
        assert await running.judges()
        await until(
            lambda: running.sockets() <= calm + 3,
            deadline_s=30,
            describe=lambda: f"{running.sockets()} files are open, {calm} were",
        )
        for writer in writers:
            writer.transport.abort()


async def test_many_large_reviews_at_once_are_all_answered_within_the_limit(tmp_path) -> None:
    """Lists in lists take some thirty times the memory of their text."""
    async with admission(tmp_path) as running:
        wide = review(request(sparse_job(), padding="PLACE")).replace(
            b'"PLACE"', b"[" + b",".join([b"[]"] * (LARGE // 3)) + b"]"
        )
        inside = review(request(sparse_job(annotations="PLACE"))).replace(
            b'"PLACE"', b"[" + b",".join([b"[]"] * (LARGE // 3)) + b"]"
        )

        async def answered(body: bytes) -> bool:
            await running.judges(body)  # one that found no turn in time is asked again
            return True

        async with asyncio.TaskGroup() as tasks:
            for body in [wide, inside] * 4:
                probe = partial(answered, body)
                tasks.create_task(until(probe, deadline_s=60, describe="a large review"))
        assert running.peak() < LIMIT * 3 // 4


@pytest.mark.parametrize("hole", [b"[" * 1_450_000, b'{"a":' * 500_000], ids=["lists", "objects"])
async def test_brackets_without_end_end_nothing(tmp_path, hole: bytes) -> None:
    closing = {b"[": b"]", b"{": b"}"}[hole[:1]]
    depth = hole.count(hole[:1])
    async with admission(tmp_path) as running:
        deep = review(request(sparse_job(deep="PLACE"))).replace(
            b'"PLACE"', hole + b"1" + closing * depth
        )
        for _ in range(3):
            assert not await running.judges(deep[: 3 * MIB] if len(deep) > 3 * MIB else deep)
        assert await running.judges()
        assert running.peak() < LIMIT // 2


async def test_without_a_certificate_of_the_authority_nothing_is_answered(tmp_path) -> None:
    authority, other = Authority(tmp_path / "ca"), Authority(tmp_path / "other")
    file = tmp_path / "client-ca.crt"
    file.write_text(authority.ca_file.read_text())
    flags = (f"--client-ca-file={file}", "--client-names=kube-apiserver")
    async with admission(tmp_path, *flags) as running:

        def showing(source: Authority, name: str) -> ssl.SSLContext:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            shown = source.issue(name)
            context.load_cert_chain(shown.cert, shown.key)
            return context

        assert await running.judges(context=showing(authority, "kube-apiserver"))
        strangers = (
            running.context,
            showing(other, "kube-apiserver"),
            showing(authority, "kubelet"),
        )
        for context in strangers:
            with pytest.raises(aiohttp.ClientError):
                await running.judges(context=context)
        file.write_text(other.ca_file.read_text())

        async def other_is_trusted() -> bool:
            return await running.judges(context=showing(other, "kube-apiserver"))

        await until(other_is_trusted, deadline_s=15, describe="the new authority counts")
        with pytest.raises(aiohttp.ClientError):
            await running.judges(context=showing(authority, "kube-apiserver"))
        file.write_text("nonsense")
        await until(
            lambda: running.events("client_ca_refused"), deadline_s=15, describe="it is told"
        )
        assert await other_is_trusted(), "the last good authority counts on"


async def test_a_file_without_an_authority_is_refused_at_the_start(tmp_path) -> None:
    file = tmp_path / "client-ca.crt"
    file.write_text("nonsense")
    async with admission(tmp_path, f"--client-ca-file={file}") as running:
        async with asyncio.timeout(30):
            assert await running.process.wait() == 2
        assert "--client-ca-file" in (tmp_path / "log").read_text()
