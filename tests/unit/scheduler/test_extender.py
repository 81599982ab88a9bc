"""Rules that an HTTP server decides, asked over real HTTP (PL24)."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest
import structlog
from aiohttp import web

from pumice.testing import Cluster, binds_of, evictions_of
from services.scheduler.adapters.extender_http import ExtenderHttp
from services.scheduler.config import BadConfig
from services.scheduler.decide import configure, decide
from services.scheduler.policy.catalog import PLUGINS
from services.scheduler.policy.plugins.extender import Extender
from shared.runtime.metrics import Metrics
from tests.support.wait import until

ACTIONS = "enqueue, allocate"


class World:
    """A server whose verbs are functions of what it is sent, and a way to decide with it."""

    def __init__(self, address: str, post: ExtenderHttp, asked: list[tuple[str, dict]]) -> None:
        self.address = address
        self.post = post
        self.asked = asked

    def verbs(self) -> list[str]:
        return [verb for verb, _ in self.asked]

    async def decide(self, cluster: Cluster, *verbs: str, actions: str = ACTIONS, more: str = ""):
        named = "".join(f", extender.{verb}Verb: {verb}" for verb in verbs)
        arguments = f"extender.urlPrefix: '{self.address}/'{named}{more}"
        text = (
            f'actions: "{actions}"\ntiers:\n- plugins:\n  - name: priority\n'
            "    enablePreemptable: false\n  - name: gang\n    enablePreemptable: false\n"
            "    enableReclaimable: false\n"
            f"  - name: extender\n    arguments: {{{arguments}}}\n"
        )
        plugins = {**PLUGINS, "extender": partial(Extender, post=self.post)}
        config = configure(text, plugins=plugins)
        run = partial(decide, cluster.cluster_state, config, now=0.0, plugins=plugins)
        return await asyncio.to_thread(run)


@asynccontextmanager
async def serving(**verbs: Callable[[dict], dict | web.Response]) -> AsyncIterator[World]:
    asked: list[tuple[str, dict]] = []
    over = asyncio.Event()

    async def handle(request: web.Request) -> web.StreamResponse:
        verb = request.path.strip("/")
        assert request.method == "POST"
        assert request.content_type == "application/json"
        body = await request.json()
        asked.append((verb, body))
        answer = verbs[verb](body)
        if answer is None:
            await over.wait()
            answer = {}
        return answer if isinstance(answer, web.Response) else web.json_response(answer)

    app = web.Application()
    app.router.add_route("*", "/{verb:.*}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    post = ExtenderHttp(metrics=Metrics(), log=structlog.get_logger())
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(post.run())
        try:
            await until(lambda: post._loop is not None)
            yield World(f"http://127.0.0.1:{runner.addresses[0][1]}", post, asked)
        finally:
            over.set()
            task.cancel()
            await runner.cleanup()


def two_nodes(**gang) -> Cluster:
    world = Cluster().node("a", cpu="4", labels={"zone": "x"}).node("b", cpu="4")
    return world.gang("g", tasks=2, cpu="1", **gang)


def only(name: str) -> Callable[[dict], dict]:
    return lambda body: {} if body["node"]["Name"] == name else {"errorMessage": "not this one"}


async def test_a_node_that_the_server_refuses_gets_nothing():
    async with serving(predicate=only("b")) as world:
        plan = await world.decide(two_nodes(), "predicate")
    assert set(binds_of(plan).values()) == {"b"}
    verb, body = world.asked[0]
    assert verb == "predicate"
    assert body["task"]["Name"] == "g-0"
    assert body["task"]["Resreq"]["MilliCPU"] == 1000.0
    assert body["task"]["Status"] == 1
    assert body["node"]["Node"]["metadata"] == {"name": "a", "labels": {"zone": "x"}}
    assert body["node"]["Idle"]["MilliCPU"] == 4000.0


@pytest.mark.parametrize("answer", [{"errorMessage": "no"}, {"status": "no", "code": 3}])
async def test_a_refusal_of_all_nodes_is_the_reason_why_a_job_waits(answer):
    async with serving(predicate=lambda _: answer) as world:
        plan = await world.decide(two_nodes(), "predicate")
    assert binds_of(plan) == {}
    (reason,) = plan.explanations[0].reasons.items()
    assert reason[1] == 2
    assert "refused by the extender" in reason[0]
    assert world.verbs() == ["predicate"] * 2  # once per node and state, not per pod


async def test_the_server_sees_the_node_fill_up():
    def at_most_one(body: dict) -> dict:
        used = body["node"]["Used"]["MilliCPU"]
        return {"errorMessage": "one is enough"} if used >= 1000 else {}

    async with serving(predicate=at_most_one) as world:
        plan = await world.decide(two_nodes(), "predicate")
    assert sorted(binds_of(plan).values()) == ["a", "b"]


async def test_scores_of_the_server_are_added_up():
    def prefer_b(body: dict) -> dict:
        return {"nodeScore": {n["Name"]: 10.0 * (n["Name"] == "b") for n in body["nodes"]}}

    async with serving(prioritize=prefer_b) as world:
        plan = await world.decide(two_nodes(), "prioritize")
    assert set(binds_of(plan).values()) == {"b"}


async def test_only_pods_that_ask_for_what_the_server_manages_concern_it():
    managed = ", extender.managedResources: [example.com/fpga]"
    async with serving(predicate=lambda _: {"errorMessage": "no"}) as world:
        plan = await world.decide(two_nodes(), "predicate", more=managed)
        assert len(binds_of(plan)) == 2
        assert world.asked == []
        cluster = Cluster().node("a", **{"example.com/fpga": "1"})
        cluster.gang("g", tasks=1, requests={"example.com/fpga": "1"})
        assert binds_of(await world.decide(cluster, "predicate", more=managed)) == {}


async def test_a_job_enters_its_queue_when_the_server_says_so():
    def judge(body: dict) -> dict:
        assert body["job"]["PodGroup"]["status"]["phase"] == "Pending"
        return {"status": 1 if body["job"]["Name"] == "g" else -1}

    cluster = Cluster().node("a")
    for name in ("g", "h"):
        cluster.gang(name, tasks=1, phase="Pending", minResources={"cpu": "1"})
    async with serving(jobEnqueueable=judge) as world:
        plan = await world.decide(cluster, "jobEnqueueable")
    assert list(binds_of(plan)) == ["g-0"]


async def test_a_queue_that_the_server_calls_overused_gets_nothing():
    async with serving(queueOverused=lambda b: {"overused": b["queue"]["Name"] == "default"}) as w:
        assert binds_of(await w.decide(two_nodes(), "queueOverused")) == {}


async def test_a_job_is_bound_when_the_server_calls_it_ready():
    def ready(body: dict) -> dict:
        placed = [t for t in body["job"]["Tasks"].values() if t["Status"] == 2]
        return {"status": len(placed) >= 2}

    async with serving(jobReady=ready) as world:
        assert len(binds_of(await world.decide(two_nodes(min_member=1), "jobReady"))) == 2
    async with serving(jobReady=lambda _: {"status": False}) as world:
        assert binds_of(await world.decide(two_nodes(min_member=1), "jobReady")) == {}


@pytest.mark.parametrize(
    ("answer", "gone"),
    [
        (lambda body: {"status": 1, "victims": body["evictees"][:1]}, {"low-0": "high-0"}),
        (lambda body: {"status": 1, "victims": []}, {}),
        (lambda _: {"status": 0}, {}),
        (lambda _: {"status": 1, "victims": [{"UID": "stranger"}]}, {}),
        (lambda _: web.Response(status=500), {}),
    ],
)
async def test_the_server_names_victims_out_of_those_that_are_offered(answer, gone):
    cluster = Cluster().node("a", cpu="1")
    cluster.gang("low", tasks=1, min_member=0, node="a", priority=1)
    cluster.gang("high", tasks=1, priority=9)
    async with serving(preemptable=answer) as world:
        plan = await world.decide(cluster, "preemptable", actions="preempt")
    assert evictions_of(plan) == gone
    assert world.asked[0][1]["evictor"]["Name"] == "high-0"


async def test_the_server_hears_of_the_session_with_everything_in_it():
    async with serving(onSessionOpen=lambda _: {}, onSessionClose=lambda _: {}) as world:
        await world.decide(two_nodes(), "onSessionOpen", "onSessionClose")
    (opened, state), (closed, nothing) = world.asked
    assert (opened, closed, nothing) == ("onSessionOpen", "onSessionClose", {})
    assert state["NodeList"] == ["a", "b"]
    assert list(state["Queues"]) == ["default"]
    assert state["Jobs"]["ns/g"]["MinAvailable"] == 2
    assert set(state["Nodes"]) == {"a", "b"}


# --- failing ---------------------------------------------------------------------------------


FAULTS = {
    "an error": lambda _: web.Response(status=500),
    "no json": lambda _: web.Response(text="<html>"),
    "of another form": lambda _: {"errorMessage": [], "victims": 3, "nodeScore": 5},
    "no answer": lambda _: None,
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("verb", ["predicate", "prioritize", "queueOverused", "onSessionOpen"])
@pytest.mark.parametrize("ignorable", [True, False])
async def test_a_server_that_fails_is_asked_once_a_cycle_and_ignored_if_it_may_be(
    fault, verb, ignorable
):
    more = f", extender.ignorable: {str(ignorable).lower()}, extender.httpTimeout: 300ms"
    async with serving(**{verb: FAULTS[fault]}) as world:
        plan = await world.decide(two_nodes(), verb, more=more)
        unread = verb == "onSessionOpen" and fault in {"no json", "of another form"}
        refused = not ignorable and verb in {"predicate", "queueOverused"}
        if not ignorable and verb == "prioritize":
            assert len(binds_of(plan)) < 2
        else:
            assert len(binds_of(plan)) == (0 if refused else 2)
        assert unread or len(world.asked) == 1


async def test_a_session_that_the_server_could_not_open_goes_on_without_it():
    verbs = {"onSessionOpen": FAULTS["an error"], "predicate": lambda _: {"errorMessage": "no"}}
    async with serving(**verbs) as world:
        assert len(binds_of(await world.decide(two_nodes(), *verbs))) == 2
    assert world.verbs() == ["onSessionOpen"]


async def test_a_failure_is_counted_and_logged_once_per_reason():
    with structlog.testing.capture_logs() as said:
        async with serving(predicate=FAULTS["an error"]) as world:
            for _ in range(3):
                await world.decide(two_nodes(), "predicate")
            assert world.post._failures._value.get() == 3
    failed = [entry for entry in said if entry["event"] == "extender_failed"]
    assert len(failed) == 1
    assert "HTTP 500" in failed[0]["reason"]


async def test_without_a_network_it_is_unreachable():
    text = (
        'actions: "allocate"\ntiers:\n- plugins:\n  - name: extender\n'
        "    arguments: {extender.urlPrefix: 'http://e', extender.predicateVerb: p}\n"
    )
    assert binds_of(decide(two_nodes().cluster_state, configure(text), now=0.0)) == {}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("", "extender.urlPrefix: '' is no http:// or https:// address"),
        ("extender.urlPrefix: 'http://e', extender.httpTimeout: soon", "extender.httpTimeout: 'so"),
        ("extender.urlPrefix: 'http://e', extender.predicateVerb: 3", "predicateVerb: 3 is no tex"),
        ("extender.urlPrefix: 'http://e', extender.managedResources: 3", "is no list of resource"),
        ("extender.urlPrefix: 'http://e', extender.ignorable: maybe", "neither true nor false"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(arguments, says):
    with pytest.raises(BadConfig, match="plugin extender: ") as caught:
        configure(
            'actions: "allocate"\ntiers:\n- plugins:\n'
            f"  - {{name: extender, arguments: {{{arguments}}}}}\n"
        )
    assert says in str(caught.value)
