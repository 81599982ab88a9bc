"""Whatever happens on the way, the stream ends up saying what the API server shows."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from services.cache.fold.objects import ObservedObject, Published, digest, observed_object
from services.cache.fold.publish_queue import PublishQueue
from shared.contracts.messages import Fact, Op
from tests.support.structs import pod

NAMES = st.sampled_from(["a", "b", "c"])


class CacheMachine(RuleBasedStateMachine):
    """An API server, watch events that may lag, a stream, and leaders that come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.version = 0
        self.world: dict[str, ObservedObject] = {}
        self.events: list[tuple[str, str, str, int, ObservedObject | None]] = []
        self.stream: dict[str, Published] = {}
        self.newest: dict[str, int] = {}
        self.queue = PublishQueue(["pods"])
        self.on_their_way: list[Fact] = []
        self.leads = False
        self.listed_in_term = False
        """Whether the kind was listed, or is expected to be current, in the term under way."""

    def next_version(self) -> int:
        self.version += 1
        return self.version

    @rule(name=NAMES, node=st.sampled_from(["", "n1", "n2"]), new=st.booleans())
    def an_object_is_written(self, name: str, node: str, new: bool) -> None:
        version = self.next_version()
        key = f"ns/{name}"
        before = self.world.get(key)
        if before is not None and new:
            self.events.append(("delete", key, before.uid, version, None))
            version = self.next_version()
        uid = before.uid if before is not None and not new else f"uid-{version}"
        _, shown = observed_object(pod(name, uid=uid, version=version, node=node))
        self.world[key] = shown
        self.events.append(("put", key, uid, version, shown))

    @rule(name=NAMES)
    def an_object_is_deleted(self, name: str) -> None:
        gone = self.world.pop(f"ns/{name}", None)
        if gone is not None:
            self.events.append(("delete", f"ns/{name}", gone.uid, self.next_version(), None))

    @precondition(lambda self: self.on_their_way)
    @rule(listed=st.booleans())
    def an_object_goes_while_its_fact_is_on_its_way(self, listed: bool) -> None:
        self.an_object_is_deleted(self.on_their_way[-1].key.removeprefix("ns/"))
        if listed:
            self.the_kind_is_listed_anew()

    @rule(count=st.integers(1, 5))
    def events_arrive(self, count: int) -> None:
        for kind, key, uid, version, shown in self.events[:count]:
            if shown is not None:
                self.queue.put("pods", key, shown)
            else:
                assert kind == "delete"
                self.queue.deleted("pods", key, uid, str(version))
        del self.events[:count]

    @rule()
    def the_kind_is_listed_anew(self) -> None:
        self.events.clear()
        self.queue.listed("pods", dict(self.world), (), str(self.version))
        self.listed_in_term = self.leads

    @rule()
    def the_present_version_is_asked_for(self) -> None:
        self.queue.expect("pods", str(self.version))
        if not self.events:
            self.queue.bookmark("pods", str(self.version))
        self.listed_in_term = self.leads

    @rule(count=st.integers(1, 3))
    def facts_are_sent(self, count: int) -> None:
        for _ in range(count):
            fact = self.queue.next()
            if fact is not None:
                self.on_their_way.append(fact)

    @rule(stored=st.booleans(), answered=st.booleans())
    def a_fact_arrives(self, stored: bool, answered: bool) -> None:
        if not self.on_their_way:
            return
        fact = self.on_their_way.pop(0)
        if answered or stored:
            self.store(fact)
        if answered:
            self.queue.confirmed(fact)
        else:
            self.queue.failed(fact)

    def store(self, fact: Fact) -> None:
        key = fact.key
        assert int(fact.rv) >= self.newest.get(key, 0), "the stream went back in time"
        self.newest[key] = int(fact.rv)
        if fact.op is Op.DELETE:
            self.stream.pop(key, None)
        else:
            body = bytes(fact.body)
            self.stream[key] = Published(uid=fact.uid, rv=fact.rv, digest=digest(body, fact.rv))

    @initialize()
    def the_first_leader_begins(self) -> None:
        self.a_leader_begins(forgets=True)

    @rule(forgets=st.booleans(), listed_early=st.booleans())
    def a_leader_begins(self, forgets: bool, listed_early: bool = False) -> None:
        """The one before may have been killed (forgets) or this one stood by.

        The kind may be listed before the stream is read back, and changes may follow the list.
        """
        for fact in self.on_their_way:
            self.store(fact)
        self.on_their_way.clear()
        if forgets:
            self.queue = PublishQueue(["pods"])
            self.events.clear()
        self.queue.end()
        self.leads, self.listed_in_term = True, False
        if listed_early:
            self.the_kind_is_listed_anew()
            self.an_object_is_deleted("a")
            self.events_arrive(1)
        self.queue.begin([(("pods", key), said) for key, said in self.stream.items()])
        if forgets and not listed_early:
            self.the_kind_is_listed_anew()

    @invariant()
    def one_fact_per_object_is_on_its_way(self) -> None:
        slots = [(fact.kind, fact.key) for fact in self.on_their_way]
        assert len(slots) == len(set(slots))

    @rule()
    def a_term_comes_to_rest(self) -> None:
        """A term that has listed the kind, or come to the present, needs no further list."""
        if self.listed_in_term:
            self.events_arrive(len(self.events))
            self.queue.bookmark("pods", str(self.version))
            self.all_is_published()

    def teardown(self) -> None:
        self.a_term_comes_to_rest()
        self.a_leader_begins(forgets=False)
        self.the_kind_is_listed_anew()
        self.all_is_published()

    def all_is_published(self) -> None:
        while self.on_their_way:
            self.a_fact_arrives(stored=True, answered=True)
        while (fact := self.queue.next()) is not None:
            self.store(fact)
            self.queue.confirmed(fact)
        assert self.queue.waiting == 0
        assert self.queue.complete() == ("pods",)
        assert {key: said.digest for key, said in self.stream.items()} == {
            key: shown.digest for key, shown in self.world.items()
        }


TestCacheMachine = CacheMachine.TestCase
TestCacheMachine.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
