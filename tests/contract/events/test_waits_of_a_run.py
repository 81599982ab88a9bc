"""Healthy gangs are never told to wait, and what cannot be placed is told once; embedded server."""

from pathlib import Path

import pytest

from pumice.local import parts
from pumice.local.control_plane import ControlPlaneOptions
from pumice.local.embedded import EmbeddedPlane
from tests.support.stack import CRDS
from tests.support.waits_of_a_run import play


@pytest.mark.timeout(180)
async def test_only_the_gang_that_cannot_be_placed_is_told_to_wait_and_once(tmp_path: Path) -> None:
    options = ControlPlaneOptions(directory=tmp_path / "plane", api="embedded")
    async with EmbeddedPlane(options, parts.require(["nats-server"])) as plane:
        await plane.apply_crds(CRDS)
        assert await play(plane, tmp_path) == []
