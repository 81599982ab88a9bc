"""`--watch`: answers as they change, told by a watch of the API or, without one, by the clock."""

import json

import pytest

from services.visibility.api import statuses
from shared.kube.errors import Unreachable
from shared.kube.wire import Request
from tests.support.answers import ROOT, AnswersTransport, refused
from tests.unit.queries.cluster import JOBS
from tests.unit.queries.conftest import Run

WATCH = Request(method="GET", path=f"{ROOT}/namespaces/default/pendingjobs")
CHANGE = b'{"type":"MODIFIED","object":{}}\n'
BOOKMARK = b'{"type":"BOOKMARK","object":{}}\n'
ERROR = b'{"type":"ERROR","object":{"code":410}}\n'


def interrupt() -> bytes:
    raise KeyboardInterrupt


def breaks() -> bytes:
    raise Unreachable("the connection is gone")


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The times for which a command slept; an answer is awaited by no other clock."""
    times: list[float] = []

    async def sleep(seconds: float) -> None:
        times.append(seconds)
        if len(times) > 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("pumice.queries.refresh.asyncio.sleep", sleep)
    return times


def queries(way: AnswersTransport) -> list[dict[str, str]]:
    return [query for request in way.asked if "watch" in (query := dict(request.query))]


def test_a_change_that_a_watch_tells_of_is_shown_at_once(
    run: Run, way: AnswersTransport, slept: list[float]
) -> None:
    def changed() -> bytes:
        way.answers.jobs = JOBS[:1]
        return CHANGE

    way.watches = [[lambda: BOOKMARK, lambda: CHANGE[:9], lambda: CHANGE[9:], changed, interrupt]]
    code, out, err = run("why", "-w")
    assert (code, err, slept) == (130, "", [])
    first, second = out.split("\n\n")
    assert "tune" in first
    assert "tune" not in second
    asked = [bool(request.query) for request in way.asked if request.path.startswith(ROOT)]
    assert asked == [False, True, False, False], "the list after each change, not after bookmarks"


@pytest.mark.parametrize("ends", [lambda: b"", breaks, lambda: ERROR], ids=["end", "break", "410"])
def test_a_watch_that_ends_is_taken_up_from_a_new_list(
    run: Run, way: AnswersTransport, slept: list[float], ends
) -> None:
    def meanwhile() -> bytes:
        way.answers.jobs = JOBS[:1]
        return bytes(ends())

    way.watches = [[meanwhile], [interrupt]]
    code, out, err = run("why", "-w")
    assert (code, err) == (130, "")
    assert [("tune" in picture) for picture in out.split("\n\n")] == [True, False]
    assert [query["resourceVersion"] for query in queries(way)] == ["7", "7"]
    assert slept == [1.0], "a watch that ends at once is not opened in a circle"


def test_a_version_that_is_too_old_leads_to_a_new_list(
    run: Run, way: AnswersTransport, slept: list[float]
) -> None:
    way.watches = [refused(WATCH, statuses.ApiFailure(statuses.EXPIRED, "too old")), [interrupt]]
    code, _, err = run("why", "-w")
    assert (code, err, slept) == (130, "", [1.0])


def test_the_watch_is_that_of_the_list_or_of_the_one_job(
    run: Run, way: AnswersTransport, slept: list[float]
) -> None:
    for words, path, name in (
        (("why",), "/namespaces/default/pendingjobs", None),
        (("when", "-A"), "/pendingjobs", None),
        (("when", "team/other"), "/namespaces/team/pendingjobs", "metadata.name=other"),
        (("queue", "tree"), "/queuetrees", None),
    ):
        way.asked.clear()
        way.watches = [[interrupt]]
        assert run(*words, "--watch")[0] == 130
        assert way.asked[-1].path == f"{ROOT}{path}"
        (query,) = queries(way)
        assert query["watch"] == "true"
        assert query.get("fieldSelector") == name
    assert slept == []


def test_an_explanation_and_a_line_change_with_the_jobs_that_wait(
    run: Run, way: AnswersTransport, slept: list[float]
) -> None:
    mine, other = (
        b'{"type":"MODIFIED","object":{"queue":"%s"}}\n' % queue for queue in (b"research", b"idle")
    )
    for words, path, name, told in (
        (("why", "team/train"), "/namespaces/team/pendingjobs", "metadata.name=train", mine),
        (("why", "train"), "/namespaces/default/pendingjobs", "metadata.name=train", BOOKMARK),
        (("queue", "line", "research"), "/pendingjobs", None, mine),
        (("queue", "line", "research"), "/pendingjobs", None, other + BOOKMARK),
    ):
        way.asked.clear()
        slept.clear()
        way.watches = [[lambda told=told: told, interrupt]]
        code, _, err = run(*words, "--watch")
        assert (code, err, slept) == (130, "", [1.0])
        asked, watch, again = way.asked
        assert (asked.path, watch.path) == (again.path, f"{ROOT}{path}")
        query = dict(watch.query)
        assert query.get("fieldSelector") == name
        assert "resourceVersion" not in query, "that of another object says nothing"


def test_a_change_in_another_queue_is_none_of_a_line(
    run: Run, way: AnswersTransport, slept: list[float]
) -> None:
    other = b'{"type":"ADDED","object":{"queue":"idle"}}\n'
    way.watches = [[lambda: other, lambda: other, interrupt]]
    assert run("queue", "line", "research", "-w")[0] == 130
    assert len(way.asked) == 2
    assert slept == []


HAPPENED = b'event: happened\ndata: {"entry":{"at":"%s","what":"Bound","about":%s}}\n\n'
OTHERS = b'retry: 2000\n: follows\n\nevent: changed\ndata: {"resources":["pendingjobs"]}\n\n'


@pytest.mark.parametrize(
    ("name", "asks"),
    [(b"train", 2), (b"train-worker-0", 2), (b"trainer", 1), (b"other-train", 1)],
    ids=str,
)
def test_a_timeline_is_asked_for_again_when_something_happens_to_its_job(
    run: Run, way: AnswersTransport, slept: list[float], name: bytes, asks: int
) -> None:
    told = HAPPENED % (b"2026-01-02T03:00:00Z", b'{"kind":"Pod","name":"%s"}' % name)
    way.watches = [[lambda: OTHERS, lambda: told, interrupt]]
    code, _, err = run("timeline", "train", "-w")
    assert (code, err) == (130, "")
    [stream] = [request for request in way.asked if request.query]
    assert stream.path == f"{ROOT}/namespaces/default/changes"
    assert len(way.asked) - 1 == asks


def test_a_quiet_stream_is_a_reason_to_ask_for_a_timeline_now_and_then(
    run: Run, way: AnswersTransport, slept: list[float]
) -> None:
    way.watches = [[lambda: b": lives\n\n", interrupt]]
    assert run("timeline", "train", "-w")[0] == 130
    assert len(way.asked) == 3


def test_a_watch_that_is_refused_is_said_once_and_the_clock_takes_its_place(
    run: Run, way: AnswersTransport, slept: list[float]
) -> None:
    words = 'cannot watch resource "pendingjobs"'
    way.watches = [refused(WATCH, statuses.ApiFailure(statuses.FORBIDDEN, words))]
    code, out, err = run("why", "-w", "-o", "json")
    assert (code, slept) == (130, [2.0] * 4)
    assert err.startswith(f"note: no watch: {words}; the ClusterRole view")
    assert err.endswith("; asking every 2 s\n")
    assert err.count("\n") == 1
    assert json.loads(out)["kind"] == "PendingJobList"
