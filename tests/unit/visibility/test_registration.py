"""The place in the API of a process outside of the cluster, on an API server in memory."""

from typing import Any

import pytest
import structlog

from services.visibility.adapters.registration import VisibilityAddress, VisibilityRegistration
from shared.api.kinds import APISERVICE, SERVICE
from shared.kube.client import Kube
from shared.runtime.errors import Retryable
from tests.unit.controller.reconcilers import Process, Stage

PLACE = {"namespace": "kube-system", "name": "pumice-local-visibility"}
AWAY = "failing or missing response"


class Place:
    """An API server, and processes that have their place in its API."""

    def __init__(self) -> None:
        self.stage = Stage()
        self.clock = self.stage.clock

    def process(self, port: int = 8444) -> VisibilityRegistration:
        """Return a process that listens at a port."""
        address = VisibilityAddress(
            namespace=PLACE["namespace"],
            service=PLACE["name"],
            port=port,
            external_name="127.0.0.1",
        )
        kube = Kube(transport=Process(self.stage))
        return VisibilityRegistration(kube, address, clock=self.clock, log=structlog.get_logger())

    def reaches(self, error: str = "") -> None:
        """Let the API server look at the process behind the APIService."""
        for place in list(self.stage.core.aggregation.extension_servers()):
            self.stage.core.aggregation.note(place, error=error)

    def registered(self) -> list[dict[str, Any]]:
        """Return what the APIServices lead to."""
        return [item["spec"]["service"] for item in self.stage.items(APISERVICE)]

    async def looks(self, process: VisibilityRegistration, seconds: int) -> list[bool]:
        """Keep the registration for a time; return whether it was there after each second."""
        found = []
        for _ in range(seconds):
            await self.clock.advance(1)
            await attempt(process)
            found.append(bool(self.registered()))
        return found


async def attempt(process: VisibilityRegistration) -> bool:
    """Keep the registration once; tell whether nothing is left to wait for."""
    try:
        await process.ensure("BUNDLE")
    except Retryable:
        return False
    return True


@pytest.fixture
def place() -> Place:
    return Place()


async def test_a_process_that_is_never_reached_leaves_the_api_for_good(place: Place) -> None:
    process = place.process()
    assert not await attempt(process)
    assert await place.looks(process, 29) == [True] * 29
    assert not any(await place.looks(process, 100))
    assert place.stage.items(SERVICE) == []


async def test_a_process_that_was_reached_comes_back_after_it_was_not(place: Place) -> None:
    process = place.process()
    await attempt(process)
    place.reaches()
    assert await attempt(process)
    place.reaches(AWAY)
    assert not await attempt(process)
    there = await place.looks(process, 95)
    assert there == [True] * 29 + [False] * 60 + [True] * 6
    place.reaches()
    assert await attempt(process)
    assert all(await place.looks(process, 40))


async def test_a_process_that_stood_still_is_given_time_to_be_reached_again(place: Place) -> None:
    process = place.process()
    await attempt(process)
    place.reaches()
    assert await attempt(process)
    place.reaches(AWAY)
    await place.clock.advance(3600)
    assert not await attempt(process)
    assert place.registered()
    place.reaches()
    assert await attempt(process)


async def test_what_a_killed_process_left_behind_is_taken_over_and_goes_at_the_end(
    place: Place,
) -> None:
    killed = place.process(port=8444)
    await attempt(killed)
    place.reaches(AWAY)

    process = place.process(port=9555)
    await attempt(process)
    assert place.registered() == [{**PLACE, "port": 9555}]
    place.reaches()
    assert await attempt(process)

    await process.remove()
    assert place.registered() == []
    assert place.stage.items(SERVICE) == []
