"""A scripted server and a client of it for the tests of `shared.kube`."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.kube.client import Kube
from shared.kube.config import connect
from tests.support.scripted_api import ScriptedApi


@pytest.fixture
async def api() -> AsyncIterator[ScriptedApi]:
    async with ScriptedApi().serving() as server:
        yield server


@pytest.fixture
async def kube(api: ScriptedApi, tmp_path: Path) -> AsyncIterator[Kube]:
    file = tmp_path / "kubeconfig"
    file.write_text(api.kubeconfig(token="t0"))
    async with await connect(str(file), user_agent="pumice-test/1", request_timeout_s=0.5) as kube:
        yield kube
