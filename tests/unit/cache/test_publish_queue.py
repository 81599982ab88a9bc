"""What is published, and what is not: examples of the queue's rules (CA01, CA10)."""

import json
from typing import Any

import pytest

from services.cache.fold.objects import ObservedObject, Published, digest, observed_object, older
from services.cache.fold.publish_queue import PublishQueue, without_body
from shared.api.core import Pod
from shared.api.meta import ObjectMeta
from shared.contracts.messages import Fact, Op
from tests.support import structs

Keyed = tuple[str, ObservedObject]


def a_pod(name: str, version: int, **more: Any) -> Keyed:
    return observed_object(structs.pod(name, version=version, **more))


class World:
    """A queue of pods with a leader that publishes what it is told to."""

    def __init__(self, *, leads: bool = True) -> None:
        self.queue = PublishQueue(["pods"])
        self.stream: dict[str, Published] = {}
        if leads:
            self.begin()

    def begin(self, *shown: Keyed, version: int = 0) -> None:
        """Begin a term; with a version the kind is listed before the stream is read back."""
        self.queue.end()
        if version:
            self.lists(*shown, version=version)
        self.queue.begin([(("pods", key), said) for key, said in self.stream.items()])

    def lists(self, *pods: Keyed, version: int = 100, unreadable: tuple = ()) -> None:
        self.queue.listed("pods", dict(pods), unreadable, str(version))

    def puts(self, shown: Keyed) -> None:
        self.queue.put("pods", *shown)

    def deletes(self, name: str, version: int, *, uid: str = "") -> None:
        self.queue.deleted("pods", f"ns/{name}", uid or f"uid-{name}", str(version))

    def takes(self) -> list[Fact]:
        """Take all that is in line, without an answer."""
        return list(iter(self.queue.next, None))

    def confirms(self, publications: list[Fact]) -> None:
        for fact in publications:
            key = fact.key
            if fact.op is Op.DELETE:
                self.stream.pop(key)
            else:
                seen = digest(bytes(fact.body), fact.rv)
                self.stream[key] = Published(uid=fact.uid, rv=fact.rv, digest=seen)
            self.queue.confirmed(fact)

    def publishes(self) -> list[str]:
        """Publish and confirm all that is in line; one word per fact."""
        said = []
        while publications := self.takes():
            said += [told(fact) for fact in publications]
            self.confirms(publications)
        return said


def told(fact: Fact) -> str:
    return f"{fact.op.value} {fact.key}@{fact.rv}"


def test_a_list_is_published_once() -> None:
    world = World()
    world.lists(a_pod("b", 2), a_pod("a", 1))
    assert world.publishes() == ["put ns/a@1", "put ns/b@2"]
    world.lists(a_pod("b", 2), a_pod("a", 1))
    assert world.publishes() == []


def test_a_change_that_nobody_reads_is_not_published() -> None:
    world = World()
    world.lists(a_pod("a", 1))
    world.publishes()
    world.puts(a_pod("a", 9))
    assert world.publishes() == []
    world.puts(a_pod("a", 10, node="n1"))
    assert world.publishes() == ["put ns/a@10"]


def test_the_body_keeps_its_version_and_the_digest_ignores_only_the_first() -> None:
    _, first = a_pod("a", 1)
    _, second = a_pod("a", 2)
    assert json.loads(first.body)["metadata"]["resourceVersion"] == "1"
    assert first.digest == second.digest
    metas = (
        ObjectMeta(
            name="a",
            uid="u",
            resource_version=version,
            annotations={"last": f'{{"resourceVersion":"{version}"}}'},
        )
        for version in ("5", "6")
    )
    before, after = (observed_object(Pod(metadata=each))[1] for each in metas)
    assert before.digest != after.digest


def test_changes_while_a_fact_is_on_its_way_become_one_more_fact() -> None:
    world = World()
    world.lists(a_pod("a", 1))
    on_its_way = world.takes()
    for version in range(2, 7):
        world.puts(a_pod("a", version, node=f"n{version}"))
    assert world.takes() == []
    world.confirms(on_its_way)
    assert world.publishes() == ["put ns/a@6"]


def test_a_change_back_to_what_was_said_needs_no_fact() -> None:
    world = World()
    world.lists(a_pod("a", 1))
    world.publishes()
    world.puts(a_pod("a", 2, node="n"))
    world.puts(a_pod("a", 3))
    assert world.publishes() == []
    assert world.queue.waiting == 0


def test_a_deletion_is_a_tombstone_and_one_that_was_never_published_is_nothing() -> None:
    world = World()
    world.lists(a_pod("a", 1))
    world.publishes()
    world.deletes("a", 5)
    assert world.publishes() == ["delete ns/a@5"]
    world.puts(a_pod("b", 6))
    world.deletes("b", 7)
    assert world.publishes() == []


def test_a_deletion_behind_a_fact_on_its_way_is_a_tombstone() -> None:
    world = World()
    world.puts(a_pod("a", 1))
    on_its_way = world.takes()
    world.deletes("a", 2)
    world.confirms(on_its_way)
    assert world.publishes() == ["delete ns/a@2"]


def test_an_object_that_a_list_lacks_while_its_fact_is_on_its_way_gets_its_tombstone() -> None:
    """As after the bus lost its data: a leader says again what it remembers, then lists anew."""
    world = World()
    world.lists(a_pod("a", 10))
    on_their_way = world.takes()
    world.lists(version=20)
    world.confirms(on_their_way)
    assert world.publishes() == ["delete ns/a@20"]


def test_the_deletion_of_a_namesake_that_came_before_is_ignored() -> None:
    world = World()
    world.puts(a_pod("a", 8, uid="new"))
    world.deletes("a", 7, uid="old")
    assert world.publishes() == ["put ns/a@8"]


def test_an_object_that_is_made_again_replaces_its_namesake_without_a_tombstone() -> None:
    world = World()
    world.lists(a_pod("a", 1, uid="old"))
    world.publishes()
    world.deletes("a", 2, uid="old")
    world.puts(a_pod("a", 3, uid="new"))
    assert world.publishes() == ["put ns/a@3"]
    assert world.stream["ns/a"].uid == "new"


def test_a_restarted_cache_publishes_the_differences_only() -> None:
    world = World()
    world.lists(a_pod("same", 1), a_pod("changed", 2), a_pod("vanished", 3))
    world.publishes()
    world.queue = PublishQueue(["pods"])
    world.begin()
    assert world.publishes() == []
    world.lists(a_pod("same", 4), a_pod("changed", 5, node="n"), a_pod("new", 6), version=9)
    assert world.publishes() == ["put ns/changed@5", "put ns/new@6", "delete ns/vanished@9"]


def test_an_old_version_of_an_object_is_ignored() -> None:
    """CA10: a stale watch event must not take a pod from its node."""
    world = World()
    world.lists(a_pod("a", 10, node="n1"))
    world.publishes()
    world.puts(a_pod("a", 9))
    assert world.publishes() == []
    world.lists(a_pod("a", 8))
    assert world.publishes() == []
    assert world.queue.ignored == 2


def test_a_new_leader_whose_memory_lags_neither_takes_back_nor_deletes() -> None:
    """It was frozen: the stream knows a bind, a new pod and a new namesake that it does not."""
    world = World(leads=False)
    world.lists(a_pod("bound", 5), a_pod("again", 6, uid="old"), version=10)
    world.stream = {
        key: Published(uid=shown.uid, rv=shown.rv, digest=shown.digest)
        for key, shown in (
            a_pod("bound", 20, node="n1"),
            a_pod("unknown", 21),
            a_pod("again", 22, uid="new"),
        )
    }
    world.begin()
    assert world.publishes() == []
    world.deletes("again", 15, uid="old")
    assert world.publishes() == []
    world.lists(
        a_pod("bound", 20, node="n1"),
        a_pod("again", 22, uid="new"),
        a_pod("unknown", 21),
        version=30,
    )
    assert world.publishes() == []


def test_a_list_that_comes_before_the_stream_is_read_back_counts_for_the_term() -> None:
    world = World()
    world.lists(a_pod("a", 10), a_pod("b", 11))
    world.publishes()
    world.begin(a_pod("b", 11), version=20)
    world.deletes("b", 21)
    assert world.publishes() == ["delete ns/a@20", "delete ns/b@21"]
    assert world.queue.complete() == ("pods",)


def test_what_goes_between_the_list_and_the_reading_back_is_said_to_be_gone() -> None:
    world = World()
    world.lists(a_pod("a", 10))
    world.publishes()
    world.queue.end()
    world.lists(a_pod("a", 10), version=20)
    world.deletes("a", 25)
    world.queue.begin([(("pods", key), said) for key, said in world.stream.items()])
    assert world.publishes() == ["delete ns/a@25"]


def test_what_the_leader_before_said_after_our_list_stays() -> None:
    world = World()
    world.lists(a_pod("a", 10))
    world.publishes()
    world.queue.end()
    world.lists(version=20)
    world.stream["ns/b"] = Published(uid="uid-b", rv="22")
    world.queue.begin([(("pods", key), said) for key, said in world.stream.items()])
    assert world.publishes() == ["delete ns/a@20"]


def test_a_standby_that_has_come_further_than_the_stream_says_what_is_gone() -> None:
    world = World(leads=False)
    world.lists(a_pod("stays", 10), a_pod("goes", 11), version=15)
    world.stream = {
        key: Published(uid=shown.uid, rv=shown.rv, digest=shown.digest)
        for key, shown in (
            a_pod("stays", 10),
            a_pod("goes", 11),
            a_pod("went", 14),
            a_pod("came", 21),
        )
    }
    world.deletes("goes", 20)
    world.begin()
    assert world.publishes() == ["delete ns/goes@20", "delete ns/went@20"]
    assert world.queue.complete() == ()


@pytest.mark.parametrize(
    "come",
    [
        lambda world: world.queue.bookmark("pods", "30"),
        lambda world: world.puts(a_pod("new", 31)),
        lambda world: world.deletes("other", 30),
        lambda world: world.queue.listed(
            "pods", dict([a_pod("a", 10)]), (), "30", is_current=False
        ),
    ],
    ids=["bookmark", "change", "deletion", "list of before"],
)
def test_a_kind_is_current_once_its_watch_has_come_as_far_as_the_term_expects(come) -> None:
    world = World(leads=False)
    world.lists(a_pod("a", 10), version=15)
    world.stream["ns/b"] = Published(uid="uid-b", rv="22")
    world.begin()
    world.queue.expect("pods", "30")
    world.publishes()
    world.queue.bookmark("pods", "21")
    assert world.publishes() == []
    assert not world.queue.is_current("pods")
    come(world)
    assert any(said.startswith("delete ns/b@3") for said in world.publishes())
    assert world.queue.complete() == ("pods",)


def test_a_kind_that_has_come_so_far_already_is_current_at_once() -> None:
    world = World(leads=False)
    world.lists(a_pod("a", 10), version=15)
    world.queue.end()
    world.queue.expect("pods", "15")
    world.queue.begin([])
    assert world.publishes() == ["put ns/a@10"]
    assert world.queue.complete() == ("pods",)


def test_the_next_term_expects_anew() -> None:
    world = World()
    world.queue.expect("pods", "30")
    world.begin()
    world.queue.bookmark("pods", "40")
    assert world.queue.complete() == ()


def test_a_list_that_began_before_the_term_is_not_current() -> None:
    world = World()
    world.stream["ns/b"] = Published(uid="uid-b", rv="22")
    world.begin()
    world.queue.listed("pods", {}, (), "20", is_current=False)
    assert world.publishes() == []
    assert world.queue.complete() == ()


def test_what_a_watch_shows_and_cannot_be_read_is_not_said_to_be_gone() -> None:
    """A cache of a release before could read it, and led until now."""
    world = World(leads=False)
    world.lists(version=5)
    world.stream["ns/a"] = Published(uid="uid-a", rv="6")
    world.queue.unreadable("pods", "ns/a")
    world.queue.expect("pods", "8")
    world.queue.bookmark("pods", "8")
    world.begin()
    assert world.publishes() == []
    world.deletes("a", 9)
    assert world.publishes() == ["delete ns/a@9"]


def test_a_standby_publishes_nothing_and_gathers_nothing() -> None:
    world = World(leads=False)
    world.lists(a_pod("a", 1))
    world.deletes("a", 2)
    assert world.takes() == []
    assert world.queue.waiting == 0
    assert world.queue.complete() == ()
    world.begin()
    assert world.publishes() == []


def test_a_publication_without_an_answer_is_said_again() -> None:
    world = World()
    world.lists(a_pod("a", 1))
    for fact in world.takes():
        world.queue.failed(fact)
    assert world.queue.complete() == ()
    assert world.publishes() == ["put ns/a@1"]
    assert world.queue.complete() == ("pods",)


def test_a_fact_that_may_be_in_the_stream_gets_its_tombstone() -> None:
    world = World()
    world.puts(a_pod("a", 1))
    on_its_way = world.takes()
    world.deletes("a", 2)
    for fact in on_its_way:
        world.stream["ns/a"] = Published(uid="uid-a", rv="1")
        world.queue.failed(fact)
    tombstones = world.takes()
    assert [told(t) for t in tombstones] == ["delete ns/a@2"]
    world.queue.failed(tombstones[0])
    assert world.publishes() == ["delete ns/a@2"]


def test_a_kind_is_complete_once_its_list_is_published() -> None:
    world = World()
    assert world.queue.complete() == ()
    world.lists(a_pod("a", 1))
    assert world.queue.complete() == ()
    on_its_way = world.takes()
    world.puts(a_pod("a", 2, node="n"))
    assert world.queue.complete() == ()
    world.confirms(on_its_way)
    assert world.queue.complete() == ("pods",)


def test_an_empty_kind_is_complete_at_once() -> None:
    world = World()
    world.lists(version=7)
    assert world.queue.complete() == ("pods",)
    assert world.queue.published_versions() == {"pods": "7"}


def test_a_kind_that_the_server_does_not_know_is_complete_and_empty() -> None:
    world = World()
    world.lists(a_pod("a", 1))
    world.publishes()
    world.queue.absent("pods")
    assert world.queue.complete() == ()
    assert world.publishes() == ["delete ns/a@1"]
    assert world.queue.complete() == ("pods",)


def test_an_unreadable_object_keeps_what_was_said_of_it() -> None:
    world = World()
    world.lists(a_pod("a", 1), a_pod("b", 2))
    world.publishes()
    world.lists(a_pod("a", 1), unreadable=("ns/b",))
    assert world.publishes() == []
    world.queue = PublishQueue(["pods"])
    world.begin()
    world.lists(a_pod("a", 1), unreadable=("ns/b",))
    assert world.publishes() == []


def test_a_version_counts_as_covered_when_nothing_is_open() -> None:
    world = World()
    world.lists(version=5)
    world.puts(a_pod("a", 6))
    assert world.queue.published_versions() == {}
    world.publishes()
    world.queue.bookmark("pods", "8")
    assert world.queue.published_versions() == {"pods": "8"}


def test_an_object_without_room_is_said_to_be_there() -> None:
    world = World()
    world.puts(a_pod("a", 1))
    (fact,) = world.takes()
    small = without_body(fact)
    assert (small.op, bytes(small.body)) == (Op.OVERSIZED, b"null")
    world.queue.confirmed(small)
    assert world.publishes() == []
    world.puts(a_pod("a", 2, node="n"))
    assert world.publishes() == ["put ns/a@2"]


@pytest.mark.parametrize(
    ("rv", "than", "answer"),
    [("9", "10", True), ("10", "9", False), ("9", "9", False), ("", "9", False), ("x", "9", False)],
)
def test_versions_compare_as_numbers(rv: str, than: str, answer: bool) -> None:
    assert older(rv, than) is answer
