"""Notice before an eviction: given once per intent, and the grace outlives binders."""

import asyncio
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from services.binder.adapters.notices import EvictionNotices
from services.binder.intents.notice import GiveNotice, notice, notice_step
from services.binder.intents.steps import ApiResponse, PodSnapshot, ResponseKind, Wait
from shared.contracts.messages import Evict, Victim
from tests.support.clock import VirtualClock
from tests.support.env import env_of_a_test

NOW = 1_767_225_600.0
VICTIM = Victim(pod="ns/p", uid="u")
ASKING = PodSnapshot(uid="u", rv="7", phase="Running", grace_s=60)
INTENT = Evict(id="i-1", cycle=1, reason="preempt", victims=(VICTIM,))


def step(snapshot: PodSnapshot, *, now: float = NOW, most_s: float = 100):
    return notice_step("i-1", VICTIM, snapshot, now=now, most_s=most_s)


def noticed(intent: str = "i-1", **more) -> PodSnapshot:
    return structs.replace(ASKING, notice=notice(intent, now=NOW), **more)


def test_a_pod_that_asks_for_a_grace_gets_notice_first():
    assert step(ASKING) == GiveNotice("7")


@pytest.mark.parametrize(
    ("after_s", "most_s", "left_s"), [(0, 100, 60), (59, 100, 1), (0, 10, 10), (9, 10, 1)]
)
def test_then_it_has_the_rest_of_its_grace(after_s: float, most_s: float, left_s: float):
    assert step(noticed(), now=NOW + after_s, most_s=most_s) == Wait(left_s)


@pytest.mark.parametrize("after_s", [60, 1e6])
def test_after_its_grace_it_goes(after_s: float):
    assert step(noticed(), now=NOW + after_s) is None


@pytest.mark.parametrize("text", [notice("i-0", now=NOW), "soon i-1", "i-1", " "])
def test_a_notice_of_another_intent_or_one_that_cannot_be_read_does_not_count(text: str):
    assert step(structs.replace(ASKING, notice=text)) == GiveNotice("7")


@pytest.mark.parametrize(
    "change",
    [
        {"uid": "v"},
        {"deleting": True},
        {"phase": "Succeeded"},
        {"foreign": "other"},
        {"grace_s": 0},
    ],
)
def test_a_pod_that_needs_no_notice_gets_none(change: dict):
    assert step(structs.replace(ASKING, **change)) is None


def test_without_a_maximum_there_is_no_notice():
    assert step(ASKING, most_s=0) is None


# --- over the deaths of binders --------------------------------------------------------------


class OnePod:
    """An API server with one pod, which may be unavailable at times."""

    def __init__(self, clock: VirtualClock, grace_s: float, outages: set[int]) -> None:
        self.pod = structs.replace(ASKING, grace_s=grace_s)
        self.noticed_at: list[float] = []
        self._clock, self._outages, self._requests = clock, outages, 0

    def _answer(self) -> ApiResponse:
        self._requests += 1
        if self._requests in self._outages:
            return ApiResponse(kind=ResponseKind.BUSY)
        return ApiResponse(kind=ResponseKind.DONE, snapshot=self.pod)

    async def get(self, pod: str) -> ApiResponse:
        return self._answer()

    async def give_notice(self, victim: Victim, text: str, *, rv: str) -> ApiResponse:
        answer = self._answer()
        if answer.kind is ResponseKind.DONE:
            self.noticed_at.append(self._clock.now())
            self.pod = structs.replace(self.pod, notice=text)
        return answer


async def play(grace_s: float, most_s: float, deaths: list[float], outages: set[int]):
    """Return the API server and the time at which the victim may go; a death follows each time."""
    clock = VirtualClock(NOW)
    server = OnePod(clock, grace_s, outages)
    notices = EvictionNotices(server, env=env_of_a_test(clock=clock), most_s=most_s)  # type: ignore[arg-type]
    for lives_s in deaths:
        binder = asyncio.create_task(notices.prepare(INTENT))
        await clock.advance(lives_s)
        if binder.done():
            return server, clock.now()
        binder.cancel()
        with suppress(asyncio.CancelledError):
            await binder
    binder = asyncio.create_task(notices.prepare(INTENT))
    while not binder.done():
        await clock.advance(0.25)
    await binder
    return server, clock.now()


@given(
    st.integers(1, 40),
    st.integers(1, 40),
    st.lists(st.integers(0, 20).map(float), max_size=4),
    st.sets(st.integers(1, 6), max_size=3),
)
def test_a_victim_has_notice_once_and_its_whole_grace_from_then_on(
    grace_s: int, most_s: int, deaths: list[float], outages: set[int]
):
    server, gone_at = asyncio.run(play(grace_s, most_s, deaths, outages))
    (at,) = server.noticed_at
    assert gone_at - at >= min(grace_s, most_s) - 1  # a notice has whole seconds
    assert gone_at - at <= min(grace_s, most_s) + sum(deaths) + 3


def test_without_a_maximum_no_pod_is_read():
    server, gone_at = asyncio.run(play(60, 0, [], set()))
    assert not server.noticed_at
    assert gone_at < NOW + 1
