"""The aggregated API as the API server calls it: shares of users, sizes of questions, refusals."""

import asyncio
import json
import random
from pathlib import Path
from urllib.parse import quote

import aiohttp
import pytest
import pytest_asyncio

from services.visibility.adapters import server, sources, watching
from services.visibility.api import what_if_request
from shared.api.visibility import WhatIfStatus
from shared.runtime.errors import Broken, Rejected, Retryable
from tests.support.answers import FixedAnswers, pending
from tests.support.visibility import FrontProxy, front_proxy
from tests.support.wait import until

ROOT = "/apis/visibility.pumice.dev/v1alpha1"
WATCH = f"{ROOT}/namespaces/n/pendingjobs?watch=1"
CHANGES = f"{ROOT}/namespaces/n/changes?watch=1"
WHATIFS = f"{ROOT}/namespaces/n/whatifs"


class Gate(FixedAnswers):
    """Answers that wait until the test opens, and a stream of changes that never ends."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs.append(pending("n", "a"))
        self.opened = asyncio.Event()
        self.deciding: list[str] = []

    async def what_if(self, namespace, spec):
        self.deciding.append(spec.drain_nodes[0])
        await self.opened.wait()
        return WhatIfStatus(starts_now=True)

    async def changes(self, namespace=""):
        async for change in super().changes(namespace):
            yield change
        await asyncio.Event().wait()


@pytest_asyncio.fixture
async def answers() -> Gate:
    return Gate()


@pytest_asyncio.fixture
async def proxy(tmp_path: Path, answers: Gate):
    async with front_proxy(tmp_path, answers) as found:
        yield found


async def opened(session: aiohttp.ClientSession, path: str) -> aiohttp.ClientResponse:
    """Return a stream that has begun, or a refusal that is read."""
    response = await session.get(path)
    if response.status == 200:
        await response.content.readline()
    else:
        await response.read()
    return response


def close(*responses: aiohttp.ClientResponse) -> None:
    for response in responses:
        response.close()


@pytest.mark.parametrize(("path", "module"), [(WATCH, watching), (CHANGES, server)])
async def test_a_user_who_holds_all_streams_gives_up_the_share_of_another(
    proxy: FrontProxy, monkeypatch, path: str, module
):
    """The places are counted when the server is made, so the real bound is met."""
    most = module._MAX
    async with proxy.session("greedy") as greedy, proxy.session("modest") as modest:
        held = [await opened(greedy, path) for _ in range(most)]
        assert {each.status for each in held} == {200}
        assert (await opened(greedy, path)).status == 429

        got = [await opened(modest, path) for _ in range(3)]

        assert {each.status for each in got} == {200}
        for ended in held[-3:]:  # as a watch ends whose time is over
            async with asyncio.timeout(10):
                await ended.read()
        assert (await opened(greedy, path)).status == 429, "the share of the other stays his"
        assert not any(each.content.at_eof() for each in (*got, *held[:-3]))
        close(*got, *held)


async def test_service_accounts_of_a_namespace_share_one_share(proxy: FrontProxy):
    async with (
        proxy.session("system:serviceaccount:a:one") as one,
        proxy.session("system:serviceaccount:a:two") as two,
        proxy.session("system:serviceaccount:b:one") as other,
    ):
        held = [await opened(one, WATCH) for _ in range(watching._MAX)]
        assert {each.status for each in held} == {200}
        assert (await opened(two, WATCH)).status == 429
        got = await opened(other, WATCH)
        assert got.status == 200
        close(got, *held)


async def test_questions_of_a_user_wait_for_each_other_and_not_those_of_another(
    proxy: FrontProxy, answers: Gate
):
    async with proxy.session("greedy") as greedy, proxy.session("modest") as modest:

        async def ask(session: aiohttp.ClientSession, name: str) -> int:
            async with session.post(WHATIFS, json={"spec": {"drainNodes": [name]}}) as response:
                return response.status

        most = sources.QUESTIONS_MAX
        async with asyncio.TaskGroup() as tasks:
            many = [tasks.create_task(ask(greedy, f"greedy-{n}")) for n in range(most + 2)]
            await until(lambda: sum(each.done() for each in many) == 2, describe="two refusals")
            one = tasks.create_task(ask(modest, "modest"))
            await until(lambda: "modest" in answers.deciding, describe=lambda: answers.deciding)
            assert len(answers.deciding) == 2, "one of each user"
            answers.opened.set()
        statuses = [each.result() for each in many]
        assert one.result() == 201
        assert sorted(statuses) == [201] * (most - 1) + [429] * 3


def job(replicas: object, containers: int, *, image: str = "busybox") -> dict:
    made = [{"name": f"c{n}", "image": image} for n in range(containers)]
    task = {"name": "t", "replicas": replicas, "template": {"spec": {"containers": made}}}
    return {"spec": {"job": {"metadata": {"name": "j"}, "spec": {"tasks": [task]}}}}


@pytest.mark.parametrize(
    ("question", "code", "field"),
    [
        (job(10_000, 10_000, image="x" * 50), 413, ""),
        (job(10_000, 2_000), 422, "spec.job.spec.tasks"),
        (job(10_000, 11), 422, "spec.job.spec.tasks"),
        (job(10_000, 1, image="x" * 10_000), 422, "spec.job.spec.tasks"),
        (job(2**31 - 1, 1), 422, "spec.job.spec.tasks"),
        (
            {
                "spec": {
                    "addNodes": [
                        {"count": 900, "template": {"metadata": {"labels": {"a": "x" * 90_000}}}}
                    ]
                }
            },
            422,
            "spec.addNodes",
        ),
    ],
)
async def test_a_question_that_is_too_large_is_refused_before_it_is_decided(
    proxy: FrontProxy, answers: Gate, question: dict, code: int, field: str
):
    answers.opened.set()
    async with proxy.session("ann") as session, session.post(WHATIFS, json=question) as response:
        told = await response.json()
    assert (response.status, told["code"]) == (code, code)
    assert field in told["message"]
    assert answers.deciding == []


async def test_a_question_of_usual_size_is_decided(tmp_path: Path):
    answers = FixedAnswers()
    async with (
        front_proxy(tmp_path, answers) as proxy,
        proxy.session("ann") as session,
        session.post(WHATIFS, json=job(5_000, 4)) as response,
    ):
        assert response.status == 201
    assert len(answers.asked) == 1


def test_the_sizes_are_counted_before_pods_are_made():
    body = json.dumps(job(10_000, 2_000)).encode()
    assert len(body) < what_if_request.BYTES_MAX
    with pytest.raises(Exception, match="20000000 containers are too many"):
        what_if_request.read(body)


@pytest.mark.parametrize("sign", ["\r\n", "\n", "\0", "\x1b", "\x7f", "\u2028", "\x85"])
async def test_a_field_with_a_character_for_control_is_named_in_a_refusal(
    tmp_path: Path, sign: str
):
    async with front_proxy(tmp_path, FixedAnswers()) as proxy, proxy.session("ann") as session:
        question = {"spec": {"drainNodes": ["n"], f"bad{sign}X-Evil: 1": 1}}
        async with session.post(WHATIFS, json=question) as response:
            told = await response.json()
            assert "X-Evil" not in response.headers
    assert response.status == 400
    assert "spec.bad\\" in told["message"]
    assert told["message"].isprintable()


async def test_many_unknown_fields_are_named_in_part(tmp_path: Path):
    async with front_proxy(tmp_path, FixedAnswers()) as proxy, proxy.session("ann") as session:
        unknown = {f"{'x' * 300}{n}": 1 for n in range(1_000)}
        question = {"spec": {"drainNodes": ["n"], **unknown}}
        async with session.post(WHATIFS, json=question) as response:
            assert response.status == 201
            warnings = response.headers.getall("Warning")
    assert len(warnings) == what_if_request.WARNINGS_MAX + 1
    assert "980 more unknown fields" in warnings[-1]
    assert sum(map(len, warnings)) < 8_000


# --- a fuzzer of refusals --------------------------------------------------------------------

SIGNS = (
    *("\r\nX-Evil: 1", "\n", "\0", "\x1b[2J", "\x7f", "\x85", "\u2028", "\ud800", "\udcff"),
    *("\N{PILE OF POO}", "é", '"', "\\", "%", "%0d%0aX-Evil:1", "../", "//", "", "x" * 5_000, "a"),
)
HEADERS = {
    *("content-type", "content-length", "date", "server", "warning", "retry-after", "connection"),
    *("etag", "transfer-encoding", "cache-control"),
}


class Drawn:
    """Requests that hold hostile text in each place where a client may put some."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def text(self) -> str:
        parts = self._random.choices(SIGNS, k=self._random.randint(1, 2))
        return self._random.choice(("", "a")) + "".join(parts)

    def encoded(self) -> str:
        """Return text as a part of a path or a query."""
        return quote(self.text().encode("utf-8", "surrogatepass"), safe="")

    def path(self) -> str:
        names = ("pendingjobs", "explanations", "timelines", "queuetrees", "nodeuses", "whatifs")
        name = self._random.choice((*names, "changes", self.encoded()))
        root = self._random.choice((ROOT, ROOT, ROOT, "/apis/visibility.pumice.dev", "/openapi"))
        parts = [root, "namespaces", self.encoded(), name, self.encoded(), self.encoded()]
        if self._random.random() < 0.3:
            parts = [root, name, self.encoded()]
        path = "/".join(parts[: self._random.randint(2, len(parts))])
        keys = ("fieldSelector", "labelSelector", "resourceVersion", "includeObject", "limit")
        query = {self._random.choice((*keys, self.encoded())): self.encoded() for _ in range(2)}
        if self._random.random() < 0.2:
            query["fieldSelector"] = f"metadata.name%3D{self.encoded()}"
        return f"{path}?{'&'.join(f'{key}={value}' for key, value in query.items())}"

    def header(self) -> bytes:
        """Return a value that a client of the API server can send: no line ends in it."""
        sent = self.text().encode("utf-8", "surrogatepass")
        return bytes(byte for byte in sent if byte not in b"\r\n\0")[:2_000]

    def body(self) -> bytes:
        question = {
            "apiVersion": self._random.choice(("visibility.pumice.dev/v1alpha1", self.text())),
            "kind": self._random.choice(("WhatIf", self.text())),
            "metadata": {"name": self.text(), "namespace": self._random.choice(("n", self.text()))},
            "spec": {"drainNodes": [self.text()], self.text(): {self.text(): self.text()}},
        }
        for key in self._random.sample(("apiVersion", "kind", "metadata"), k=3):
            if self._random.random() < 0.5:
                del question[key]
        sent = json.dumps(question, ensure_ascii=self._random.random() < 0.5)
        made = sent.encode("utf-8", "surrogatepass")
        return made if self._random.random() < 0.9 else made[: self._random.randint(0, len(made))]

    def request(self) -> bytes:
        posts = self._random.random() < 0.5
        method = "POST" if posts else self._random.choice(("GET", "PUT", "DELETE", "PATCH", "X"))
        body = self.body() if posts else b""
        where = WHATIFS if posts and self._random.random() < 0.8 else self.path()
        if self._random.random() < 0.3:
            where += f"{'&' if '?' in where else '?'}fieldValidation=Strict"
        lines = [
            f"{method} {where} HTTP/1.1".encode(),
            b"Host: visibility",
            b"X-Remote-User: " + (self.header() or b"u"),
            b"X-Remote-Group: system:masters",
            b"Accept: " + self._random.choice((b"*/*", b"application/json", self.header())),
            b"Content-Type: " + self._random.choice((b"application/json", self.header())),
            b"If-None-Match: " + self.header(),
            b"Content-Length: %d" % len(body),
            b"Connection: close",
        ]
        return b"\r\n".join(lines) + b"\r\n\r\n" + body


async def raw(proxy: FrontProxy, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send a request and read all of its answer."""
    async with asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port, ssl=proxy.tls)
        writer.write(request)
        await writer.drain()
        answer = await reader.read()
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head, f"the connection ended without an answer to {request!r}"
    status, *lines = head.decode("latin-1").split("\r\n")
    return int(status.split()[1]), dict(line.split(": ", 1) for line in lines), body


FAILURES = (None, None, Rejected, Retryable, Broken, KeyError, UnicodeError)


@pytest.mark.parametrize("seed", range(20))
async def test_whatever_a_client_sends_is_answered_with_a_whole_status(tmp_path: Path, seed: int):
    drawn, answers = Drawn(seed), FixedAnswers()
    async with front_proxy(tmp_path, answers) as proxy:
        for turn in range(20):
            kind = FAILURES[turn % len(FAILURES)]
            answers.failure = kind(drawn.text()) if kind else None
            request = drawn.request()

            status, headers, body = await raw(proxy, request)

            unknown = {name.lower() for name in headers} - HEADERS
            assert not unknown, f"{unknown} in the answer to {request!r}"
            if headers.get("Content-Type", "").startswith("application/json") and body:
                told = json.loads(body)
                assert status < 400 or told["code"] == status, f"{told} for {request!r}"
            else:
                assert status in (200, 304, 400), f"{status} {body[:200]!r} for {request!r}"
