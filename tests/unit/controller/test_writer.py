"""Answers to writes that come after STATE has told more: what is gone stays gone."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from typing_extensions import override

from services.controller.adapters.store import RecentDeletions
from services.controller.adapters.writer import Writer
from shared.api import kinds
from shared.api.meta import ObjectMeta
from shared.kube.wire import Request
from tests.support.world import fact, gone
from tests.unit.controller.reconcilers import NAMESPACE, Process, Stage

NAME = "train-a-0"
BODY: dict[str, Any] = {
    "metadata": {"name": NAME, "namespace": NAMESPACE},
    "spec": {
        "schedulerName": "volcano",
        "nodeName": "n0",
        "containers": [{"name": "c", "image": "i"}],
    },
}
"""A pod of the kind that the stores hold, a bare one of ours, on a node where it takes its time."""


class Starved(Process):
    """A process that comes to an answer when STATE has told of the end of the object already."""

    @override
    async def exchange(self, request: Request) -> bytes:
        answer = await super().exchange(request)
        found = json.loads(answer)
        meta = found["metadata"]
        self.informers.fold([fact("pods", found)])
        self.informers.fold([gone("pods", f"{NAMESPACE}/{NAME}", meta["uid"], rv="99")])
        return answer


async def delete(writer: Writer, meta: ObjectMeta) -> None:
    await writer.delete(kinds.POD, meta, lingers=True)


async def patch(writer: Writer, meta: ObjectMeta) -> None:
    await writer.patch(kinds.POD, meta, {"metadata": {"labels": {"a": "b"}}})


async def get(writer: Writer, meta: ObjectMeta) -> None:
    await writer.get(kinds.POD, meta.namespace, meta.name)


@pytest.mark.parametrize("write", [delete, patch, get])
async def test_the_answer_about_a_pod_that_is_gone_brings_nothing_back(
    write: Callable[[Writer, ObjectMeta], Awaitable[None]],
) -> None:
    stage = Stage()
    made = await Process(stage).manager.writer.create(kinds.POD, NAMESPACE, BODY)
    process = Starved(stage)
    process.informers.fold([fact("pods", json.loads(made))])
    assert process.informers.pods
    await write(process.manager.writer, kinds.decode(kinds.POD, made).metadata)
    assert not process.informers.pods


async def test_a_pod_that_was_made_and_is_gone_before_the_answer_is_not_there() -> None:
    process = Starved(Stage())
    await process.manager.writer.create(kinds.POD, NAMESPACE, BODY)
    assert not process.informers.pods


def test_a_deletion_is_remembered_until_no_request_from_before_it_is_under_way() -> None:
    deletions = RecentDeletions()
    deletions.add("early")
    assert "early" not in deletions
    first, second = deletions.request(), deletions.request()
    with first:
        deletions.add("a")
        second.__enter__()
        deletions.add("b")
        assert "a" in deletions
    assert "a" not in deletions
    assert "b" in deletions
    second.__exit__(None, None, None)
    assert "b" not in deletions
