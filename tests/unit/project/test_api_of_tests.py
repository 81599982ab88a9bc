"""The API client of tests: what is followed is followed over the end of a watch."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from typing_extensions import override

from tests.support.api import Api


def event(kind: str, name: str, rv: str) -> dict[str, Any]:
    return {"type": kind, "object": {"metadata": {"name": name, "resourceVersion": rv}}}


class Watches(Api):
    """An API server that ends each watch after what is said of it."""

    def __init__(self, *watches: list[dict[str, Any]]) -> None:
        self._watches = list(watches)
        self.begun_at: list[str] = []

    @override
    async def watch(self, plural: str, namespace: str = "", rv: str = "") -> AsyncIterator[dict]:
        self.begun_at.append(rv)
        for each in self._watches.pop(0):
            yield each


async def test_a_watch_that_ends_is_begun_again_where_it_ended() -> None:
    first = [event("ADDED", "a", "3"), event("BOOKMARK", "", "5")]
    api = Watches(first, [], [event("DELETED", "a", "7"), event("ERROR", "", "")])
    seen: list[str] = []

    async def read_on() -> None:
        async for each in api.follow("jobs", "ns", "1"):
            seen.append(each["type"])  # noqa: PERF401 - it ends with an error

    with pytest.raises(AssertionError, match="ERROR"):
        await read_on()
    assert seen == ["ADDED", "DELETED"]
    assert api.begun_at == ["1", "5", "5"]
