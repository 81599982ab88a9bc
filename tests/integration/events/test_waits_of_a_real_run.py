"""Healthy gangs are never told to wait, and what cannot be placed is told once; real API server."""

from pathlib import Path

import pytest

from tests.support.stack import real_plane
from tests.support.waits_of_a_run import play


@pytest.mark.timeout(240)
async def test_only_the_gang_that_cannot_be_placed_is_told_to_wait_and_once(tmp_path: Path) -> None:
    async with real_plane(tmp_path / "plane") as plane:
        assert await play(plane, tmp_path) == []
