"""Every field of every type of event is filled by a real run, on the embedded API server."""

from pathlib import Path

import pytest

from pumice.local import parts
from pumice.local.control_plane import ControlPlaneOptions
from pumice.local.embedded import EmbeddedPlane
from tests.support.events_of_a_run import complaints, play
from tests.support.stack import CRDS


@pytest.mark.timeout(180)
async def test_a_run_on_the_embedded_api_server_fills_every_field(tmp_path: Path) -> None:
    options = ControlPlaneOptions(directory=tmp_path / "plane", api="embedded")
    async with EmbeddedPlane(options, parts.require(["nats-server"])) as plane:
        await plane.apply_crds(CRDS)
        events = await play(plane, tmp_path)
    assert complaints(events) == []
