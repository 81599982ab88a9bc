"""A scripted server and a client of it for the tests of `shared.kube`."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.kube.client import Kube
from tests.support.certificates import Authority
from tests.support.scripted_api import ScriptedApi, client_of


@pytest.fixture
async def api() -> AsyncIterator[ScriptedApi]:
    async with ScriptedApi().serving() as server:
        yield server


@pytest.fixture
async def kube(api: ScriptedApi, tmp_path: Path) -> AsyncIterator[Kube]:
    async with client_of(api, tmp_path, request_timeout_s=0.5) as kube:
        yield kube


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")
