"""The process that holds a local cluster says why it could not."""

import asyncio
from pathlib import Path

import pytest

from pumice.local import holder, state
from pumice.local.errors import LocalError
from shared.runtime.tasks import TaskGroup


def test_the_reasons_of_a_start_that_failed_are_told_however_deep_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def fails(reason: str) -> None:
        raise LocalError(reason)

    async def serve(directory: Path) -> None:
        async with TaskGroup() as outer:
            async with TaskGroup() as inner:
                inner.create_task(fails("the port is taken"), name="a")
                inner.create_task(fails("the cache has died"), name="b")
            outer.create_task(asyncio.sleep(0), name="c")

    monkeypatch.setattr(holder, "_serve", serve)
    assert asyncio.run(holder._hold(tmp_path)) == 1
    assert "the port is taken; the cache has died" in capsys.readouterr().out
    left = state.read(tmp_path)
    assert left is not None
    assert left.message == "the port is taken; the cache has died"
