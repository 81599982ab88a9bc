"""Every dialogue gets the answers that the real API server gave, from both servers.

`answers.json` was written by `python -m tests.contract.apiserver.record`; that both servers are
held to it keeps it true to the pinned version of the real one.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from pumice.local import parts
from pumice.local.control_plane import ControlPlane, Options
from pumice.local.embedded import EmbeddedPlane
from tests.contract.apiserver.dialogues.catalogue import CASES
from tests.contract.apiserver.servers import Server, opened
from tests.support.stack import CRDS

ANSWERS = json.loads(Path(__file__).with_name("answers.json").read_text("utf-8"))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def embedded(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """The embedded API server with our CRDs, for the whole session."""
    options = Options(directory=tmp_path_factory.mktemp("embedded"), api="embedded")
    async with EmbeddedPlane(options, parts.require(["nats-server"])) as plane:
        await plane.apply_crds(CRDS)
        async with opened(plane) as server:
            yield server


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def real(control_plane: ControlPlane) -> AsyncIterator[Server]:
    """The real one of this session."""
    async with opened(control_plane) as server:
        yield server


@pytest.fixture(params=["embedded", "real"])
def server(request: pytest.FixtureRequest) -> Server:
    """One of the two servers."""
    found: Server = request.getfixturevalue(request.param)
    return found


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("name", CASES)
async def test_the_answers_are_those_of_kube_apiserver(server: Server, name: str) -> None:
    dialogue = await server.dialogue()
    assert await dialogue.play(CASES[name]) == ANSWERS[name]


def test_there_is_an_answer_to_each_dialogue_and_to_nothing_else() -> None:
    assert sorted(ANSWERS) == sorted(CASES)
