"""List/watch against a server that misbehaves in every way we know of."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import pytest

from shared.api.kinds import POD
from shared.kube.client import Kube
from shared.kube.decode import Bookmark, Changed, ChangeOp, Malformed
from shared.kube.listwatch import Item, Listed, ListWatch, ListWatchTimes, Unavailable
from tests.support.scripted_api import (
    ScriptedApi,
    bookmark,
    chunks,
    hang,
    line,
    obj,
    page,
    status,
)

TIMES = ListWatchTimes(
    silence_s=1.5,
    initial_silence_s=1.5,
    first_retry_s=0.01,
    last_retry_s=0.02,
    absent_retry_s=0.03,
    longest_asked_s=0.2,
)
END = "hang"


@asynccontextmanager
async def watching(kube: Kube) -> AsyncIterator[AsyncIterator[Item]]:
    watch = ListWatch(kube, POD, times=TIMES, rng=random.Random(7))
    async with asyncio.timeout(30), aclosing(watch.items()) as items:
        yield items


async def take(items: AsyncIterator[Item], count: int) -> list[Item]:
    return [await anext(items) for _ in range(count)]


def told(item: Item) -> str:
    """One word per item, so that a whole conversation can be compared at a glance."""
    match item:
        case Listed(items=items, malformed=odd, resource_version=version):
            names = [o.metadata.name for o in items] + [f"!{m.metadata.name}" for m in odd]
            return f"listed {','.join(names)}@{version}"
        case Changed(op=op, object=o):
            return f"{op.value.lower()} {o.metadata.name}@{o.metadata.resource_version}"
        case Malformed(metadata=metadata):
            return f"malformed {metadata.name}"
        case Bookmark(resource_version=version):
            return f"bookmark @{version}"
        case Unavailable(status=code):
            return f"unavailable {code}"


async def conversation(kube: Kube, count: int) -> list[str]:
    async with watching(kube) as items:
        return [told(item) for item in await take(items, count)]


INITIAL = (line("ADDED", obj("a", 3)), line("ADDED", obj("b", 5)), bookmark(9, initial_end=True))


async def test_the_state_is_streamed_and_then_its_changes(api: ScriptedApi, kube: Kube) -> None:
    api.then(chunks(*INITIAL, line("MODIFIED", obj("a", 10)), bookmark(12), ending=END))
    assert await conversation(kube, 3) == ["listed a,b@9", "modified a@10", "bookmark @12"]
    assert api.seen[0].query["sendInitialEvents"] == "true"
    assert api.seen[0].query["resourceVersionMatch"] == "NotOlderThan"
    assert 300 <= int(api.seen[0].query["timeoutSeconds"]) <= 480


async def test_changes_right_behind_the_initial_state_are_not_lost(
    api: ScriptedApi, kube: Kube
) -> None:
    api.then(chunks(b"".join((*INITIAL, line("DELETED", obj("b", 10)))), ending=END))
    assert await conversation(kube, 2) == ["listed a,b@9", "deleted b@10"]


async def test_the_initial_state_counts_changes_that_come_in_its_middle(
    api: ScriptedApi, kube: Kube
) -> None:
    middle = (line("DELETED", obj("a", 8)), line("MODIFIED", obj("b", 8)))
    api.then(chunks(*INITIAL[:2], *middle, INITIAL[2], ending=END))
    assert await conversation(kube, 1) == ["listed b@9"]


@pytest.mark.parametrize("code", [400, 422])
async def test_a_server_that_cannot_stream_is_listed_in_pages(
    api: ScriptedApi, kube: Kube, code: int
) -> None:
    api.then(
        status(code, "sendInitialEvents is forbidden for watch"),
        page([obj("a", 1)], 7, token="more"),
        page([obj("b", 2)], 7),
        chunks(line("ADDED", obj("c", 8)), ending=END),
    )
    assert await conversation(kube, 2) == ["listed a,b@7", "added c@8"]
    assert [r.query.get("limit") for r in api.seen] == [None, "500", "500", None]
    assert api.seen[2].query["continue"] == "more"
    assert api.seen[3].query["resourceVersion"] == "7"


async def test_a_server_that_ignores_the_wish_to_stream_is_listed_in_pages(
    api: ScriptedApi, kube: Kube
) -> None:
    api.then(
        chunks(line("ADDED", obj("a", 1)), ending=END),
        chunks(line("ADDED", obj("a", 1)), ending=END),
        page([obj("a", 1)], 7),
        chunks(bookmark(8), ending=END),
    )
    assert await conversation(kube, 4) == [
        "unavailable 0",
        "unavailable 0",
        "listed a@7",
        "bookmark @8",
    ]


async def test_a_list_that_expires_between_two_pages_starts_again(
    api: ScriptedApi, kube: Kube
) -> None:
    api.then(
        status(422),
        page([obj("old", 1)], 7, token="more"),
        status(410, "the provided continue parameter is too old", "Expired"),
        page([obj("a", 9)], 9),
        chunks(ending=END),
    )
    assert await conversation(kube, 1) == ["listed a@9"]


@pytest.mark.parametrize(
    "expired",
    [
        status(410, "too old resource version", "Expired"),
        chunks(line("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"})),
    ],
    ids=["as answer", "as event"],
)
async def test_a_version_that_is_too_old_leads_to_a_new_list(
    api: ScriptedApi, kube: Kube, expired: object
) -> None:
    api.then(
        chunks(*INITIAL),
        expired,
        chunks(line("ADDED", obj("z", 90)), bookmark(99, initial_end=True), ending=END),
    )
    assert await conversation(kube, 2) == ["listed a,b@9", "listed z@99"]
    assert api.seen[1].query["resourceVersion"] == "9"


async def test_an_orderly_end_is_continued_where_it_ended(api: ScriptedApi, kube: Kube) -> None:
    api.then(
        chunks(*INITIAL, line("MODIFIED", obj("a", 10))),
        chunks(line("MODIFIED", obj("a", 11)), ending=END),
    )
    assert await conversation(kube, 3) == ["listed a,b@9", "modified a@10", "modified a@11"]
    assert api.seen[1].query["resourceVersion"] == "10"


@pytest.mark.parametrize(
    "trouble",
    [
        chunks(line("MODIFIED", obj("a", 10)), ending="reset"),
        chunks(line("MODIFIED", obj("a", 10)), line("MODIFIED", obj("a", 11))[:40], ending="reset"),
    ],
    ids=["reset", "reset in a line"],
)
async def test_a_broken_connection_is_told_and_continued_without_a_new_list(
    api: ScriptedApi, kube: Kube, trouble: object
) -> None:
    api.then(chunks(*INITIAL), trouble, chunks(line("MODIFIED", obj("a", 11)), ending=END))
    assert await conversation(kube, 5) == [
        "listed a,b@9",
        "modified a@10",
        "unavailable 0",
        "bookmark @10",
        "modified a@11",
    ]
    assert api.seen[2].query["resourceVersion"] == "10"


async def test_a_silent_connection_is_replaced_without_a_word(api: ScriptedApi, kube: Kube) -> None:
    api.then(
        chunks(*INITIAL, ending="hang"),
        chunks(line("MODIFIED", obj("a", 11)), ending=END),
    )
    assert await conversation(kube, 2) == ["listed a,b@9", "modified a@11"]
    assert api.seen[1].query["resourceVersion"] == "9"


async def test_no_answer_at_all_is_told_and_tried_again(api: ScriptedApi, kube: Kube) -> None:
    api.then(hang(), chunks(*INITIAL, ending=END))
    assert await conversation(kube, 2) == ["unavailable 0", "listed a,b@9"]


@pytest.mark.parametrize("size", [1, 7, 100])
async def test_lines_may_be_cut_anywhere(api: ScriptedApi, kube: Kube, size: int) -> None:
    whole = b"".join((*INITIAL[1:], line("MODIFIED", obj("ü", 10))))
    api.then(chunks(*(whole[i : i + size] for i in range(0, len(whole), size)), ending=END))
    assert await conversation(kube, 2) == ["listed b@9", "modified ü@10"]


async def test_a_line_larger_than_every_buffer_arrives(api: ScriptedApi, kube: Kube) -> None:
    big = obj("big", 10)
    big["metadata"]["annotations"] = {"blob": "x" * 5_000_000}
    api.then(chunks(*INITIAL, line("MODIFIED", big), ending=END))
    async with watching(kube) as items:
        _, change = await take(items, 2)
    assert isinstance(change, Changed)
    assert len(change.object.metadata.annotations["blob"]) == 5_000_000


async def test_a_kind_that_is_not_installed_is_looked_for_again(
    api: ScriptedApi, kube: Kube
) -> None:
    api.then(status(404), status(404), chunks(*INITIAL, ending=END))
    assert await conversation(kube, 3) == ["unavailable 404", "unavailable 404", "listed a,b@9"]


async def test_a_kind_beyond_what_a_server_does_counts_as_not_installed(
    api: ScriptedApi, kube: Kube
) -> None:
    api.then(status(501), chunks(*INITIAL, ending=END))
    watch = ListWatch(kube, POD, times=TIMES)
    async with aclosing(watch.items()) as items:
        first = await anext(items)
    assert isinstance(first, Unavailable)
    assert (first.status, first.is_absent) == (501, True)


async def test_a_kind_that_is_removed_is_listed_anew_when_it_returns(
    api: ScriptedApi, kube: Kube
) -> None:
    api.then(chunks(*INITIAL), status(404), chunks(bookmark(20, initial_end=True), ending=END))
    assert await conversation(kube, 3) == ["listed a,b@9", "unavailable 404", "listed @20"]


async def test_a_missing_right_is_told_with_the_words_of_the_server(
    api: ScriptedApi, kube: Kube
) -> None:
    said = 'pods is forbidden: User "u" cannot list resource "pods"'
    api.then(status(403, said, "Forbidden"), chunks(*INITIAL, ending=END))
    async with watching(kube) as items:
        refused, listed = await take(items, 2)
    assert isinstance(refused, Unavailable)
    assert refused.status == 403
    assert said in refused.message
    assert told(listed) == "listed a,b@9"


async def test_a_busy_server_is_left_alone_for_as_long_as_it_asks(
    api: ScriptedApi, kube: Kube
) -> None:
    api.then(status(429, headers={"Retry_After": "60"}), chunks(*INITIAL, ending=END))
    async with watching(kube) as items:
        busy, listed = await take(items, 2)
    assert isinstance(busy, Unavailable)
    assert (busy.status, busy.retry_in_s) == (429, TIMES.longest_asked_s)
    assert told(listed) == "listed a,b@9"


async def test_an_unreadable_object_is_named_and_hides_no_other(
    api: ScriptedApi, kube: Kube
) -> None:
    odd = obj("odd", 4, spec={"containers": "none of your business"})
    api.then(chunks(INITIAL[0], line("ADDED", odd), INITIAL[2], line("ADDED", odd), ending=END))
    async with watching(kube) as items:
        listed, again = await take(items, 2)
    assert told(listed) == "listed a,!odd@9"
    assert isinstance(again, Malformed)
    assert "$.spec.containers" in again.error


async def test_an_unreadable_object_in_a_page_hides_no_other(api: ScriptedApi, kube: Kube) -> None:
    odd = obj("odd", 4, spec={"containers": 5})
    api.then(status(422), page([obj("a", 1), odd], 7), chunks(ending=END))
    assert await conversation(kube, 1) == ["listed a,!odd@7"]


async def test_something_else_than_events_is_told_not_followed(
    api: ScriptedApi, kube: Kube
) -> None:
    api.then(chunks(b"<html>proxy</html>\n"), chunks(*INITIAL, ending=END))
    assert await conversation(kube, 2) == ["unavailable 0", "listed a,b@9"]


async def test_a_watch_that_always_ends_at_once_is_not_repeated_hotly(
    api: ScriptedApi, kube: Kube
) -> None:
    api.then(chunks(*INITIAL), *(chunks() for _ in range(500)))
    async with watching(kube) as items:
        await take(items, 1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await anext(items)
    assert len(api.seen) < 40


async def test_deletions_carry_the_last_view(api: ScriptedApi, kube: Kube) -> None:
    api.then(chunks(*INITIAL, line("DELETED", obj("a", 10)), ending=END))
    async with watching(kube) as items:
        _, deleted = await take(items, 2)
    assert isinstance(deleted, Changed)
    assert deleted.op is ChangeOp.DELETED
    assert deleted.object.metadata.uid == "uid-a"
