"""A leader's term: facts that the server never takes, and lists that come early."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import structlog

from services.cache.adapters.published import PublishedFacts
from services.cache.adapters.publisher import LeaderDuties, StatePublisher
from services.cache.adapters.stream_audit import StreamAudit
from services.cache.fold.objects import ObservedObject
from services.cache.fold.publish_queue import PublishQueue
from services.cache.metrics import CacheMetrics
from shared.bus.errors import TooLarge
from shared.bus.seal import Seal
from shared.bus.values import Ack, CaughtUp, FencingToken, Message
from shared.contracts import codec
from shared.contracts.messages import Fact, LeaderRecord
from shared.contracts.streams import streams
from shared.contracts.subjects import Subjects
from shared.election.leader_elector import LeadershipTerm
from shared.runtime.clock import SystemClock
from shared.runtime.errors import Rejected
from shared.runtime.metrics import Metrics
from shared.runtime.tasks import TaskGroup
from tests.support.env import context_of_a_test
from tests.support.wait import until

SUBJECTS = Subjects(cluster="local")
LOG = structlog.get_logger()


class Bus:
    """Takes facts, but not `large`, not `odd` once it was sent; of `late` it never answers."""

    def __init__(self) -> None:
        self.facts: list[Fact] = []

    def publisher(self, _: str) -> "Bus":
        return self

    async def follow(self, *_: object):
        mark = codec.encode(LeaderRecord(service="cache", instance="c", time=TERM.time))
        yield [Message(subject=TOKEN.subject, sequence=7, payload=mark, time=0)]
        yield CaughtUp()
        await asyncio.Event().wait()

    async def publish(self, *_: object, **__: object) -> Ack:
        return Ack(sequence=1)

    async def submit(self, subject: str, payload: bytes, **_: object):
        if subject.endswith(".large"):
            raise TooLarge("the server takes less")
        answer = asyncio.get_running_loop().create_future()
        if subject.endswith(".odd"):
            answer.set_exception(Rejected("no"))
        elif not subject.endswith(".late"):
            self.facts.append(codec.decode_fact(payload))
            answer.set_result(Ack(sequence=1))
        return answer


class NoLeases:
    """Nothing hangs on a Lease."""

    def statuses(self) -> msgspec.UnsetType:
        return msgspec.UNSET

    async def keep(self, **_: object) -> None:
        return


@asynccontextmanager
async def publishing(
    queue: PublishQueue,
    bus: Bus | None = None,
    revalidate: Callable[[], None] = lambda: None,
    metrics: Metrics | None = None,
) -> AsyncIterator[tuple[StatePublisher, asyncio.Task[None]]]:
    """Run the first term of a publisher until the end of the block."""
    bus = bus or Bus()
    published = PublishedFacts(
        bus,
        stream=TOKEN.stream,
        subjects=SUBJECTS,
        kinds=("queues",),
        instance="c",
        seal=Seal(""),
        clock=SystemClock(),
        log=LOG,
    )
    state = StatePublisher(
        bus,
        queue,
        context_of_a_test(instance="c"),
        subjects=SUBJECTS,
        duties=LeaderDuties(
            published=published, revalidate=revalidate, leases=NoLeases(), audit=NoAudit()
        ),
        seal=Seal(""),
        metrics=CacheMetrics(metrics or Metrics()),
    )
    async with TaskGroup() as group:
        following = group.create_task(published.run(), name="published")
        term = group.create_task(state.lead(TERM), name="term")
        await until(lambda: state.leads)
        yield state, term
        term.cancel()
        following.cancel()


class NoAudit(StreamAudit):
    """Never looks."""

    def __init__(self) -> None:
        pass

    async def run(self, queue: PublishQueue) -> None:
        assert queue is not None


TOKEN = FencingToken(
    stream=streams("local").state.name, subject=SUBJECTS.leader("state"), sequence=7
)
TERM = LeadershipTerm(number=1, tokens={TOKEN.stream: TOKEN}, time=1.5)


async def test_a_fact_that_is_refused_in_any_form_lets_the_others_pass() -> None:
    bus, queue = Bus(), PublishQueue(["queues"])
    async with publishing(queue, bus) as (state, term):
        held = {name: ObservedObject(uid=name, rv="1", body=b"{}", digest=name.encode()) for name in
                ("a", "large", "odd", "z")}  # fmt: skip
        queue.listed("queues", held, (), "1")
        state.changed()
        await until(lambda: state.complete or term.done())
        assert not term.done()
    assert [fact.key for fact in bus.facts] == ["a", "z"]


async def test_a_term_is_complete_though_its_lists_came_before_the_stream_was_read_back() -> None:
    """As with three servers, where reading takes longer; nothing may change afterwards."""
    queue = PublishQueue(["queues"])
    async with publishing(queue, revalidate=lambda: queue.listed("queues", {}, (), "1")) as (
        state,
        _,
    ):
        await until(lambda: state.complete, deadline_s=5)


async def test_what_a_standby_holds_is_published_before_it_is_shown_to_be_current() -> None:
    bus, queue = Bus(), PublishQueue(["queues"])
    queue.listed("queues", {"a": ObservedObject(uid="a", rv="1", body=b"{}", digest=b"a")}, (), "1")
    async with publishing(queue, bus) as (state, _):
        await until(lambda: bus.facts)
        assert not state.complete
        queue.expect("queues", "5")
        queue.bookmark("queues", "5")
        state.changed()
        assert state.complete


async def test_a_cache_that_leads_no_more_has_no_facts_waiting() -> None:
    queue, metrics = PublishQueue(["queues"]), Metrics()

    def waiting() -> float | None:
        return metrics.registry.get_sample_value("pumice_cache_facts_waiting")

    async with publishing(queue, metrics=metrics) as (state, _):
        late = ObservedObject(uid="late", rv="1", body=b"{}", digest=b"late")
        queue.listed("queues", {"late": late}, (), "1")
        state.changed()
        await until(lambda: bool(waiting()), deadline_s=5)
    assert waiting() == 0
