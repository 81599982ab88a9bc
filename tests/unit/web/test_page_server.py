"""The page's server over HTTP: the key, the headers of each answer, and what is passed on."""

import contextlib
import io
import json

import aiohttp
import pytest

from pumice.local.errors import LocalError
from pumice.local.ports import free_port
from pumice.web.gate import RequestGate
from pumice.web.server import KubeconfigFacts, PageServer, page_files
from shared.api.visibility import Change, ObjectRef, TimelineEntry
from shared.kube.errors import Busy, Status
from tests.support.answers import AnswersTransport
from tests.support.wait import until
from tests.unit.web.page_world import World, owned_by_a_deployment

API = "/apis/visibility.pumice.dev/v1alpha1"
CONTEXT = KubeconfigFacts(server="https://10.0.0.1:6443", namespace="team-00")


class Asking:
    """A browser that has opened the printed address."""

    def __init__(self, session: aiohttp.ClientSession, port: int, way: AnswersTransport) -> None:
        self.session, self.port, self.way = session, port, way
        self.origin = f"http://127.0.0.1:{port}"

    def get(self, path, **options):
        return self.session.get(f"{self.origin}{path}", **options)

    def post(self, path, **options):
        headers = {"Origin": self.origin}
        return self.session.post(f"{self.origin}{path}", headers=headers, **options)


@contextlib.asynccontextmanager
async def asking(*, way=None, cookies=None):
    world = World(nodes=4, waiting=10, running=5, now_s=1_800_000_000.0, seed=1)
    way = way or AnswersTransport(world)
    port = free_port()
    server = PageServer(way, gate=RequestGate(port=port, key="secret"), context=CONTEXT)
    given = {f"pumice-web-{port}": "secret"} if cookies is None else cookies
    async with server.serving(port), aiohttp.ClientSession(cookies=given) as session:
        yield Asking(session, port, way)


async def test_the_key_becomes_a_cookie_and_leaves_the_address():
    jar = aiohttp.CookieJar(unsafe=True)
    async with asking(cookies={}) as page:
        async with page.get("/") as answer:
            assert answer.status == 401
        async with page.get("/?key=wrong", allow_redirects=False) as answer:
            assert (answer.status, answer.cookies) == (401, {})
        async with page.get("/?key=secret", allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (303, "/")
            cookie = answer.cookies[f"pumice-web-{page.port}"]
            assert (cookie["httponly"], cookie["samesite"]) == (True, "Lax")
            jar.update_cookies(answer.cookies)
        async with (
            aiohttp.ClientSession(cookie_jar=jar) as known,
            known.get(f"{page.origin}/") as answer,
        ):
            assert (answer.status, answer.content_type) == (200, "text/html")


@pytest.mark.parametrize("path", ["/", "/main.js", "/nothing", f"{API}/queuetrees", "/web/context"])
async def test_each_answer_forbids_what_is_not_from_here(path):
    async with asking() as page, page.get(path) as answer:
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Cache-Control"] == "no-store"


async def test_nothing_is_passed_on_without_the_key():
    async with asking(cookies={}) as page:
        async with page.get(f"{API}/pendingjobs") as answer:
            assert answer.status == 401
        assert page.way.asked == []


async def test_paths_that_the_page_does_not_ask_never_reach_the_api_server():
    async with asking() as page:
        for path in ("/api/v1/secrets", "/version", f"{API}/namespaces/a/secrets/b"):
            async with page.get(path) as answer:
                assert answer.status == 404
        async with page.session.delete(f"{page.origin}{API}/pendingjobs") as answer:
            assert answer.status == 403  # it names no origin
        assert page.way.asked == []


async def test_a_list_and_a_question_are_passed_on():
    async with asking() as page:
        async with page.get(f"{API}/namespaces/team-00/pendingjobs?limit=5") as answer:
            assert (await answer.json())["kind"] == "PendingJobList"
        assert page.way.asked[-1].query == (("limit", "5"),)
        body = {"spec": {"job": {"metadata": {"name": "a"}, "spec": {"tasks": [{"name": "t"}]}}}}
        async with page.post(f"{API}/namespaces/team-00/whatifs", json=body) as answer:
            assert (await answer.json())["status"]["startsNow"] is True


async def test_a_refusal_comes_with_the_words_of_the_api_server():
    world = World(nodes=1, waiting=1, running=0, now_s=0.0, seed=1)
    way = AnswersTransport(world, may=lambda namespace: namespace == "team-00")
    async with asking(way=way) as page, page.get(f"{API}/pendingjobs") as answer:
        assert answer.status == 403
        assert (await answer.json())["message"].startswith("pendingjobs is forbidden")


async def test_an_api_server_that_does_not_know_the_user_is_not_taken_for_a_wrong_key():
    class Stranger(AnswersTransport):
        async def exchange(self, request):
            raise Busy(request.doing, Status(code=401, message="Unauthorized"))

    world = World(nodes=1, waiting=1, running=0, now_s=0.0, seed=1)
    way = Stranger(world)
    async with asking(way=way) as page, page.get(f"{API}/pendingjobs") as answer:
        assert answer.status == 502
        assert "does not know" in (await answer.json())["message"]


async def test_changes_are_streamed_as_they_come():
    async with asking() as page, page.get(f"{API}/changes?watch=1") as answer:
        assert answer.content_type == "text/event-stream"
        assert await answer.content.readline() == b": follows\n"
        about = ObjectRef(kind="Job", namespace="a", name="b")
        answers = page.way.answers
        await until(lambda: answers.is_followed, describe=lambda: "the stream is open")
        answers.tell(Change(resources=("queuetrees",)))
        answers.tell(
            Change(entry=TimelineEntry(at="2026-01-01T00:00:00Z", what="Bound", about=about))
        )
        lines = [(await answer.content.readline()).strip() for _ in range(6)]
        assert lines[1:3] == [b"event: changed", b'data: {"resources":["queuetrees"]}']
        assert lines[4] == b"event: happened"
        assert json.loads(lines[5].removeprefix(b"data: "))["entry"]["what"] == "Bound"


async def test_a_pasted_job_is_read_here():
    text = "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {name: a}\n"
    async with asking() as page:
        async with page.post("/web/yaml", data=text) as answer:
            assert (await answer.json(content_type=None))["metadata"] == {"name": "a"}
        async with page.post("/web/yaml", data="kind: Pod") as answer:
            assert (answer.status, "Pod" in (await answer.json())["message"]) == (400, True)
        async with page.post("/web/yaml", data=io.BytesIO(b"a" * (2 << 20))) as answer:
            assert answer.status == 413


async def test_a_taken_port_is_named():
    async with asking() as page:
        server = PageServer(page.way, gate=RequestGate(port=page.port, key="k"), context=CONTEXT)
        with pytest.raises(LocalError, match=f"port {page.port}"):
            async with server.serving(page.port):
                pass


def test_the_page_asks_nothing_of_another_host_and_has_no_inline_code():
    for name, (content, _) in page_files().items():
        text = content.decode().replace("http://www.w3.org/2000/svg", "")
        assert "//" not in text or name.endswith(".js"), name
        assert "https:" not in text, name
        assert "http:" not in text, name
        for word in ("innerHTML", "insertAdjacentHTML", "document.write", "eval(", "outerHTML"):
            assert word not in text, f"{name}: {word}"
    html = page_files()["/index.html"][0].decode()
    assert "style=" not in html
    assert html.count("<script") == html.count('<script type="module" src=')


async def test_lists_and_explanations_name_the_workload_that_owns_a_job():
    world = World(nodes=4, waiting=10, running=5, now_s=1_800_000_000.0, seed=1)
    way = AnswersTransport(world)
    namespace, name = owned_by_a_deployment(world, way)
    async with asking(way=way) as page:
        async with page.get(f"{API}/pendingjobs") as answer:
            [owner] = [
                item["owner"]
                for item in (await answer.json())["items"]
                if item["metadata"]["name"] == name
            ]
        assert (owner["kind"], owner["name"]) == ("Deployment", "web")
        async with page.get(f"{API}/namespaces/{namespace}/explanations/{name}") as answer:
            assert (await answer.json())["owner"]["kind"] == "Deployment"
