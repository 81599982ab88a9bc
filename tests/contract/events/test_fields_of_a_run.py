"""Every field of every type of event is filled by a real run, on the embedded API server."""

from pathlib import Path

import pytest

from tests.contract.events.events_of_a_run import complaints, play
from tests.support.stack import embedded_plane


@pytest.mark.timeout(180)
async def test_a_run_on_the_embedded_api_server_fills_every_field(tmp_path: Path) -> None:
    async with embedded_plane(tmp_path / "plane") as plane:
        events = await play(plane, tmp_path)
    assert complaints(events) == []
