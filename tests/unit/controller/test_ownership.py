"""What is taken away is written no more, not even by a look that is under way."""

import asyncio

import pytest

from services.controller.adapters.ownership import PartitionOwnership
from shared.api.kinds import POD
from shared.kube.client import Kube
from shared.kube.wire import Request
from shared.runtime.errors import Retryable
from tests.support.clock import VirtualClock


class Way:
    """Answers everything and remembers it."""

    host = "test"

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def exchange(self, request: Request) -> bytes:
        self.asked.append(request.method)
        return b"{}"

    async def open(self, request: Request):
        raise AssertionError(request)

    async def close(self) -> None:
        pass


def owned() -> tuple[PartitionOwnership, Way, Kube]:
    ownership, way = PartitionOwnership(clock=VirtualClock()), Way()
    return ownership, way, Kube(transport=way).guarded(ownership.check)


async def test_a_look_whose_partition_was_taken_away_writes_no_more():
    ownership, way, kube = owned()
    with ownership.reconciling("ns/job"):
        await kube.delete(POD, "ns", "one", uid="u")
        ownership.lose(ownership.partition("ns/job"))
        with pytest.raises(Retryable, match="taken away"):
            await kube.delete(POD, "ns", "two", uid="u")
        async with asyncio.TaskGroup() as group:
            group.create_task(refused(kube))
    assert way.asked == ["DELETE"]


async def refused(kube: Kube) -> None:
    """Write in a task of the look's own."""
    with pytest.raises(Retryable, match="taken away"):
        await kube.delete(POD, "ns", "three", uid="u")


async def test_a_look_that_begins_when_the_partition_is_back_writes_again():
    ownership, way, kube = owned()
    ownership.lose(ownership.partition("ns/job"))
    with ownership.reconciling("ns/job"):
        await kube.delete(POD, "ns", "one", uid="u")
    assert way.asked == ["DELETE"]


async def test_a_loss_of_another_partition_disturbs_no_look():
    ownership, way, kube = owned()
    with ownership.reconciling("ns/job"):
        ownership.lose((ownership.partition("ns/job") + 1) % 16)
        await kube.delete(POD, "ns", "one", uid="u")
    assert way.asked == ["DELETE"]
